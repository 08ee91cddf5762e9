"""The replies to one question to the members of a blob group, and the members that are asked last.

While a question is the only one to its group, it goes only to as many members as it needs.  The others, the *spares*, are asked
as soon as the first ones are done, or one of them has failed, or they take longer than usual.
So a lone commit does not wait for its own third copy on the same disk, and a slow member is asked last.  The rule of
acknowledgement is unchanged: enough members are done.

A read is answered when it has as many whole answers as it needs, because those prove their result.  It waits a short time for
the others, because with them more is restored.  An answer with damage proves less, so a read that gets one waits for all.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence

from replitree.tablet.group.effects import Overtaken
from replitree.tablet.group.member import BarrierIs, Contents, Done, FenceIs, Reply, Request, Write

USUAL_WEIGHT = 8
"""A new time counts as much as one of so many."""

PATIENCE_NS = 1_000_000
"""Nanoseconds, besides twice the usual time, that a question waits for the members it asked first before it asks the spares."""


class Usual:
    """How long each member takes for a write, in nanoseconds; 0: not known."""

    def __init__(self, members: int) -> None:
        self._ns = [0] * members

    def note(self, number: int, took_ns: int) -> None:
        """Take that a member took so long."""
        known = self._ns[number]
        self._ns[number] = took_ns if not known else known + (took_ns - known) // USUAL_WEIGHT

    def in_order(self, numbers: Collection[int]) -> list[int]:
        """Return members in the order in which to ask: by number, those that are twice as slow as the quickest last."""
        took_ns = [self._ns[number] for number in numbers]
        slow_ns = 2 * min(took_ns)
        if not slow_ns or max(took_ns) <= slow_ns:
            return list(numbers)
        return sorted(numbers, key=lambda number: self._ns[number] > slow_ns)

    def patience_s(self, numbers: Sequence[int]) -> float:
        """Return how long members are waited for before others are asked, in seconds."""
        return (PATIENCE_NS + 2 * max([self._ns[number] for number in numbers])) / 1e9


class Gathering:
    """The replies to one question, as they come.

    It is *over* when so many are done as are wanted, or have said their fence, or all have answered.  It is *told* when it is
    over, or so many have answered whole.

    Parameters
    ----------
    asked
        How many members are asked, the spares included.
    wanted
        How many must have answered well before it is worth going on.
    usual
        Records how long they took.
    members
        How many there are.

    Attributes
    ----------
    replies
        Of each member; None: it has not answered.
    heard
        How many have answered.
    """

    def __init__(self, asked: int, wanted: int, usual: Usual, members: int) -> None:
        self.replies: list[Reply | None] = [None] * members
        self.heard = 0
        self._asked, self._wanted = asked, wanted
        self._whole_wanted: int | None = wanted
        self._has_told = False
        self._begin_s = self._last_s = time.monotonic()
        self._usual = usual
        self._lock = threading.Lock()
        self._latch = threading.Lock()
        # Taken from the start, and released by the answer that tells: a lock is cheaper than a condition.
        self._latch.acquire()
        self._asks_spares: Callable[[], None] | None = None
        self._asking_spares = threading.RLock()

    def keep(self, asks_spares: Callable[[], None]) -> None:
        """Take the function that asks the spares, before any member is asked."""
        self._asks_spares = asks_spares

    def ask_spares(self) -> None:
        """Ask the spares, unless they were asked; after this they certainly are."""
        with self._asking_spares:
            # Under the lock, and once: two answers may come at the same time.
            ask, self._asks_spares = self._asks_spares, None
            if ask is not None:
                ask()

    def take(self, number: int, begin_ns: int, reply: Reply) -> None:
        """Take the reply of a member that was asked at a time of `time.perf_counter_ns`."""
        is_done = isinstance(reply, Done)
        if is_done:
            self._usual.note(number, time.perf_counter_ns() - begin_ns)
        with self._lock:
            self.replies[number] = reply
            self.heard += 1
            self._last_s = time.monotonic()
            if is_done or isinstance(reply, FenceIs):
                self._wanted -= 1
            elif self._whole_wanted is not None and self._whole_wanted > 0:
                if isinstance(reply, Contents) and (reply.damaged or reply.doubts):
                    # What this member has can't be told from its answer alone: all answers are wanted.
                    self._whole_wanted = None
                elif isinstance(reply, Contents | BarrierIs | Overtaken):
                    self._whole_wanted -= 1
            tells = not self._has_told and (
                self._is_over() or (self._whole_wanted is not None and self._whole_wanted <= 0)
            )
            self._has_told |= tells
        if tells:
            self._latch.release()
        # The members that were asked first may not be enough any more.
        if not is_done:
            self.ask_spares()

    def _is_over(self) -> bool:
        return self._wanted <= 0 or self.heard == self._asked

    @property
    def age_s(self) -> float:
        """How long ago it was asked, in seconds."""
        return time.monotonic() - self._begin_s

    @property
    def quiet_s(self) -> float:
        """The time since the last answer, in seconds."""
        return time.monotonic() - self._last_s

    def wait(self, patience_s: float) -> bool:
        """Wait until enough members have answered; return whether they have."""
        return self._latch.acquire(timeout=patience_s)

    def wait_for_rest(self, patience_s: float) -> None:
        """After `wait`: wait for the other answers, too."""
        with self._lock:
            self._whole_wanted = None
            self._has_told = self._is_over()
        if not self._has_told and patience_s > 0:
            self._latch.acquire(timeout=patience_s)


def can_spare(requests: Iterable[Request]) -> bool:
    """Whether it is enough that some of these are carried out soon: plain writes, which any member may get late."""
    return all(isinstance(request, Write) and request.restorer is None for request in requests)
