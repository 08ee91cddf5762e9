"""The checker of joint inserts: two shards in one tree, each with a replica in a process of its own.

It runs the production procedures that prepare, commit, abandon and end, in every order of their steps.  What is left out of it
stands in `model`.

Imports: `engine.shared_tree`, `engine.small_search`, `world.faults` and `world.kernel`.

Changes: with `protocol.sharded`; its counts are pinned.
"""
