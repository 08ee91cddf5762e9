"""Reads that many wait for and one thread does: each caller gets a result that was read after it asked."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class FreshReads(Generic[T]):
    """Shares reads between threads.

    A read that began before a caller asked does not serve it: the caller waits for the next read, which serves all that
    wait by then.

    Parameters
    ----------
    read
        Reads.  When it raises, the thread that called it raises, and another thread reads.
    """

    def __init__(self, read: Callable[[], T]) -> None:
        self._read = read
        self._turn = threading.Condition()
        self._begun = 0
        self._done = 0
        self._value: T | None = None
        self._is_reading = False

    def read(self) -> T:
        """Return what was read since this was called."""
        with self._turn:
            # The next read, not the one that runs: that one may have begun before this caller asked.
            wanted = self._begun + 1
            while self._is_reading and self._done < wanted:
                self._turn.wait()
            if self._done >= wanted:
                assert self._value is not None
                return self._value
            self._is_reading = True
            self._begun += 1
            number = self._begun
        try:
            value = self._read()
        except BaseException:
            self._end(None, 0)
            raise
        self._end(value, number)
        return value

    def _end(self, value: T | None, number: int) -> None:
        with self._turn:
            self._is_reading = False
            if value is not None:
                self._value, self._done = value, number
            self._turn.notify_all()
