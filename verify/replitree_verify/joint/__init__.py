"""The checker of joint inserts: two shards in one tree, each with a replica in a process of its own.

It runs the product's stages that prepare, commit, give up, forget and clean, and the procedures that end, in every order of
their steps.  What is left out of it stands in `model`.

Imports: `engine.shared_tree`, `engine.small_search`, `world.faults` and `world.kernel`.

Changes: with `protocol.sharded`; its counts are pinned.
"""
