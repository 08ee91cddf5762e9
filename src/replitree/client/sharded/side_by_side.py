"""Side by side: something is done with several shards at once.

The threads stay from one time to the next, and each has its connections to the replicas: a read over shards opens none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from replitree.errors import SnapshotExpired

S = TypeVar("S")
T = TypeVar("T")

AT_ONCE_MAX = 32
"""Requests to shards that one handle of a table has on their way at once, those of all its callers together."""


class SideBySide:
    """Does something with several shards at once.  Any thread may use it, but nothing that it does may use it again."""

    def __init__(self) -> None:
        self._pool: tuple[int, ThreadPoolExecutor] | None = None

    def each(self, call: Callable[[S], T], shards: Sequence[S], undo: Callable[[T], object] | None = None) -> list[T]:
        """Return what a call returns for each shard, in order, when all calls have ended.

        Parameters
        ----------
        call
            Is called once for each shard; the first one in this thread.
        shards
            The shards.
        undo
            Is called with each result when the call failed for another shard.

        Raises
        ------
        ReplitreeError
            What a call has raised: of several an error that is not `SnapshotExpired`, because another cut does not help then.
        """
        if not shards:
            return []
        futures: list[Future[T]] = [self._threads().submit(call, each) for each in shards[1:]]
        own: Future[T] = Future()
        try:
            own.set_result(call(shards[0]))
        except Exception as error:  # noqa: BLE001 - raised below, when the others have ended
            own.set_exception(error)
        ended = [own, *futures]
        problems = [found for each in ended if (found := each.exception()) is not None]
        if not problems:
            return [each.result() for each in ended]
        if undo is not None:
            for each in ended:
                if each.exception() is None:
                    undo(each.result())
        raise next((each for each in problems if not isinstance(each, SnapshotExpired)), problems[0])

    def _threads(self) -> ThreadPoolExecutor:
        # After a fork the threads are the parent's.
        if self._pool is None or self._pool[0] != os.getpid():
            self._pool = os.getpid(), ThreadPoolExecutor(AT_ONCE_MAX, thread_name_prefix="replitree-shard")
        return self._pool[1]


__all__ = ["AT_ONCE_MAX", "SideBySide"]
