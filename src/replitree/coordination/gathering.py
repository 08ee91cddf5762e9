"""What several threads ask coordination at the same moment goes in one request.

A server has a puller and executors for each of its tables, and one commit may append to the logs of many of these.  Then all of
them read and commit at the same moment.  ZooKeeper and the client do the work of a few requests for them, and not of one for
each.

A thread that finds fewer than `AT_ONCE` requests on their way sends its own at once: nothing waits on an idle server.  What
comes meanwhile waits, and goes together when one of these is answered.  The thread whose turn it is sends for the others.

Guarantees of `gathered_commits`: each commit ends as if it had been sent by itself.

============================  ==============================================================================================
the one that was sent         the commits that it is made of
============================  ==============================================================================================
applied                       all are applied, in the order in which they came
refused                       the one whose operation was refused is refused; the others are sent again, without it
unknown                       all are unknown: all of them took place, or none did
an error                      each is sent by itself, and has an error of its own
============================  ==============================================================================================

Absent on purpose: commits whose transaction number says anything, such as those that append to a log.  Two that go together
have one number.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from replitree.coordination.port import Coordination, commit_bytes
from replitree.protocol.core import effects as fx

A = TypeVar("A")
T = TypeVar("T")

AT_ONCE = 2
"""Requests on their way at once.  The second one is there when the server has done the first."""

COMMIT_BYTES_MAX = 256 << 10
"""Bytes of commits that go together; a larger one goes by itself."""


class _Waiting(Generic[A, T]):
    """What a thread asks.  When its `turn` comes, it sends `group`, or, if that is empty, has its answer."""

    __slots__ = ("answer", "asked", "error", "group", "turn")

    def __init__(self, asked: A) -> None:
        self.asked = asked
        self.turn = threading.Lock()
        self.turn.acquire()
        self.group: list[_Waiting[A, T]] = []
        self.answer: T
        self.error: BaseException | None = None


class Gathering(Generic[A, T]):
    """Asks for many threads, several of them at a time.

    Parameters
    ----------
    together
        Asks at once for what several threads ask; returns an answer for each, in order.  If it raises, each is asked by itself.
    size, size_max
        Measures what a thread asks; together they are at most so large, unless a single one is larger.
    """

    def __init__(self, together: Callable[[list[A]], Sequence[T]], size: Callable[[A], int], size_max: int) -> None:
        self._together = together
        self._size, self._size_max = size, size_max
        self._lock = threading.Lock()
        self._waiting: deque[_Waiting[A, T]] = deque()
        self._on_their_way = 0

    @property
    def waiting(self) -> int:
        """How many threads wait for their turn."""
        return len(self._waiting)

    def ask(self, asked: A) -> T:
        """Ask, maybe together with other threads.  Raises what `together` raises for this alone."""
        mine: _Waiting[A, T] = _Waiting(asked)
        with self._lock:
            if self._on_their_way < AT_ONCE:
                self._on_their_way += 1
                mine.group = [mine]
            else:
                self._waiting.append(mine)
        if not mine.group:
            mine.turn.acquire()
        if mine.group:
            try:
                self._send(mine.group)
            finally:
                self._hand_over()
                for each in mine.group[1:]:
                    each.turn.release()
        if mine.error is not None:
            raise mine.error
        return mine.answer

    def _send(self, group: list[_Waiting[A, T]]) -> None:
        try:
            answers = self._together([each.asked for each in group])
        except BaseException as error:  # noqa: BLE001 - the thread that has asked raises it
            for each in group:
                each.error = error
            if len(group) > 1 and isinstance(error, Exception):
                for each in group:
                    each.error = None
                    self._send([each])
            return
        for each, answer in zip(group, answers, strict=True):
            each.answer = answer

    def _hand_over(self) -> None:
        """Let the thread that waits longest send, for as many others as one request takes."""
        group, size = list[_Waiting[A, T]](), 0
        with self._lock:
            while self._waiting:
                size += self._size(self._waiting[0].asked)
                if group and size > self._size_max:
                    break
                group.append(self._waiting.popleft())
            if not group:
                self._on_their_way -= 1
        if group:
            group[0].group = group
            group[0].turn.release()


def gathered_commits(coordination: Coordination) -> Gathering[fx.Commit, fx.Committed]:
    """Return what performs commits of many threads at a session, several at a time."""

    def together(commits: list[fx.Commit]) -> list[fx.Committed]:
        outcomes: dict[int, fx.Committed] = {}
        while left := [number for number in range(len(commits)) if number not in outcomes]:
            outcome = coordination.perform(fx.Commit(*(each for number in left for each in commits[number].operations)))
            match outcome:
                case fx.Applied(created):
                    paths = iter(created)
                    for number in left:
                        creates = sum(isinstance(each, fx.Create) for each in commits[number].operations)
                        outcomes[number] = fx.Applied(tuple(next(paths) for _ in range(creates)))
                case fx.Refused(operation):
                    # By identity: commits of one replica begin with equal checks, and the first of these is the refused one.
                    refused = (
                        number for number in left if any(operation is each for each in commits[number].operations)
                    )
                    outcomes[next(refused)] = outcome
                case fx.Unknown():
                    outcomes |= dict.fromkeys(left, outcome)
        return [outcomes[number] for number in range(len(commits))]

    return Gathering(together, commit_bytes, COMMIT_BYTES_MAX)


__all__ = ["Gathering", "gathered_commits"]
