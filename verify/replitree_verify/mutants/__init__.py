"""Mutants: which rule each breaks, in which model, and which invariant must notice; `catalog` has them by name.

Imports: `patches`, `process` and `world.kernel`.

Changes: with each invariant; a mutant that is caught no more is a finding.
"""
