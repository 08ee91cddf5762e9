"""What the rooms of moves and merges in an object store have in common: replicas of one table with disks, and their steps.

Imports: `rules`, `engine.small_search` and `world.kernel`.

Changes: with `protocol.shares.sharing`.
"""
