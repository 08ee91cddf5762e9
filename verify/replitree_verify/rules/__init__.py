"""What must hold in every state, numbered as in design 3.3, and at the end.

Imports: `process` and `world`.

Changes: an invariant comes with a mutant that breaks it; none is weakened without the reason beside it.
"""
