"""Moves of buckets under inserts and reads: what clients notice, what is written, and what kills of the mover do.

A table of two shards with `BUCKETS` buckets has `ROWS` rows in `PARTITIONS` partitions.  `CLIENTS` clients insert at a rate
that is asked for, each insert with `INSERT_ROWS` rows of one shard, and one reads: single keys, and counts of all rows.

1. Nothing moves, for `CALM_S` seconds.
2. A quarter of all buckets moves from one shard to the other, by a process of its own.
3. The same buckets move back, and the process is killed (SIGKILL) again and again, after `KILL_FIRST_S` seconds and
   `KILL_MORE_S` more each time; a server carries the moves on in between and in the end.

Keys::

    inserts_per_s                       what the clients reach while nothing moves
    failed_inserts, failed_reads        requests that failed, in all phases
    wrong_reads                         counts of rows that are not what was inserted, and single keys not there once
    insert_p50_ms, insert_p99_ms, read_p99_ms              while nothing moves
    moving_inserts_per_s, moving_insert_p50_ms, moving_insert_p99_ms, moving_read_p99_ms     while buckets move
    p99_times                           the p99 of inserts while buckets move, divided by that before
    rows_moved, moved_s, batches        how many, and how long it took, until no source has any
    written_times                       bytes of the files with the rows at their target, divided by those at their source
    deleted_times                       bytes of the files that their source writes anew without them, divided by the same
    killed, resumed_s                   how often the process was killed, and how long the way back took

Reads are linearizable.  Both last ratios are of each replica; what inserts and merges write is not in them.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

import replitree
from replitree.client.sharded.sharded_table import ShardedTable
from replitree.errors import ReplitreeError
from replitree.protocol.sharded.moves.progress import MovesProgress
from replitree.protocol.sharded.shard_map import Shard
from replitree.storage.schema.row_buckets import split_by_shard
from replitree_bench.kit.report import Measured, quantile

if TYPE_CHECKING:
    from replitree.client.cluster import LocalCluster

ROWS, INSERTS = 2_000_000, 8
"""Rows that are there at first, and the inserts that bring them."""

BUCKETS, PARTITIONS = 256, 4
CLIENTS, INSERT_ROWS = 16, 10
CALM_S = 30.0
KILL_FIRST_S, KILL_MORE_S, KILLS_MAX = 0.5, 0.5, 12
MOVES_S_MAX = 1200.0
LOOK_S = 0.05
SCHEMA = "k bigint not null, p int not null, v double, s string"
SETTINGS: dict[str, object] = {"carry_moves_after_s": 3.0}


@dataclass(slots=True)
class Noticed:
    """What clients have noticed in one phase: seconds of each insert and read, and what was wrong."""

    begun: float = field(default_factory=time.monotonic)
    inserts: list[float] = field(default_factory=list)
    reads: list[float] = field(default_factory=list)
    failed_inserts: int = 0
    failed_reads: int = 0
    wrong_reads: int = 0
    problems: list[str] = field(default_factory=list)


class MoveBench:
    """A sharded table, its clients, and moves of its buckets.

    Parameters
    ----------
    cluster
        Where the table is made.
    name
        Of the table.
    rate
        Inserts per second that the clients try to reach together.
    say
        Is told of each phase.
    """

    def __init__(self, cluster: LocalCluster, name: str, rate: float, say: Callable[[str], object]) -> None:
        self._cluster, self._name, self._rate, self._say = cluster, name, rate, say
        say(f"filling {name}")
        table = cluster.create_table(
            name, SCHEMA, order_by="k", partition_by="p", shard_by="k", shards=2, buckets=BUCKETS, wait_replicas=2
        )
        assert isinstance(table, ShardedTable)
        self._table = table
        for keys in np.array_split(np.arange(ROWS), INSERTS):
            table.insert(_rows(keys), timeout_s=600.0)
        table.optimize(final=True, timeout_s=600.0)
        self._next, self._acknowledged = ROWS, 0
        self._phase, self._stopped, self._lock = Noticed(), threading.Event(), threading.Lock()

    def measure(self) -> Measured:
        """Let a quarter of the buckets move there, and back; then drop the table."""
        quarter = [bucket for bucket, owner in enumerate(self._table.info.map.owners) if owner == 0][: BUCKETS // 4]
        with self._clients():
            self._say(f"nothing moves for {CALM_S:.0f} s")
            calm = self._new_phase()
            time.sleep(CALM_S)
            source_bytes, source_rows = self._size(Shard(0))
            self._say(f"{len(quarter)} buckets move")
            moving, begun = self._new_phase(), time.monotonic()
            command = self._mover("move", "--buckets", ",".join(map(str, quarter)), "--to", "1")
            arrived = self._await_end(command)
            moved_s = time.monotonic() - begun
            self._say(f"{arrived.rows:,} rows have moved in {moved_s:.0f} s; they go back, and the mover is killed")
            back, begun = self._new_phase(), time.monotonic()
            self._cluster.shards(self._name).move(quarter, 0)
            killed = self._kill_movers()
            self._await_end(None)
            resumed_s = time.monotonic() - begun
            self._new_phase()
        row_bytes = source_bytes / source_rows
        found = {
            "inserts_per_s": len(calm.inserts) / CALM_S,
            "failed_inserts": sum(each.failed_inserts for each in (calm, moving, back)),
            "failed_reads": sum(each.failed_reads for each in (calm, moving, back)),
            "wrong_reads": sum(each.wrong_reads for each in (calm, moving, back)),
            **_latencies(calm, ""),
            "moving_inserts_per_s": len(moving.inserts) / moved_s,
            **_latencies(moving, "moving_"),
            "rows_moved": arrived.rows,
            "moved_s": moved_s,
            "batches": arrived.batches,
            "written_times": arrived.bytes / (arrived.rows * row_bytes),
            # The delete writes each part anew that has such a row: all that is left of the source, once.
            "deleted_times": (source_rows - arrived.rows) / arrived.rows,
            "killed": killed,
            "resumed_s": resumed_s,
        }
        found["p99_times"] = found["moving_insert_p99_ms"] / found["insert_p99_ms"]
        self._cluster.drop_table(self._name)
        for each in (calm, moving, back):
            for problem in each.problems[:3]:
                self._say(problem)
        return found

    # --- moves --------------------------------------------------------------------------------------------------------------

    def _mover(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "replitree.cli.main", "shard", arguments[0], self._name, *arguments[1:]]
        return subprocess.Popen(
            [*command, "--dir", str(self._cluster.folder)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def _await_end(self, mover: subprocess.Popen[bytes] | None) -> _Arrived:
        """Wait until nothing moves; return the most that had arrived."""
        end, seen = time.monotonic() + MOVES_S_MAX, _Arrived()
        is_begun = mover is None
        while time.monotonic() < end:
            found = dict(self._cluster.catalog.moving()).get(self._name)
            is_begun = is_begun or found is not None
            if is_begun and found is None:
                if mover is not None:
                    mover.wait()
                return seen
            if found is not None and found.progress is not None:
                seen = _arrived(found.progress, seen)
            if mover is not None and mover.poll():
                raise ReplitreeError(f"the mover ended with {mover.returncode}")
            time.sleep(LOOK_S)
        raise ReplitreeError(f"the moves have not ended after {MOVES_S_MAX:.0f} s")

    def _kill_movers(self) -> int:
        """Carry the moves on by processes that are killed, each a little later than the one before; return how many were."""
        killed = 0
        while killed < KILLS_MAX and self._cluster.shards(self._name).status().moves:
            mover = self._mover("resume")
            with suppress(subprocess.TimeoutExpired):
                mover.wait(KILL_FIRST_S + KILL_MORE_S * killed)
                return killed
            mover.kill()
            mover.wait()
            killed += 1
        return killed

    def _size(self, shard: Shard) -> tuple[int, int]:
        """Return bytes and rows of a shard."""
        (found,) = [each for each in self._cluster.status(self._name).tables if each.name == f"{self._name}~{shard}"]
        assert found.bytes
        assert found.rows
        return found.bytes, found.rows

    # --- clients ------------------------------------------------------------------------------------------------------------

    def _new_phase(self) -> Noticed:
        with self._lock:
            self._phase = Noticed()
            return self._phase

    @contextmanager
    def _clients(self) -> Iterator[None]:
        self._stopped.clear()
        threads = [threading.Thread(target=self._insert, args=(number,)) for number in range(CLIENTS)]
        threads.append(threading.Thread(target=self._read))
        for each in threads:
            each.start()
        try:
            yield
        finally:
            self._stopped.set()
            for each in threads:
                each.join()

    def _insert(self, number: int) -> None:
        period, due = CLIENTS / self._rate, time.monotonic() + number / self._rate
        with replitree.connect(self._cluster.folder) as connection:
            table = connection.table(self._name)
            while not self._stopped.wait(max(0.0, due - time.monotonic())):
                # A client that is late does not catch up: the rate is what is reached.
                due = max(due + period, time.monotonic())
                with self._lock:
                    first = self._next
                    self._next += 40 * INSERT_ROWS
                # All rows of an insert are of one shard, by the map that there was at first.
                rows = _rows(np.arange(first, first + 40 * INSERT_ROWS))
                piece = split_by_shard(rows, self._table.definition, self._table.info.map)[number % 2]
                begun, phase = time.monotonic(), self._phase
                try:
                    table.insert(piece.rows.slice(0, INSERT_ROWS), token=f"m{first}")
                except ReplitreeError as error:
                    phase.failed_inserts += 1
                    phase.problems.append(f"an insert failed: {error}")
                else:
                    phase.inserts.append(time.monotonic() - begun)
                    with self._lock:
                        self._acknowledged += 1

    def _read(self) -> None:
        chance = np.random.default_rng(1)
        with replitree.connect(self._cluster.folder) as connection:
            table = connection.table(self._name)
            while not self._stopped.wait(LOOK_S):
                due, begun, phase = self._acknowledged, time.monotonic(), self._phase
                key = int(chance.integers(ROWS))
                try:
                    found = table.to_arrow(["k"], f"k = {key}", level="linearizable").num_rows
                    total = table.scan(["k"], level="linearizable").count()
                except ReplitreeError as error:
                    phase.failed_reads += 1
                    phase.problems.append(f"a read failed: {error}")
                    continue
                phase.reads.append((time.monotonic() - begun) / 2)
                # Inserts that are under way may be counted already.
                most = ROWS + INSERT_ROWS * (self._acknowledged + CLIENTS)
                if found != 1 or not ROWS + INSERT_ROWS * due <= total <= most:
                    phase.wrong_reads += 1
                    phase.problems.append(f"key {key} is there {found} times; {total:,} rows, {due:,} inserts")


@dataclass(frozen=True, slots=True)
class _Arrived:
    """How much has arrived."""

    rows: int = 0
    bytes: int = 0
    batches: int = 0


def _arrived(progress: MovesProgress, before: _Arrived) -> _Arrived:
    """Return what has arrived, with the batch that is on its way: it arrives, too, unless it is taken back."""
    if not progress.batch:
        return max(
            before, _Arrived(progress.rows, progress.arrived_bytes, progress.batches), key=lambda each: each.rows
        )
    size = progress.batch.bytes or 0
    return _Arrived(progress.rows + progress.batch.rows, progress.arrived_bytes + size, progress.batches + 1)


def _rows(keys: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Table:
    """Return rows of `SCHEMA` with these keys."""
    values = np.random.default_rng(int(keys[0])).random(len(keys))
    texts = pa.array(np.char.mod("%016x", keys * 2654435761 % (1 << 62)))
    return pa.table({"k": keys, "p": pa.array(keys % PARTITIONS, pa.int32()), "v": values, "s": texts})


def _latencies(noticed: Noticed, prefix: str) -> Measured:
    if not noticed.inserts or not noticed.reads:
        raise ReplitreeError("the clients inserted or read nothing in a phase: it was too short to be measured")
    return {
        f"{prefix}insert_p50_ms": 1e3 * quantile(noticed.inserts, 0.5),
        f"{prefix}insert_p99_ms": 1e3 * quantile(noticed.inserts, 0.99),
        f"{prefix}read_p99_ms": 1e3 * quantile(noticed.reads, 0.99),
    }


__all__ = ["MoveBench"]
