"""What models of results that clients put (`prepared`) have of merges: work marks, sessions that end, and upkeep.

Imports: `shared_tables`, `engine.small_search` and `world.kernel`.

Changes: with `protocol.execute.make_once`; its counts are pinned.
"""
