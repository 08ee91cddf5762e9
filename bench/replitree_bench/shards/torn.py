"""Inserts over shards while servers are killed: how many are torn, doubled or lost; ours beside ClickHouse's Distributed.

Two shards with two servers each.  Writers insert blocks of `ROWS` rows, of which each shard gets some; a server is killed every
few seconds and starts again; readers read the last blocks all the time, and in the end all, and count the rows of each block.
A block whose rows a read shows in part is *torn*, one with too many rows is *doubled*.  Of the writers half repeat a block
until it is acknowledged, the others give up when they hear an error, as a client does that dies.

Keys::

    inserts, acknowledged, kills, reads    how many there were
    torn_reads                             reads that showed a part of some block
    torn_seen, doubled_seen                blocks that some read showed in part, or doubled
    torn_left, doubled_left                blocks that are so when every server is up and nothing changes any more
    lost                                   blocks that were acknowledged, and of which rows are missing then
    p50_ms, p99_ms                         latency of an acknowledged block, with its repetitions

Both get the same blocks, kills and writers from one seed.  ClickHouse has ``insert_distributed_sync=1`` and
``internal_replication``; a repeated block is the same one, so its shards may recognise what they have.
"""

from __future__ import annotations

import http.client
import math
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from replitree.errors import ReplitreeError
from replitree_bench.kit.report import Measured, quantile

if TYPE_CHECKING:
    from replitree.client import LocalCluster
    from replitree_bench.kit.clickhouse import ClickHouse

SHARDS, REPLICAS = 2, 2
SERVERS = SHARDS * REPLICAS
ROWS = 20
WRITERS, READERS = 8, 1
PAUSE_S = 0.01
"""How long a writer rests after a block, in seconds."""

WINDOW = 2_000
"""The readers read the last blocks, so many, while others are written."""

SECONDS = 30.0
KILL_EVERY_S = 6.0
DOWN_S = 1.0
"""How long a killed server is away, in seconds."""

REPEAT_S_MAX = 120.0
QUIET_S = 3.0
QUIET_S_MAX = 600.0
INSERT_S = 20.0

FAILURES = (ReplitreeError, OSError, http.client.HTTPException)


@dataclass(frozen=True, slots=True)
class Limits:
    """How long writers write, in seconds, and how many blocks: whatever comes first."""

    seconds: float = math.inf
    blocks: int = sys.maxsize

    @classmethod
    def given(cls, seconds: float | None, blocks: int | None) -> Limits:
        """Return what was asked for: without a number of blocks `SECONDS`, if no other time was said."""
        if blocks is None:
            return cls(SECONDS if seconds is None else seconds)
        return cls(math.inf if seconds is None else seconds, blocks)


class ShardedSystem(Protocol):
    """What this workload asks of a system; its servers are numbered from 0."""

    def create(self) -> None:
        """Make the empty table."""

    def insert(self, block: int, attempt: int) -> None:
        """Insert one block, at some server; return when it is acknowledged."""

    def rows_by_block(self, number: int, first: int) -> Mapping[int, int]:
        """Read all blocks from a first one on at once, at some server; return how many rows each has."""

    def is_level(self) -> bool:
        """Whether every server has all that its shard's replicas have replicated."""

    def kill(self, server: int) -> None:
        """Kill a server."""

    def start(self, server: int) -> None:
        """Start it again."""


class OurShards:
    """A sharded table of ours, each shard with servers of its own."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster

    def create(self) -> None:
        """See `ShardedSystem`."""
        schema = "k bigint not null, b bigint not null"
        self._table = self._cluster.create_table("torn", schema, order_by="k", shard_by="k")

    def insert(self, block: int, attempt: int) -> None:
        """See `ShardedSystem`."""
        del attempt
        keys = list(range(block * ROWS, (block + 1) * ROWS))
        self._table.insert({"k": keys, "b": [block] * ROWS}, token=f"block-{block}", timeout_s=INSERT_S)

    def rows_by_block(self, number: int, first: int) -> Mapping[int, int]:
        """See `ShardedSystem`."""
        del number
        found = self._table.to_arrow(["b"], where=f"k >= {first * ROWS}")
        return Counter(found.column("b").to_pylist())

    def is_level(self) -> bool:
        """See `ShardedSystem`."""
        shards = self._cluster.status("torn").tables
        return all(each.state == "active" and each.lag == 0 for shard in shards for each in shard.replicas)

    def kill(self, server: int) -> None:
        """See `ShardedSystem`."""
        self._cluster.kill(self._cluster.names[server])

    def start(self, server: int) -> None:
        """See `ShardedSystem`."""
        self._cluster.start(self._cluster.names[server])


class TheirShards:
    """A Distributed table of ClickHouse over ReplicatedMergeTree tables."""

    def __init__(self, cluster: ClickHouse) -> None:
        self._cluster = cluster

    def create(self) -> None:
        """See `ShardedSystem`."""
        self._cluster.create_distributed("torn", f"/clickhouse/tables/torn-{time.time_ns()}")

    def insert(self, block: int, attempt: int) -> None:
        """See `ShardedSystem`."""
        rows = f"SELECT number + {block * ROWS}, {block} FROM numbers({ROWS})"  # noqa: S608 - numbers of ours
        self._cluster.query(self._server(block + attempt), f"INSERT INTO torn {rows}", insert_distributed_sync=1)

    def rows_by_block(self, number: int, first: int) -> Mapping[int, int]:
        """See `ShardedSystem`."""
        sql = f"SELECT b, count() FROM torn WHERE k >= {first * ROWS} GROUP BY b"  # noqa: S608 - a number of ours
        found = self._cluster.query(self._server(number), sql)
        return {int(block): int(rows) for block, rows in (line.split() for line in found.splitlines())}

    def is_level(self) -> bool:
        """See `ShardedSystem`."""
        # After a restart a replica waits until its last session has ended; until then its delay is counted from 1970.
        sql = f"SELECT absolute_delay + queue_size + is_readonly + {REPLICAS} - active_replicas FROM system.replicas"  # noqa: S608 - numbers of ours
        return all(self._cluster.query(1 + server, sql).strip() == "0" for server in range(SERVERS))

    def kill(self, server: int) -> None:
        """See `ShardedSystem`."""
        self._cluster.kill(server + 1)

    def start(self, server: int) -> None:
        """See `ShardedSystem`."""
        self._cluster.start(server + 1)

    @staticmethod
    def _server(number: int) -> int:
        return 1 + number % SERVERS


@dataclass(slots=True)
class Seen:
    """What writers and readers have seen so far."""

    acknowledged: dict[int, float] = field(default_factory=dict)
    begun: set[int] = field(default_factory=set)
    newest: int = 0
    reads: int = 0
    torn_reads: int = 0
    torn: set[int] = field(default_factory=set)
    doubled: set[int] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, rows: Mapping[int, int]) -> None:
        """Take note of one read."""
        torn = {block for block, count in rows.items() if count < ROWS}
        with self.lock:
            self.reads += 1
            self.torn_reads += bool(torn)
            self.torn |= torn
            self.doubled |= {block for block, count in rows.items() if count > ROWS}


def measure(system: ShardedSystem, seed: int, limits: Limits, *, say: Callable[[str], object]) -> Measured:
    """Run the workload once.

    Parameters
    ----------
    system
        Ours or the peer.
    seed
        Which servers are killed comes from it.
    limits
        For how long and how much writers write.
    say
        Is told of each kill, and what was seen until then.
    """
    system.create()
    seen, over, chance = Seen(), threading.Event(), random.Random(seed)  # noqa: S311 - repeatable is what it must be
    writers = [
        threading.Thread(target=_write, args=(system, seen, number, over, limits.blocks)) for number in range(WRITERS)
    ]
    threads = writers + [threading.Thread(target=_read, args=(system, seen, number, over)) for number in range(READERS)]
    for thread in threads:
        thread.start()
    end, kills = time.monotonic() + limits.seconds, 0
    while time.monotonic() + DOWN_S < end and any(each.is_alive() for each in writers):
        server = chance.randrange(SERVERS)
        say(
            f"{len(seen.begun):,} blocks, {len(seen.acknowledged):,} acknowledged; {seen.reads:,} reads, {seen.torn_reads:,}"
            f" torn; torn blocks {len(seen.torn):,}, doubled {len(seen.doubled):,}; server {server + 1} is killed"
        )
        system.kill(server)
        kills += 1
        time.sleep(DOWN_S)
        system.start(server)
        time.sleep(max(0.0, min(KILL_EVERY_S - DOWN_S, end - time.monotonic())))
    over.set()
    for thread in threads:
        thread.join()
    left = _quiet(system)
    torn = {block for block, count in left.items() if count < ROWS}
    lost = {block for block in seen.acknowledged if left.get(block, 0) < ROWS}
    latencies = list(seen.acknowledged.values()) or [0.0]
    found: Measured = {
        "inserts": len(seen.begun),
        "acknowledged": len(seen.acknowledged),
        "kills": kills,
        "reads": seen.reads,
        "torn_reads": seen.torn_reads,
        "torn_seen": len(seen.torn),
        "doubled_seen": len(seen.doubled),
        "torn_left": len(torn),
        "doubled_left": sum(count > ROWS for count in left.values()),
        "lost": len(lost),
        "p50_ms": 1e3 * quantile(latencies, 0.5),
        "p99_ms": 1e3 * quantile(latencies, 0.99),
    }
    # Of two systems the first may have been written to for hours.
    say(str(found))
    return found


def _write(system: ShardedSystem, seen: Seen, writer: int, over: threading.Event, blocks: int) -> None:
    """Insert blocks; writers with odd numbers give a block up when they hear an error."""
    block = writer
    while not over.is_set() and block < blocks:
        seen.begun.add(block)
        seen.newest = block
        begin, attempt = time.monotonic(), 0
        while time.monotonic() - begin < REPEAT_S_MAX:
            try:
                system.insert(block, attempt)
            except FAILURES:
                if writer % 2:
                    break
                attempt += 1
                over.wait(PAUSE_S)
            else:
                seen.acknowledged[block] = time.monotonic() - begin
                break
        block += WRITERS
        over.wait(PAUSE_S)


def _read(system: ShardedSystem, seen: Seen, number: int, over: threading.Event) -> None:
    while not over.is_set():
        number += READERS
        try:
            seen.take(system.rows_by_block(number, max(0, seen.newest - WINDOW)))
        except FAILURES:
            # A server that is away answers nothing; only what is shown counts here.
            over.wait(PAUSE_S)


def _quiet(system: ShardedSystem) -> Mapping[int, int]:
    """Return the rows of each block when all replicas are level, and several reads, one after the other, show the same."""
    last: Any = None
    for number in range(int(QUIET_S_MAX / QUIET_S)):
        time.sleep(QUIET_S)
        try:
            if not system.is_level():
                continue
            found = [dict(system.rows_by_block(SERVERS * number + server, 0)) for server in range(SERVERS)]
        except FAILURES:
            continue
        if all(each == found[0] for each in found) and found[0] == last:
            return found[0]
        last = found[0]
    raise ReplitreeError(f"the table still changes {QUIET_S_MAX:.0f} s after the last insert")


__all__ = ["Limits", "OurShards", "TheirShards", "measure"]
