"""Replicas that are dropped and join again under their names, while a process of the earlier one is still at work.

Imports: `shared_tables`, `rules`, `engine.small_search` and `world.kernel`.

Changes: with `protocol.membership`; its counts are pinned.
"""
