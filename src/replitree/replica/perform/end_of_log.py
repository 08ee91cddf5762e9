"""Questions to coordination that are asked on behalf of many readers, such as that for the end of the log.

Guarantees: what a reader hears was asked of coordination after the reader came.  At any time one question is on its way,
and one more is to follow, which answers all who come meanwhile: so any number of readers costs one question at a time.

The question for the end of the log is a commit and what follows it in the same session (`protocol.state.read`): when the commit
has no answer, or the session changes, it is asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from replitree.errors import CoordinationUnavailable
from replitree.protocol.core.effects import LogIndex
from replitree.protocol.state.read import end_of_log
from replitree.replica.perform.progress import Progress
from replitree.replica.perform.runner import Performer

T = TypeVar("T")

ATTEMPTS_MAX = 3
"""How often a question is asked that ends in doubt, before the readers hear that coordination is not to be had."""


class SharedQuestion(Generic[T]):
    """A question that any number of readers ask at once.  Used from one event loop.

    Parameters
    ----------
    look
        Asks coordination; is called in a thread.
    replica, what
        The replica, and what it asks for, as messages name them.
    """

    def __init__(self, look: Callable[[], T], replica: str, what: str) -> None:
        self._look = look
        self._replica = replica
        self._what = what
        self._running: asyncio.Task[T] | None = None
        self._next: asyncio.Task[T] | None = None

    async def ask(self, wait_s: float) -> T:
        """Return an answer to a question that is asked from now on.

        Parameters
        ----------
        wait_s
            How long to wait, in seconds.

        Raises
        ------
        CoordinationUnavailable
            Coordination does not answer, or not in time.
        """
        if self._next is None:
            self._next = asyncio.create_task(self._after(self._running))
            # Every reader may have given up before a failure: asyncio must not report it as one that was never retrieved.
            self._next.add_done_callback(lambda question: question.cancelled() or question.exception())
        try:
            return await asyncio.wait_for(asyncio.shield(self._next), wait_s)
        except TimeoutError:
            raise CoordinationUnavailable(
                f"replica {self._replica} could not ask coordination for {self._what} in {wait_s:.3g} s"
            ) from None

    async def _after(self, before: asyncio.Task[T] | None) -> T:
        if before is not None and not before.done():
            await asyncio.wait({before})
        # A read that comes after this line needs a newer answer, so it starts another question.
        self._running, self._next = self._next, None
        return await asyncio.to_thread(self._look)


class EndOfLog:
    """Asks for the end of one table's log.  Used from one event loop.

    Parameters
    ----------
    performer
        Asks coordination.
    progress
        Knows the replica's place, below the parent of the log that it has reached.
    """

    def __init__(self, performer: Performer, progress: Progress) -> None:
        self._performer = performer
        self._progress = progress
        self._question = SharedQuestion(self._look, progress.replica.name, "the end of the log")

    async def ask(self, wait_s: float) -> LogIndex:
        """Return an index above everything that is in the log now; `wait_s` and errors as of `SharedQuestion.ask`."""
        return await self._question.ask(wait_s)

    def _look(self) -> LogIndex:
        for _ in range(ATTEMPTS_MAX):
            end = self._performer.look_up(end_of_log(self._progress.replica.table))
            if end is not None:
                return end
        raise CoordinationUnavailable(
            f"coordination did not tell replica {self._progress.replica.name} the end of the log: {ATTEMPTS_MAX} times the"
            " answer was lost, or the session has changed; try again, or ask another replica"
        )
