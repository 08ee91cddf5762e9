"""Models of parts that move between disks and the object store: several threads of each replica, and a crash of all of them.

Imports: `shared_tables`, `rules`, `engine.small_search` and `world.kernel`.

Changes: with `protocol.shares.moving`; its counts are pinned.
"""
