"""The checker of materialised views of a sharded table: source and target in one tree, each of two shards.

It runs the production procedures that create, drop and fill a view, insert through it, change columns and drop a table, in
every order of their steps.

Imports: `engine.shared_tree`, `engine.small_search`, `world.faults` and `world.kernel`.

Changes: with `protocol.sharded.views`; its counts are pinned.
"""
