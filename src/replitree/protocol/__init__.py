"""The replication protocol: pure procedures over effects, and the values that they write.

Nothing here performs anything.

Read `core.parts`, then `insert.insert`, then `membership.activate`, `state.pull`, `execute.execute`, `state.start`.
"""
