"""Models of merges in an object store: one replica makes a result for all, and sessions end at the wrong moment.

Imports: `shared_tables`, `engine.small_search` and `world.kernel`.

Changes: with `protocol.execute.make_once`; its counts are pinned.
"""
