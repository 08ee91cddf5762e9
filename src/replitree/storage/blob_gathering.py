"""The replies to one question to the members of a blob group, and the members that are asked last.

Who is alone with its question to a group asks only as many members as it needs; the others, the *spares*, are asked as soon as
those are done, or one of them is not, or they take longer than usual.  So a lone commit does not wait for its own third copy on
the same disk, and a slow member is asked last.  What is acknowledged is what it always was: enough members are done.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from replitree.tablet.member import Done, Reply, Request, Write

USUAL_WEIGHT = 8
"""A new time counts as much as one of so many."""

PATIENCE_NS = 1_000_000
"""So long, and twice the usual time, those that are asked first are waited for, before the spares are asked, too."""


class Usual:
    """How long each member takes for a write, in nanoseconds; 0: not known."""

    def __init__(self, members: int) -> None:
        self._ns = [0] * members

    def note(self, number: int, took_ns: int) -> None:
        """Take that a member took so long."""
        known = self._ns[number]
        self._ns[number] = took_ns if not known else known + (took_ns - known) // USUAL_WEIGHT

    def in_order(self, numbers: Sequence[int]) -> list[int]:
        """Return members in the order in which to ask: by number, those that are twice as slow as the quickest last."""
        slow_ns = 2 * min(self._ns[number] for number in numbers)
        return sorted(numbers, key=lambda number: self._ns[number] > slow_ns > 0)

    def patience_s(self, numbers: Sequence[int]) -> float:
        """Return how long members are waited for before others are asked, in seconds."""
        return (PATIENCE_NS + 2 * max(self._ns[number] for number in numbers)) / 1e9


class Gathering:
    """The replies to one question, as they come: done when so many are done as are wanted, or all have answered.

    Parameters
    ----------
    asked
        How many members are asked, the spares included.
    wanted
        How many must be done before it is worth going on.
    usual
        Who learns how long they took.
    """

    def __init__(self, asked: int, wanted: int, usual: Usual, members: int) -> None:
        self.replies: list[Reply | None] = [None] * members
        self.heard = 0
        self._asked, self._wanted = asked, wanted
        self._usual = usual
        self._lock = threading.Lock()
        self._latch = threading.Lock()
        self._latch.acquire()
        self._spares: tuple[Callable[[], None], ...] = ()
        self._asking_spares = threading.RLock()

    def keep(self, spares: Sequence[Callable[[], None]]) -> None:
        """Take what asks the spares; before anybody else is asked."""
        self._spares = tuple(spares)

    def ask_spares(self) -> None:
        """Ask the spares, unless they were asked; after this they certainly are."""
        with self._asking_spares:
            spares, self._spares = self._spares, ()
            for ask in spares:
                ask()

    def take(self, number: int, begin_ns: int, reply: Reply) -> None:
        """Take the reply of a member that was asked at a time of `time.perf_counter_ns`."""
        with self._lock:
            was_over = self._is_over()
            self.replies[number] = reply
            self.heard += 1
            self._wanted -= isinstance(reply, Done)
            is_over = self._is_over()
        if is_over and not was_over:
            self._latch.release()
        if self._spares and (is_over or not isinstance(reply, Done)):
            self.ask_spares()
        if isinstance(reply, Done):
            self._usual.note(number, time.perf_counter_ns() - begin_ns)

    def _is_over(self) -> bool:
        return self._wanted <= 0 or self.heard == self._asked

    def wait(self, patience_s: float) -> bool:
        """Wait until it is over; return whether it is."""
        return self._latch.acquire(timeout=patience_s)


def can_spare(requests: Sequence[Request | None]) -> bool:
    """Whether it is enough that some of these are carried out soon: plain writes, which any member may get late."""
    return all(isinstance(request, Write) and request.restorer is None for request in requests)
