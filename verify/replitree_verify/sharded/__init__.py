"""The checker of a sharded table's life: it is created and dropped by several processes, beside tables that want its name.

It runs the production procedures that create, finish and drop, in every order of their steps.

Imports: `engine.shared_tree`, `engine.small_search`, `world.faults` and `world.kernel`.

Changes: with `protocol.sharded.creation` and `removal`; its counts are pinned.
"""
