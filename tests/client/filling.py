"""A client that inserts all the time, for tests in which something happens meanwhile."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

import pyarrow as pa

from replitree.client import Table
from replitree.errors import ReplitreeError
from tests.waiting import wait_for

ROWS = 10
"""Of each insert."""

PAUSE_S = 0.05
"""Between two tries: what happens to the replicas is what is looked at."""


def numbers(first: int, count: int) -> pa.Table:
    """Return rows with consecutive keys."""
    return pa.table({"k": pa.array(range(first, first + count), pa.int64())})


class Filling:
    """Inserts rows into a table, each insert until it is acknowledged, and leaves after an acknowledged one.

    Attributes
    ----------
    inserts
        How many are acknowledged; their keys are 0 to `ROWS` times that.
    """

    def __init__(self, table: Table) -> None:
        self.inserts = 0
        self._table = table
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._fill, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(120.0)
        assert error is not None or not self._thread.is_alive(), "the last insert is not acknowledged in two minutes"

    def await_more(self, count: int, what: str) -> None:
        """Wait until so many more inserts are acknowledged."""
        wanted = self.inserts + count
        wait_for(lambda: self.inserts >= wanted, what, 90.0)

    def _fill(self) -> None:
        while not self._over.wait(PAUSE_S):
            while not self._insert():
                threading.Event().wait(PAUSE_S)
            self.inserts += 1

    def _insert(self) -> bool:
        try:
            self._table.insert(numbers(ROWS * self.inserts, ROWS), token=f"insert-{self.inserts}")
        except ReplitreeError:
            return False  # or its answer was lost: the token tells the next try
        return True
