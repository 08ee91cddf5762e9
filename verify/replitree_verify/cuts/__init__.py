"""The checker of cuts: reads of two shards at one transaction, while rows come into both.

It runs the production procedures that insert, settle, give up and roll over, and those that read, in sessions that may be
behind.  What is left out of it stands in `model`.

Imports: `engine.shared_tree`, `engine.small_search`, `world.faults` and `world.kernel`.

Changes: with `protocol.sharded.cut`; its counts are pinned.
"""
