"""Broken rules of parts that move, which simulated runs catch: most of the models', and some that only a run shows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from replitree.protocol.core.effects import ANY_VERSION, Commit, Delete, Get
from replitree.protocol.shares import moving
from replitree_verify.engine.small_search import Mutant
from replitree_verify.moving import mutants as of_models
from replitree_verify.simulation.options import SECOND
from replitree_verify.simulation.store import moves, moving_process
from replitree_verify.simulation.store.moves import Moves
from replitree_verify.simulation.store.shared_disk import Left, SharedDisk

_OF_MODELS = (
    "swapped-before-marked",
    "removed-before-owned",
    "moved-without-note",
    "moved-unnoted",
    "moved-attempt-kept",
    "moved-unclaimed",
    "claim-kept",
    "let-go-before-home",
    "home-without-note",
    "moved-mark-deleted-alone",
    "moved-and-deleted",
    "moved-never-let-go",
)


def _gives_back_unproved(_proof: Any, claim: str) -> Any:
    return (yield Commit(Delete(claim, ANY_VERSION)))


def _waits_for_itself(_sharer: Any, claim: str) -> Any:
    return (yield Get(claim)), None


def _forgets_notes(disk: SharedDisk, known: Moves) -> tuple[Left, ...]:
    """Return what has left a disk, and of what moves have noted there only that of this process."""
    may_go = (left for left in disk.leaving if not known.is_busy(left.share))
    return tuple(left for left in may_go if left.share in known.begun or disk.content(left.part) is None)


_DOUBT = of_models.find_mutant("doubt-worked-off")
_OWN = (
    # The mover rests as long as in the product: a try that follows at once notes the share again, before the late commit.
    replace(_DOUBT, patches={**_DOUBT.patches, (moving_process, "MOVE_AGAIN"): 5 * SECOND}),
    Mutant(
        "notes-forgotten",
        "a process lets go of what it has noted itself; after a crash nobody undoes a move that was cut off",
        "simulation",
        "CONVERGES",
        {(moves, "to_let_go_of"): _forgets_notes},
    ),
    Mutant(
        "claim-given-back-unproved",
        "a claim is given back by a commit that does not prove the epoch, and comes late: it takes another one's claim",
        "simulation",
        "I9",
        {(moving, "_give_back"): _gives_back_unproved},
    ),
    Mutant(
        "own-claim-kept",
        "a claim of an earlier epoch is left to the end of its session, also by its replica, which waits for itself",
        "simulation",
        "CONVERGES",
        {(moving, "_give_back_own"): _waits_for_itself},
    ),
)

MOVING_MUTANTS = {mutant.name: mutant for mutant in (*map(of_models.find_mutant, _OF_MODELS), *_OWN)}
"""By name."""


__all__ = ["MOVING_MUTANTS"]
