"""The checker of commands over shards: clients give commands to replicas of two shards, and a third shard comes.

It runs the production procedures, in every order of their steps.

Imports: `engine.shared_tree`, `engine.small_search`, `world.faults` and `world.kernel`.

Changes: with `protocol.propose.shards`; its counts are pinned.
"""
