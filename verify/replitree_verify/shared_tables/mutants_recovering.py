"""Broken rules of a recovery on an object store."""

from __future__ import annotations

from typing import Any

from replitree.protocol.core.effects import Procedure
from replitree.protocol.shares.share_effects import Sharer
from replitree_verify.engine.small_search import Mutant
from replitree_verify.shared_tables import recovering


def _as_on_disks(_sharer: Sharer, procedure: Procedure[Any]) -> Procedure[Any]:
    return procedure


def _leaves_it_there(_name: str) -> Procedure[None]:
    yield from ()


RECOVERING_MUTANTS = (
    Mutant(
        "recovered-unmarked",
        "a recovery registers what it takes over as on local disks, and leaves it to the next start to own it",
        "shared_table_recover",
        "MARKED",
        {(recovering, "with_shares"): _as_on_disks},
    ),
    Mutant(
        "recovered-and-kept",
        "what the source of a recovery has no more stays on the disk when its registration was taken back",
        "shared_table_recover_had",
        "SETTLES",
        {(recovering, "_remove_what_left"): _leaves_it_there},
    ),
)

__all__ = ["RECOVERING_MUTANTS"]
