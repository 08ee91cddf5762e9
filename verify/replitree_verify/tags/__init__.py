"""The checker of the tags and consumers of a sharded table, each with a node in every shard: clients make, move, delete them.

It runs the production procedures in every order of their steps.

Imports: `engine.shared_tree`, `engine.small_search`, `world.faults` and `world.kernel`.

Changes: with `protocol.upkeep.named_cuts` and `protocol.upkeep.cut_consumers`; its counts are pinned.
"""
