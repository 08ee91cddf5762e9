"""A leader with a lease and its successor, with clocks that differ: a read sees what was acknowledged before.

`model` has the moves, on the functions of `replitree.tablet.core.lease`; `mutants` what must be caught.

Imports: nothing of the checker.

Changes: with `replitree.tablet.core.lease`; its counts are pinned.
"""
