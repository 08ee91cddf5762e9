"""Tablets that are broken on purpose, each by a patch of the code that ships (`replitree_verify.patches`).

Those that change nothing under our rules are in `docs/tablet-mutations.md`, with the reason.
"""

from __future__ import annotations

from replitree_verify.patches.patch import read_patches

MUTANTS = {mutant.name: mutant for mutant in read_patches("tablets")}
EQUIVALENTS = read_patches("tablets_equivalent")
"""Each with the models in which it would be seen if it did anything."""
