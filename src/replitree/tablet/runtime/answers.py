"""Commands that wait to be committed, and the futures on which their clients wait."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures._base import FINISHED, PENDING
from typing import Any, TypeAlias, TypeVar

import msgspec
from typing_extensions import override

from replitree.errors import ReplitreeError

T = TypeVar("T")


class Shared(Future[T]):
    """The future on which a client waits.  It can't be cancelled: the command may have been sent.

    Those that come together share a condition: objects that live long, and are many, cost more than a needless wake.  So
    a thread may be woken for another one's answer, and waits on.

    Parameters
    ----------
    turn
        The condition.
    """

    def __init__(self, turn: threading.Condition) -> None:
        # What `Future.__init__` sets, without a condition of each future's own.
        self._condition = turn
        self._state, self._result, self._exception = PENDING, None, None
        self._waiters: list[Any] = []
        self._done_callbacks: list[Any] = []

    @override
    def result(self, timeout: float | None = None) -> T:
        """Return the answer, or raise the error, as soon as there is one; `TimeoutError` after so many seconds."""
        if self._state == FINISHED and self._exception is None:
            # Without the lock: `Future` sets the state after the result.
            found: Any = self._result
            return found  # type: ignore[no-any-return]
        if not self.done():
            with self._condition:
                # Woken for another's answer, a thread waits on: the condition is shared.
                self._condition.wait_for(self.done, timeout)
        return super().result(0)

    @override
    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error as soon as it is known, None when there is an answer; `TimeoutError` after so many seconds."""
        if not self.done():
            with self._condition:
                self._condition.wait_for(self.done, timeout)
        return super().exception(0)

    @override
    def cancel(self) -> bool:
        """Do nothing."""
        return False


class CommandAnswer(Shared[bytes]):
    """The answer to one command; of an entry that is sent without one, no bytes."""


class Answers(Shared[list[bytes]]):
    """The answers to commands that go together, in their order."""


class WaitingCommands(msgspec.Struct, frozen=True):
    """Commands that go together, and the future on which their client waits.

    None means that an entry is to be sent, though it says nothing.
    """

    commands: Sequence[bytes]
    bytes: int
    future: CommandAnswer | Answers

    @property
    def weight(self) -> int:
        """How many commands it counts for."""
        return len(self.commands) or 1


Telling: TypeAlias = "tuple[Future[Any], list[bytes] | ReplitreeError]"
"""A future and its answers, to be set without the lock."""


def tell(telling: Sequence[Telling]) -> None:
    """Set the answers of futures."""
    for future, answers in telling:
        if isinstance(answers, ReplitreeError):
            future.set_exception(answers)
        elif isinstance(future, Answers):
            future.set_result(answers)
        else:
            future.set_result(answers[0] if answers else b"")
