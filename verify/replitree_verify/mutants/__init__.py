"""Mutants: which rule each breaks, in which model, and which invariant must notice; `catalog` has them by name.

Imports: `mutations`.

Changes: with each invariant; a mutant that is caught no more is a finding.
"""
