"""Broken rules of parts that move; each must be found by name.

`docs/known-bugs.md` says which of them systems of the field have had.  All but one are patches (`replitree_verify.patches`).
"""

from __future__ import annotations

from typing import Any

from replitree.protocol.core import effects as fx
from replitree.protocol.shares import moving
from replitree.protocol.shares.share import ShareId
from replitree.protocol.shares.share_effects import Sharer
from replitree_verify.engine.small_search import Mutant
from replitree_verify.moving.threads import LoseRows
from replitree_verify.patches.patch import Patch, read_patches

_OWN = moving._own  # noqa: SLF001 - what is broken here


def _removes_files_before_the_commit(
    sharer: Sharer, proof: fx.Check, part: str, share: ShareId, operations: Any
) -> Any:
    yield LoseRows(part)  # no effect of the product removes files alone
    return (yield from _OWN(sharer, proof, part, share, operations))


MUTANTS: tuple[Mutant | Patch, ...] = (
    *read_patches("moving"),
    Mutant(
        "removed-before-owned",
        "a replica removes the files on its disk before the commit that owns the share",
        "move_two",
        "ROWS",
        {(moving, "_own"): _removes_files_before_the_commit},
    ),
)

__all__ = ["MUTANTS"]
