"""Visitors: clients that insert rows of their own and read the table, at once and for as long as the run lasts.

A visitor inserts a few rows, often with a quorum and not always with patience, or reads the whole table at one of the four
levels, at one replica or at any, and goes on at once.  It tries an insert whose outcome is unknown again, or leaves it alone;
it mostly leaves one that failed, so that a read that shows it is wrong.
"""

from __future__ import annotations

import random
import threading
import traceback
from collections import deque
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from replitree.client.connection import Connection
from replitree.client.sharded.sharded_table import ShardedTable
from replitree.client.table import Table
from replitree.errors import (
    OutcomeUnknown,
    QuorumNotReached,
    SnapshotExpired,
    StoreError,
    TooFewReplicas,
    Unavailable,
)

SCHEMA = "id bigint not null, shelf int not null"
"""Rows of an insert lie on one shelf or two; a shelf is a partition."""

IDS = 1_000_000_000
"""Each visitor has so many ids of its own."""

INSERT_SHARE = 0.5
ROWS_MAX = 4
QUORUMS: tuple[tuple[int | str | None, int], ...] = ((None, 35), (1, 5), (2, 25), ("majority", 15), (3, 12), ("all", 8))
PATIENCE_S = (0.1, 0.5, 2.0, 4.0)
LEVELS = (("eventual", 20), ("sequential", 30), ("linearizable", 35), ("as_of", 15))
AGAIN_SHARE = {OutcomeUnknown: 0.6, QuorumNotReached: 0.1, TooFewReplicas: 0.1}
"""How often an insert that ended so is tried again, with its token."""

TRIES_MAX = 4
INSERT_S, READ_S = (1.0, 3.0, 6.0), (1.0, 3.0)
PAUSE_S = 0.05
"""Of a visitor that no replica has answered."""

REMEMBERED = 20
"""So many positions of its last reads a visitor may ask for again."""

EXPECTED = (OutcomeUnknown, Unavailable, SnapshotExpired, StoreError)


class Visitor:
    """One client.

    Parameters
    ----------
    number
        Its number among all.
    seed
        What it does is drawn from this and its number.
    table
        Its table, which records.
    replicas
        The names of the replicas, at which it asks by name now and then.
    """

    def __init__(self, number: int, seed: int, table: Table, replicas: Sequence[str]) -> None:
        self._random = random.Random(f"{seed}/visitor-{number}")  # noqa: S311 - repeatable is what it must be
        self._number = number
        # A sharded table is not read at one replica.
        self._is_sharded = isinstance(table, ShardedTable)
        ones: list[Table] = [] if self._is_sharded else [table.replica(name) for name in replicas]
        self._handles = (table, *ones)
        self._next = number * IDS
        self._seen: deque[int] = deque(maxlen=REMEMBERED)

    def act(self) -> bool:
        """Do something; False when no replica answered."""
        if self._random.random() < INSERT_SHARE:
            return self._insert()
        (level,) = self._random.choices([each for each, _ in LEVELS], [weight for _, weight in LEVELS])
        as_of = self._random.choice(self._seen) if level == "as_of" and self._seen else None
        if self._is_sharded:
            level = "linearizable" if level == "linearizable" else "consistent"
        elif level == "as_of":
            level = "sequential"
        asked: dict[str, Any] = {"as_of": as_of} if as_of is not None else {"level": level}
        try:
            self._somewhere().to_arrow(["id"], timeout_s=self._random.choice(READ_S), **asked)
        except EXPECTED:
            return False
        return True

    def _somewhere(self) -> Table:
        return self._random.choice(self._handles)

    def _insert(self) -> bool:
        ids = range(self._next, self._next + self._random.randint(1, ROWS_MAX))
        self._next = ids.stop
        shelves = 2 if self._random.random() < 0.25 else 1
        data, token = rows(ids, shelves), f"v{self._number}-{ids.start}"
        (quorum,) = self._random.choices([each for each, _ in QUORUMS], [weight for _, weight in QUORUMS])
        patience_s = None if quorum is None else self._random.choice(PATIENCE_S)
        for _ in range(TRIES_MAX):
            try:
                done = self._somewhere().insert(
                    data, token, quorum=quorum, quorum_timeout_s=patience_s, timeout_s=self._random.choice(INSERT_S)
                )
            except EXPECTED as error:
                if self._random.random() >= AGAIN_SHARE.get(type(error), 0.0):
                    return isinstance(error, QuorumNotReached)
            else:
                if done.index is not None:
                    self._seen.append(done.index)
                return True
        return False


def rows(ids: range, shelves: int) -> pa.Table:
    """Return rows of the table, on so many shelves."""
    return pa.table({"id": pa.array(ids, pa.int64()), "shelf": pa.array([row % shelves for row in ids], pa.int32())})


class Crowd:
    """Visitors that act at the same time, a thread each.

    Parameters
    ----------
    connections
        They record; visitor number k uses connection k modulo their count.
    table, replicas, seed
        As of `Visitor`; the table by its name.
    numbers
        The numbers of the visitors.
    """

    def __init__(
        self, connections: Sequence[Connection], table: str, replicas: Sequence[str], seed: int, numbers: range
    ) -> None:
        self._connections, self._table, self._replicas, self._seed = connections, table, replicas, seed
        self._stop, self._failed = threading.Event(), threading.Event()
        self._threads = [threading.Thread(target=self._visit, args=(number,)) for number in numbers]

    @property
    def has_failed(self) -> bool:
        """Whether a visitor met an error that should never happen; it is printed, and all visitors end."""
        return self._failed.is_set()

    def start(self) -> None:
        """Let them act."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let each begin nothing new.  A handler of a signal may call it."""
        self._stop.set()

    def finish(self) -> None:
        """Wait until each has ended what it has begun."""
        for thread in self._threads:
            thread.join()

    def _visit(self, number: int) -> None:
        try:
            table = self._connections[number % len(self._connections)].table(self._table)
            visitor = Visitor(number, self._seed, table, self._replicas)
            while not self._stop.is_set():
                if not visitor.act():
                    self._stop.wait(PAUSE_S)
        except BaseException:  # noqa: BLE001 - whatever it is, the run has failed
            traceback.print_exc()
            self._failed.set()
            self._stop.set()


__all__ = ["SCHEMA", "Crowd", "Visitor", "rows"]
