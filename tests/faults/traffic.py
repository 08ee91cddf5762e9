"""A process of clients that write down what they ask and hear: ``python -m tests.faults.traffic ORDER``.

Each client is a thread.  It inserts a few rows of its own, often with a quorum and not always with patience, or reads the whole
table at one of the four levels, at one replica or at any, and goes on at once.  An insert whose outcome is unknown is tried
again, or left alone; one that failed mostly stays so, so that a read that shows it is wrong.

It ends when it is told to (SIGTERM), with 0; a client that met something that should never happen ends it with 1.
"""

from __future__ import annotations

import random
import signal
import sys
import threading
import traceback
from collections import deque
from pathlib import Path

import msgspec
import pyarrow as pa

from replitree.client.connection import Connection, connect
from replitree.client.table import Table
from replitree.errors import (
    OutcomeUnknown,
    QuorumNotReached,
    ReplitreeError,
    SnapshotExpired,
    StoreError,
    TooFewReplicas,
    Unavailable,
)
from replitree.wire.history_recorder import Recorder
from tests.faults.skew import Skew

SCHEMA = "id bigint not null, shelf int not null"
"""Rows of an insert lie on one shelf or two; a shelf is a partition."""

IDS = 1_000_000_000
"""Each client has so many ids of its own."""

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
"""Of a client to whom nobody listens."""

REMEMBERED = 20
"""So many positions of its last reads a client may ask for again."""

EXPECTED = (OutcomeUnknown, Unavailable, SnapshotExpired, StoreError)


class Order(msgspec.Struct, frozen=True):
    """What a process of clients is to do.

    Attributes
    ----------
    url, token_file, table, replicas
        Of the cluster.
    seed, first, clients
        The number of its first client among all, and how many it has; what they do is drawn from the seed.
    folder
        Where histories go: one for each connection.
    skew
        How wrong its clock is.
    """

    url: str
    token_file: str
    table: str
    replicas: tuple[str, ...]
    seed: int
    first: int
    clients: int
    folder: str
    skew: Skew = Skew()


class Visitor:
    """One client.

    Parameters
    ----------
    number, order
        Which one, of which process.
    table
        Its table, which records.
    """

    def __init__(self, number: int, order: Order, table: Table) -> None:
        self._random = random.Random(f"{order.seed}/visitor-{number}")
        self._number = number
        self._handles = (table, *(table.replica(name) for name in order.replicas))
        self._next = number * IDS
        self._seen: deque[int] = deque(maxlen=REMEMBERED)

    def act(self) -> bool:
        """Do something; False when nobody listened."""
        if self._random.random() < INSERT_SHARE:
            return self._insert()
        return self._read()

    def _somewhere(self) -> Table:
        return self._random.choice(self._handles)

    def _insert(self) -> bool:
        ids = range(self._next, self._next + self._random.randint(1, ROWS_MAX))
        self._next = ids.stop
        shelves = 2 if self._random.random() < 0.25 else 1
        data, token = rows(ids, shelves), f"v{self._number}-{ids.start}"
        quorum, patience_s = self._quorum()
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

    def _quorum(self) -> tuple[int | str | None, float | None]:
        (quorum,) = self._random.choices([each for each, _ in QUORUMS], [weight for _, weight in QUORUMS])
        return quorum, None if quorum is None else self._random.choice(PATIENCE_S)

    def _read(self) -> bool:
        (level,) = self._random.choices([each for each, _ in LEVELS], [weight for _, weight in LEVELS])
        as_of = self._random.choice(self._seen) if level == "as_of" and self._seen else None
        asked = {"as_of": as_of} if as_of is not None else {"level": "sequential" if level == "as_of" else level}
        try:
            self._somewhere().to_arrow(["id"], timeout_s=self._random.choice(READ_S), **asked)
        except EXPECTED:
            return False
        return True


def rows(ids: range, shelves: int) -> pa.Table:
    """Return rows of the table, on so many shelves."""
    return pa.table({"id": pa.array(ids, pa.int64()), "shelf": pa.array([row % shelves for row in ids], pa.int32())})


class Crowd:
    """All clients of a process."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._stop = threading.Event()
        self._failed = threading.Event()

    def run(self) -> int:
        """Let them act until they are told to stop; return the exit status."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stop.set())
        connections = [self._connect(number) for number in range(2)]
        threads = [
            threading.Thread(target=self._visit, args=(self._order.first + number, connections[number % 2]))
            for number in range(self._order.clients)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for connection in connections:
            connection.close()
        return 1 if self._failed.is_set() else 0

    def _connect(self, number: int) -> Connection:
        file = Path(self._order.folder) / f"clients-{self._order.first}-{number}.jsonl"
        name = f"p{self._order.first}.{number}"
        return connect(self._order.url, token_file=self._order.token_file, record=Recorder(file, name=name))

    def _visit(self, number: int, connection: Connection) -> None:
        try:
            visitor = Visitor(number, self._order, connection.table(self._order.table))
            while not self._stop.is_set():
                if not visitor.act():
                    self._stop.wait(PAUSE_S)
        except BaseException:  # noqa: BLE001 - whatever it is, the run has failed
            traceback.print_exc()
            self._failed.set()
            self._stop.set()


def main(path: str) -> int:
    """Do what a file says."""
    order = msgspec.json.decode(Path(path).read_bytes(), type=Order)
    order.skew.install()
    try:
        return Crowd(order).run()
    except ReplitreeError:
        traceback.print_exc()
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
