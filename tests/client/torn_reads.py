"""Readers of a sharded table that count what is torn, while one client inserts and replicas are killed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count, cycle

import pyarrow as pa

import replitree
from replitree.client import Connection
from replitree.client.cluster import LocalCluster
from replitree.client.sharded.sharded_table import ShardedTable
from replitree.errors import OutcomeUnknown, Unavailable
from replitree.protocol.sharded.cut import CutLevel
from replitree.protocol.sharded.shard_map import Shard
from replitree.storage.schema.row_buckets import split_by_shard

SHARDS, CLIENTS = 4, 3
WHOLE_EVERY = 20
"""Each so many reads, a client reads the rows, too, and not only how many each shard has."""


@dataclass
class Counted:
    """What readers have seen: how many reads were torn, showed rows twice or not at all, or less than an earlier one."""

    reads: int = 0
    torn: int = 0
    twice: int = 0
    back: int = 0
    inserts: int = 0
    kills: int = 0


class TornReads:
    """A table of `SHARDS` shards, its readers, its writer, and what kills its replicas.

    Each insert has one row of each shard, and the next one begins when it was answered.  So all shards have as many rows at
    every cut, and a read that shows other numbers is torn.
    """

    def __init__(self, cluster: LocalCluster, level: CutLevel) -> None:
        self._cluster, self._level = cluster, level
        table = cluster.create_table(
            "torn", "k bigint not null, n bigint not null", order_by="k", shard_by="k", shards=SHARDS
        )
        assert isinstance(table, ShardedTable)
        self._keys = _keys_by_shard(table)
        self._counted, self._lock = Counted(), threading.Lock()

    def count(self, reads: int, live_s: float) -> Counted:
        """Read so many times in all; a replica is killed every `live_s` seconds, and starts again."""
        over = threading.Event()
        names = cycle(self._cluster.names)

        def kill() -> None:
            if over.wait(live_s):
                return
            name = next(names)
            self._cluster.kill(name)
            self._counted.kills += 1
            over.wait(live_s / 4)
            self._cluster.start(name)

        with ExitStack() as stack:
            connections = [stack.enter_context(replitree.connect(self._cluster.folder)) for _ in range(CLIENTS + 1)]
            stack.enter_context(_repeating(over, lambda: self._insert(connections[-1])))
            stack.enter_context(_repeating(over, kill))
            readers = [
                stack.enter_context(_repeating(over, self._reader(each, reads, over))) for each in connections[:-1]
            ]
            assert len(readers) == CLIENTS
            over.wait()
        return self._counted

    def _reader(self, connection: Connection, reads: int, over: threading.Event) -> Callable[[], None]:
        table, seen = connection.table("torn"), [0]
        assert isinstance(table, ShardedTable)

        def read() -> None:
            whole = self._counted.reads % WHOLE_EVERY == 0
            with table.snapshot(level=self._level, timeout_s=60.0, lease_s=60.0 if whole else None) as snapshot:
                shown = [each.rows for each in snapshot.shards]
                numbers = sorted(snapshot.to_arrow()["n"].to_pylist()) if whole else None
            with self._lock:
                counted = self._counted
                counted.reads += 1
                counted.torn += len(set(shown)) > 1
                counted.back += min(shown) < seen[0]
                if numbers is not None:
                    counted.twice += numbers != sorted(number for number in range(shown[0]) for _ in range(SHARDS))
                seen[0] = min(shown)
                if counted.reads >= reads:
                    over.set()

        return read

    def _insert(self, connection: Connection) -> None:
        """Insert one row into each shard, and let two replicas have it before it counts."""
        number = self._counted.inserts
        rows = pa.table({"k": [next(keys) for keys in self._keys.values()], "n": [number] * SHARDS})
        while True:
            try:
                connection.table("torn").insert(rows, token=f"{number}", quorum=2, quorum_timeout_s=2.0)
            except (OutcomeUnknown, Unavailable):
                # Also when its quorum was not reached in time: then it was taken back, and may come again.
                continue
            break
        self._counted.inserts += 1


def _keys_by_shard(table: ShardedTable) -> dict[Shard, Iterator[int]]:
    """Return for each shard keys that are its own, without end."""
    several = 4_096

    def keys(shard: Shard) -> Iterator[int]:
        for first in count(0, several):
            rows = pa.table({"k": range(first, first + several), "n": [0] * several}, schema=table.schema)
            for piece in split_by_shard(rows, table.definition, table.info.map):
                if piece.shard == shard:
                    yield from piece.rows["k"].to_pylist()

    return {shard: keys(shard) for shard in table.info.map.shards}


@contextmanager
def _repeating(over: threading.Event, work: Callable[[], None]) -> Iterator[None]:
    """Do something again and again in a thread; raise what it has raised, which ends all."""
    problems = list[BaseException]()

    def repeat() -> None:
        try:
            while not over.is_set():
                work()
        except BaseException as error:  # noqa: BLE001 - raised by the test
            problems.append(error)
            over.set()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if problems:
        raise problems[0]
