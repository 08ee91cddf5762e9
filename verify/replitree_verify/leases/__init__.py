"""A leader with a lease and its successor, with clocks that differ: a read sees what was acknowledged before.

`model` has the states and the moves, on the functions of `replitree.tablet.core.lease`.  The mutants that break a promise of a
clock, or of a runtime that calls these functions, are patches of `model`.

Imports: `engine.small_search`.

Changes: with `replitree.tablet.core.lease`; its counts are pinned.
"""
