"""Broken rules of tables on an object store; each must be found by name.

All but those of `recovering` are patches.  `docs/known-bugs.md` says which of them systems of the field have had.
"""

from __future__ import annotations

from replitree_verify.engine.small_search import Mutant
from replitree_verify.patches.patch import Patch, read_patches
from replitree_verify.shared_tables.mutants_recovering import RECOVERING_MUTANTS

MUTANTS: tuple[Mutant | Patch, ...] = (*read_patches("shared_tables"), *RECOVERING_MUTANTS)

__all__ = ["MUTANTS"]
