"""The driver: a thread of a replica runs the stages of `replitree.protocol.program` with it.

It performs the protocol's effects with the replica's `Performer`; effects on the memory of the process it hands to the thread.
Explorer and simulator perform the same stages on their own memory.

Absent on purpose: what a thread does when a stage raises.  It begins anew with the thread's first stage, after a pause.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from replitree.protocol.core.effects import Effect
from replitree.protocol.program.stages import AwaitPull, AwaitWork, End, MemoryEffect, Stage, Then
from replitree.replica.perform.runner import Performer

_NO_STAGES: Mapping[str, Callable[..., Stage]] = {}


class Driver:
    """Runs the stages of one thread.

    Parameters
    ----------
    performer
        Performs the effects of the protocol.
    remember
        Performs an effect on memory; returns its outcome.
    perform
        Performs an effect of the protocol instead of the performer, and calls it.
    """

    def __init__(
        self,
        performer: Performer,
        remember: Callable[[MemoryEffect], object],
        perform: Callable[[Effect], object] | None = None,
    ) -> None:
        self._performer = performer
        self._remember = remember
        self._perform_instead = perform

    def run(self, then: Then, instead: Mapping[str, Callable[..., Stage]] = _NO_STAGES) -> Then | End | None:
        """Run one stage to its end; return what follows, or what it found out.

        Parameters
        ----------
        then
            The stage and its arguments.
        instead
            Stages that stand in for others, by name: those of a table on an object store.

        Raises
        ------
        ReplitreeError, OSError
            An effect could not be performed.  The stage was closed, as a crash would close it.
        """
        stage: Callable[..., Stage] = instead.get(then.stage.__name__, then.stage)
        running = stage(*then.arguments)
        try:
            first = next(running)
            # While a thread waits, the table may get an object store: the performer wraps only what follows.
            is_over = isinstance(first, AwaitPull | AwaitWork)
            outcome = self._remember(first) if is_over else None
            return self._performer.run(_rest(running, first, outcome, is_over=is_over), self._perform)
        finally:
            running.close()

    def finish(self, then: Then) -> Any:
        """Run a stage and all that follow it; return what the last one found out.  Raises as `run`."""
        following: Then | End | None = then
        while isinstance(following, Then):
            following = self.run(following)
        return None if following is None else following.outcome

    def _perform(self, effect: Any) -> object:
        match effect:
            case MemoryEffect():
                return self._remember(effect)
        return (self._perform_instead or self._performer.perform)(effect)


def _rest(running: Stage, first: Any, outcome: object, *, is_over: bool) -> Stage:
    """Go on with a stage that stands at its first effect, which has ended with `outcome` if it is over."""
    if not is_over:
        outcome = yield first
    try:
        while True:
            outcome = yield running.send(outcome)
    except StopIteration as stop:
        following: Then | End | None = stop.value
        return following


__all__ = ["Driver"]
