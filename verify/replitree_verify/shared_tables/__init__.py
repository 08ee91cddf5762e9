"""Tables on an object store: the procedures of `shares.sharing` around those of replicas, with disks, in every order.

Imports: `rules`, `engine.small_search` and `world.kernel`.

Changes: with `protocol.shares.sharing`; its counts are pinned.
"""
