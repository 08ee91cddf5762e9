"""Read levels: what one read costs at each, on a table at rest and on one that is inserted into meanwhile.

Keys::

    idle_<level>_p50_ms, …_p99_ms    a snapshot of a small table, asked of one replica by one client
    busy_<level>_p50_ms, …_p99_ms    the same while another client inserts into the other replica, `RATE` times a second
    busy_inserts_per_s               what that client reached
    zk_requests_per_linearizable     requests of the whole cluster to ZooKeeper for one linearizable read, table at rest

The levels are asked for in turn, so that what else the machine does hits all alike.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from replitree.client import Connection, Table
from replitree.protocol.state.read import READ_LEVELS
from replitree_bench.kit.report import Measured, quantile
from replitree_bench.kit.systems import SCHEMA, make_rows

READS = 300
"""Reads at each level in one round, at rest and busy."""

WARM_UPS = 20
ROWS = 100
RATE = 100.0


class LevelBench:
    """A small table, read at one replica and written at the other.

    Parameters
    ----------
    connection
        A cluster of two replicas.
    reads
        At each level in one round.
    """

    def __init__(self, connection: Connection, reads: int = READS) -> None:
        self._connection = connection
        self._reads = reads
        self._writer: Table = connection.create_table("levels", SCHEMA, order_by="k").replica("r1")
        self._other = Connection(connection.access)  # who knows nothing of what is written
        self._reader = self._other.table("levels").replica("r2")
        self._written = 0
        for _ in range(WARM_UPS):
            self._insert()
            self._read_all(1)

    def close(self) -> None:
        """Close the reader's connection."""
        self._other.close()

    def measure(self, _number: int) -> Measured:
        """Read at every level, at rest and busy."""
        measured = self._timed("idle")
        measured["zk_requests_per_linearizable"] = self._requests()
        with self._inserting() as rate:
            measured |= self._timed("busy")
        return measured | {"busy_inserts_per_s": rate[0]}

    def _timed(self, when: str) -> Measured:
        times = self._read_all(self._reads)
        return {
            f"{when}_{level}_{name}_ms": quantile(times[level], share) * 1000
            for level in READ_LEVELS
            for name, share in (("p50", 0.5), ("p99", 0.99))
        }

    def _read_all(self, reads: int) -> dict[str, list[float]]:
        times: dict[str, list[float]] = {level: [] for level in READ_LEVELS}
        for _ in range(reads):
            for level in READ_LEVELS:
                begin = time.perf_counter()
                self._reader.snapshot(-1, level=level)
                times[level].append(time.perf_counter() - begin)
        return times

    def _insert(self) -> None:
        self._writer.insert(make_rows(self._written * ROWS, ROWS))
        self._written += 1

    @contextmanager
    def _inserting(self) -> Iterator[list[float]]:
        """Insert at a steady rate meanwhile; afterwards the list holds the rate that was reached."""
        over, reached, before, begin = threading.Event(), [0.0], self._written, time.monotonic()

        def work() -> None:
            while not over.wait(max(0.0, begin + (self._written - before) / RATE - time.monotonic())):
                self._insert()

        thread = threading.Thread(target=work, name="writer", daemon=True)
        thread.start()
        try:
            yield reached
        finally:
            over.set()
            thread.join()
            reached[0] = (self._written - before) / (time.monotonic() - begin)

    def _requests(self) -> float:
        """Return what a linearizable read asks of ZooKeeper."""
        before = self._asked()
        for _ in range(self._reads):
            self._reader.snapshot(-1, level="linearizable")
        return (self._asked() - before) / self._reads

    def _asked(self) -> int:
        return sum(sum(server.coordination_requests.values()) for server in self._connection.servers())
