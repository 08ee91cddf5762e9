"""The checker of materialised views: two tables in one tree, and the replicas that have both.

It runs the production procedures, inserts, creations, drops, alters and roll-overs, in every order of their steps.  What is
left out of it stands in `model`.

Imports: `engine.small_search`, `world.faults` and `world.kernel`.

Changes: with `protocol.insert.views` and `protocol.propose.views`; its counts are pinned.
"""
