"""What one thread can do next: its effect in every way it can end, with the steps that are joined to it.

`branches` says how a single effect ends; here the procedure goes on with each outcome, a closed procedure is followed by
what its thread does then, and joined steps (`reduction`) are taken along.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from replitree.protocol.core.effects import RequestId
from replitree_verify.effects.table import branches, probes_of
from replitree_verify.engine.reduction import CHAIN_MAX, is_joined
from replitree_verify.outcomes.branch import Branch, Scene
from replitree_verify.outcomes.closed_stages import after_close
from replitree_verify.probes.catalog import Seen
from replitree_verify.process.read_requests import Told
from replitree_verify.world.kernel import END, Conversation, Kernel, ProcedureFailed


class Turn(NamedTuple):
    """An effect of a procedure, how it ended, and what the outcome does not tell."""

    effect: Any
    outcome: Any
    fate: str = ""


class Ending(NamedTuple):
    """A step, with those joined to it, and where it leads.

    Attributes
    ----------
    place, branch
        The thread's next place, and how the last effect ended.
    turns, answers, probes
        Everything that happened on the way.
    cost, fresh
        The faults that it took, and whether the session's view is the present.
    """

    place: int
    branch: Branch
    turns: tuple[Turn, ...]
    answers: tuple[tuple[RequestId, Told], ...]
    probes: tuple[str, ...]
    cost: int
    fresh: bool


@dataclass(frozen=True, slots=True)
class Steps:
    """Works out the steps of threads.

    Attributes
    ----------
    kernel
        Where procedures stand.
    reduce
        Whether steps are joined.
    """

    kernel: Kernel
    reduce: bool

    def endings(self, kind: str, place: int, scene: Scene, *, alone: bool) -> Iterator[Ending]:
        """Return every step of a thread that stands at `place`.

        Parameters
        ----------
        kind
            "life", "puller", "executor" or "insert".
        place, scene
            Where the procedure stands, and the process around it.
        alone
            Whether no other process reads or writes what is the process's own (`reduction`).
        """
        return self._endings(kind, place, scene, alone, ())

    def _endings(
        self, kind: str, place: int, scene: Scene, alone: bool, before: tuple[Ending, ...]
    ) -> Iterator[Ending]:
        assert len(before) < CHAIN_MAX, "a procedure runs in a circle"
        effect, told = self.kernel.effect(place), self.kernel.conversation(place)
        for branch in branches(effect, scene):
            ending = self._after(kind, place, scene, branch, told, before[-1] if before else None)
            # After a crash or a close another procedure begins: its first effect is a step of its own.
            if self.reduce and not (ending.place == END or branch.dies or branch.closes):
                seen = scene._replace(here=ending.branch.here, view=None if branch.fresh else scene.view)
                after = self.kernel.effect(ending.place)
                if is_joined(after, effect, ending.branch, seen, alone=alone):
                    yield from self._endings(kind, ending.place, seen, alone, (*before, ending))
                    continue
            yield ending

    def _after(
        self, kind: str, place: int, scene: Scene, branch: Branch, told_so_far: Conversation, last: Ending | None
    ) -> Ending:
        """Let the procedure go on with an outcome."""
        effect = self.kernel.effect(place)
        seen = Seen(told_so_far, effect, branch.outcome, branch.fate, branch.here.disk != scene.here.disk)
        turns, answers, probes, cost, fresh = (
            ((), (), (), 0, False) if last is None else (last.turns, last.answers, last.probes, last.cost, last.fresh)
        )
        after = END
        told = branch.answers
        if branch.closes:
            # The running replica's thread goes on too when a read could not be had.
            here = branch.here
            closed = after_close(kind, here.replica, here.me, here.memory, told_so_far)
            after = END if closed.then is None else self.kernel.begin(closed.then.stage, *closed.then.arguments)
            branch, told = replace(branch, here=here._replace(memory=closed.memory)), closed.answers
        elif not branch.dies:
            try:
                after = self.kernel.step(place, branch.outcome)
            except ProcedureFailed as failure:
                branch = replace(branch, breach=f"a procedure failed: {failure}")
        return Ending(
            after,
            branch,
            (*turns, Turn(effect, branch.outcome, branch.fate)),
            (*answers, *told),
            (*probes, *(("insert closed",) if branch.closes and kind == "insert" else probes_of(seen))),
            cost + branch.cost,
            fresh or branch.fresh,
        )
