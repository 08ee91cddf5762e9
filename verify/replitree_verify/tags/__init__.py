"""The checker of the tags of a sharded table: clients make them and delete them, each with a node in every shard.

It runs the production procedures in every order of their steps.

Imports: `engine.shared_tree`, `engine.small_search`, `world.faults` and `world.kernel`.

Changes: with `protocol.upkeep.cut_tags`; its counts are pinned.
"""
