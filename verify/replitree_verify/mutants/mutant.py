"""What a mutant of the main models is: stages that run the code which a patch changes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from inspect import isgeneratorfunction

from replitree.protocol.core import layout
from replitree.protocol.program import (
    candidate,
    cleaner,
    commands,
    executor,
    inserter,
    keeper,
    leader,
    life,
    mender,
    mover,
    puller,
    quorum_waiter,
    rewriter,
    tagger,
)
from replitree.protocol.state import atomicity
from replitree_verify.patches.patch import Patch, PatchedStages, read_patches
from replitree_verify.process import (
    longlife,
    lost_parts,
    moves,
    quorums,
    read_requests,
    restore_duties,
    upkeep,
)
from replitree_verify.world.kernel import Stage

_PROGRAM = (
    *(candidate, cleaner, commands, executor, inserter, keeper, leader, life, mender, mover, puller, quorum_waiter),
    *(rewriter, tagger),
    *(longlife, lost_parts, moves, quorums, read_requests, restore_duties, upkeep),
)
"""The modules that define stages."""

_OUTCOMES = ("replitree_verify.outcomes.", "replitree_verify.process.shares", atomicity.__name__)
"""How the names of the modules begin that perform effects, or say what these wait for."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A broken rule.

    Attributes
    ----------
    name, description
        For people.
    model
        Name of the model that catches it.
    invariant
        The invariant that notices: what the violation begins with.
    stages
        The broken stages, by the name of the stage that each replaces.
    patch
        The whole change.
    """

    name: str
    description: str
    model: str
    invariant: str
    stages: Mapping[str, Stage]
    patch: Patch

    def performing(self) -> AbstractContextManager[None]:
        """Perform effects as the mutant's hunks of `_OUTCOMES` say while the context lasts.

        Such a hunk changes what a thread waits for.  Without it the checker would wake the broken stage for ever for what
        the stage does not do any more, and never reach a state in which nothing goes on (`CONVERGES`).  A hunk that changes
        where nodes lie counts for the checker as well, which looks there.
        """
        hunks = tuple(hunk for hunk in self.patch.hunks if hunk.module.startswith((*_OUTCOMES, layout.__name__)))
        return replace(self.patch, hunks=hunks).mutated() if hunks else nullcontext()


def read_mutants(room: str) -> tuple[Mutant, ...]:
    """Return the mutants that are patches of a room, by name.

    Parameters
    ----------
    room
        The name of its folder in `replitree_verify.patches`.
    """
    return tuple(
        Mutant(each.name, each.description, each.model, each.invariant, stages_with(each), each)
        for each in read_patches(room)
    )


def stages_with(*patches: Patch) -> PatchedStages:
    """Return every stage by its name, with the code that patches change.

    The changed code is there only while a stage runs: invariants, effects and what the explorer reckons beside the stages
    call production functions too, and these must judge the mutant as they are.

    Parameters
    ----------
    patches
        The changes, each of other lines.
    """
    # Effects are performed outside of the stages: their hunks are in force all the time (`performing`).
    hunks = tuple(hunk for patch in patches for hunk in patch.hunks if not hunk.module.startswith(_OUTCOMES))
    together = Patch(", ".join(patch.name for patch in patches), "", "", "", hunks)
    return PatchedStages(_STAGES, together)


_STAGES: dict[str, Stage] = {
    name: stage
    for room in _PROGRAM
    for name, stage in vars(room).items()
    # Modules import each other's stages: each counts where it is defined.
    if isgeneratorfunction(stage) and stage.__module__ == room.__name__
}
