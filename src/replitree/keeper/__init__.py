"""The keeper: a server of ZooKeeper's client protocol whose state machine is made for a tablet.

Today only `core` is here, which is pure.  `docs/keeper.md` says what is missing.
"""
