"""Sharded tables: what a shard adds to an insert and to a read, and what many clients reach.

Keys of `ShardedBench`::

    single_ms                     p50 of an insert into a table that is not sharded, by one client
    joint_<k>_ms                  p50 of an insert whose rows are of all k shards
    added_<k>_ms                  the difference of the two
    zk_commit_<k>_ms              p50 of a commit of as many operations, sent to ZooKeeper by itself
    zk_requests_joint_<k>         requests of the whole cluster to ZooKeeper for one of these, until quiet
    inserts_per_s_plain, cost_plain    64 clients on the table that is not sharded; as the next lines
    inserts_per_s_<k>_of_1        64 clients on a table of k shards: each insert is of one shard; the shards take turns
    inserts_per_s_<k>_of_all      the same, and each insert is of all shards
    cost_<k>_of_1, cost_<k>_of_all    CPU milliseconds of the whole cluster and its clients for one of these inserts
    growth_<t>_in_<k>_ms          p50 of an insert into t of k shards, by one client
    growth_<t>_in_<k>_cost, growth_<t>_in_<k>_requests    its CPU milliseconds, and its requests to ZooKeeper, until quiet

`ShardedBench.growth` measures the last two lines alone, and adds what `replitree_bench.shards.growth` makes of them.

Keys of `CutBench`::

    single_linearizable_ms            p50 of a linearizable snapshot of a table that is not sharded, at rest
    cut_<k>_<level>_ms                p50 of a snapshot of a table of k shards, at rest
    ratio_<k>_linearizable            the two linearizable ones, divided
    zk_requests_cut_<k>_<level>       requests of the whole cluster to ZooKeeper for one of these

Every insert has `ROWS` rows, whichever shards they are of.  The tables take turns, insert by insert and read by read for the
latencies, so that what else the machine does hits all alike.  An insert begins when the work of the one before has been done.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from replitree.client import Connection, Table
from replitree.client.sharded.insert.joint import JointInsertResult
from replitree.client.sharded.sharded_table import ShardedTable
from replitree.errors import ReplitreeError
from replitree.protocol.core import effects as fx
from replitree.protocol.sharded.cut import CUT_LEVELS, CutLevel
from replitree.protocol.sharded.shard_map import Shard
from replitree.storage.schema.row_buckets import split_by_shard
from replitree_bench.kit.clients import run_clients
from replitree_bench.kit.report import Measured, Report, medians, quantile
from replitree_bench.kit.systems import REPLICAS, SCHEMA, make_rows
from replitree_bench.shards.growth import growth_of, kinds_of

ROWS = 1_000
"""So many that each of 64 shards gets some."""

LATENCY_SHARDS = (1, 4, 64)
LOAD_SHARDS = (1, 2, 4)
GROWTH_SHARDS, GROWTH_TOUCHED = (4, 16, 64), (1, 4, 16, 64)
PAPER_SHARDS = (1, 4, 16)
"""Numbers of shards from which `replitree_bench.shards.growth` works out what more of them cost."""

INSERTS, INSERTS_OF_MANY = 30, 8
"""Inserts of each kind by one client in one round; of all shards of tables with `MANY_SHARDS` or more."""

GROWTH_INSERTS = 20
"""Inserts into some shards of each table, one after the other."""

MANY_SHARDS = 16
"""An insert into so many takes about a second where clients, replicas and ZooKeeper share two cores."""

CLIENTS, LOAD_INSERTS = 64, 192
"""Clients at once, and the inserts of each kind that they share."""

READ_SHARDS = 4
READS = 200
"""Reads at each level in one round."""

WARM_UPS = 3
BUCKETS = 256
ENTRY_BYTES = 300
"""What the log of a shard gets of an insert, about."""
QUIET_S = 3.0
MERGES_S = 60.0
"""What merges of the inserts before may take, in seconds; many clients begin when they are done."""

LOOK_S, REST_CORES = 0.1, 0.4
"""A cluster rests when all its processes use at most so much of a core for so many seconds."""
CREATE_S = 120.0


class ShardedBench:
    """Tables of several numbers of shards in one cluster.

    Parameters
    ----------
    connection
        A cluster of `REPLICAS` replicas.
    latency_shards, load_shards, growth_shards
        Numbers of shards for latencies, for many clients, and for inserts into some of the shards.
    inserts, load_inserts, growth_inserts
        See `INSERTS`, `LOAD_INSERTS` and `GROWTH_INSERTS`.
    quiet_s
        How long to wait until background work has asked ZooKeeper for all it wants, in seconds.
    """

    def __init__(
        self,
        connection: Connection,
        latency_shards: tuple[int, ...] = LATENCY_SHARDS,
        load_shards: tuple[int, ...] = LOAD_SHARDS,
        inserts: int = INSERTS,
        load_inserts: int = LOAD_INSERTS,
        quiet_s: float = QUIET_S,
        growth_shards: tuple[int, ...] = GROWTH_SHARDS,
        growth_inserts: int = GROWTH_INSERTS,
    ) -> None:
        self._connection, self._quiet_s = connection, quiet_s
        self._inserts, self._load_inserts, self._growth_inserts = inserts, load_inserts, growth_inserts
        self._latency_shards, self._load_shards, self._growth_shards = latency_shards, load_shards, growth_shards
        # Where commits that are of no table write.
        self._place = f"{connection.catalog.root}/bench"
        connection.catalog.perform(fx.Commit(fx.Create(self._place)))
        self._numbers = itertools.count()
        self._single = connection.create_table("single", SCHEMA, order_by="k", wait_replicas=REPLICAS)
        self._tables = {
            shards: self._create(shards) for shards in sorted({*latency_shards, *load_shards, *growth_shards})
        }
        for _ in range(WARM_UPS):
            self.insert(self._single, self._block())
            for shards, table in self._tables.items():
                self.insert(table, self._block(), shards)

    def measure(self, _number: int) -> Measured:
        """Run every workload once."""
        measured = self._latencies()
        for shards in self._latency_shards:
            measured[f"zk_requests_joint_{shards}"] = self._requests(shards)
        measured |= self.growth()
        measured |= self._load_of("plain", self._single, [self._block() for _ in range(self._load_inserts)], 0)
        for shards in self._load_shards:
            measured |= self._load(shards, "all", [self._block() for _ in range(self._load_inserts)], shards)
            measured |= self._load(shards, "1", self._blocks_of_one(shards), 1)
        return measured

    def growth(self) -> Measured:
        """Insert into some of the shards of each table, and work out what more shards cost."""
        measured = Measured()
        for shards in self._growth_shards:
            for touched in sorted({min(touched, shards) for touched in GROWTH_TOUCHED}):
                measured |= self._growth(shards, touched)
        return measured | (growth_of(measured) if len(kinds_of(measured, "cost")) > 2 else {})

    def insert(self, table: Table, rows: pa.Table, shards: int = 0) -> None:
        """Insert rows that are of so many shards; 0: into a table that is not sharded.

        Raises
        ------
        ReplitreeError
            They are of another number, or not inserted: then this is no measurement.
        """
        result = table.insert(rows)
        touched = len(result.shards) if isinstance(result, JointInsertResult) else 0
        if (result.outcome, touched) != ("inserted", shards):
            raise ReplitreeError(f"a block of the benchmark was not inserted into {shards} shards: {result}")

    def _create(self, shards: int) -> ShardedTable:
        made = self._connection.create_table(
            f"sharded_{shards}",
            SCHEMA,
            order_by="k",
            shard_by="k",
            shards=shards,
            buckets=BUCKETS,
            wait_replicas=REPLICAS,
            timeout_s=CREATE_S,
        )
        assert isinstance(made, ShardedTable)
        return made

    def _block(self) -> pa.Table:
        """Return rows that no insert has had."""
        return make_rows(next(self._numbers) * ROWS, ROWS)

    def _blocks_of_one(self, shards: int) -> list[pa.Table]:
        """Return blocks of rows that no insert has had, each of one shard, the shards in turn."""
        blocks = list[pa.Table]()
        while len(blocks) < self._load_inserts:
            pieces = self._pieces(shards)
            blocks += [pieces[Shard(shard)].slice(0, ROWS) for shard in range(shards)]
        return blocks[: self._load_inserts]

    def _pieces(self, shards: int) -> dict[Shard, pa.Table]:
        """Return rows that no insert has had by their shards, some `ROWS` of each at least."""
        table = self._tables[shards]
        # One block of each shard, and as many rows again: a shard may have fewer than its share of them.
        rows = pa.concat_tables([self._block() for _ in range(2 * shards)])
        return {each.shard: each.rows for each in split_by_shard(rows, table.definition, table.info.map)}

    def _growth(self, shards: int, touched: int) -> Measured:
        """Insert `ROWS` rows of so many shards of a table, again and again."""
        touched, times, blocks = min(touched, shards), list[float](), list[pa.Table]()
        for _ in range(self._growth_inserts):
            pieces = self._pieces(shards)
            blocks.append(pa.concat_tables([pieces[Shard(at)].slice(0, ROWS // touched) for at in range(touched)]))
        time.sleep(self._quiet_s)
        rest_s, rest_asked, rest = self._at_rest()
        cpu_s, asked, began = self._cpu_s(), self._asked(), time.perf_counter()
        for rows in blocks:
            begin = time.perf_counter()
            self.insert(self._tables[shards], rows, touched)
            times.append(1e3 * (time.perf_counter() - begin))
        time.sleep(self._quiet_s)
        # What the cluster does at rest for so long is not the inserts'.
        spent = (time.perf_counter() - began) / rest
        cost, requests = self._cpu_s() - cpu_s - spent * rest_s, self._asked() - asked - spent * rest_asked
        name = f"growth_{touched}_in_{shards}"
        return {
            f"{name}_ms": quantile(times, 0.5),
            f"{name}_cost": 1e3 * cost / len(blocks),
            f"{name}_requests": requests / len(blocks),
        }

    def _at_rest(self) -> tuple[float, int, float]:
        """Return the CPU seconds and the requests of the cluster at rest, and for how many seconds it was looked at."""
        cpu_s, asked, began = self._cpu_s(), self._asked(), time.perf_counter()
        time.sleep(self._quiet_s)
        return self._cpu_s() - cpu_s, self._asked() - asked, time.perf_counter() - began

    def _commit_alone(self, shards: int) -> None:
        """Send ZooKeeper a commit of as many operations as that of an insert into so many shards: `2 + 3 * shards`."""
        checks = tuple(fx.Check(self._place, fx.ANY_VERSION) for _ in range(2 * shards + 1))
        value = b"." * ENTRY_BYTES
        entries = tuple(fx.Create(f"{self._place}/log-", value, sequential=True) for _ in range(shards + 1))
        committed = self._connection.catalog.perform(fx.Commit(*checks, *entries))
        if not isinstance(committed, fx.Applied):
            raise ReplitreeError(f"a commit of the benchmark was not applied: {committed}")

    def _latencies(self) -> Measured:
        times: dict[int, list[float]] = {shards: [] for shards in (0, *self._latency_shards)}
        alone: dict[int, list[float]] = {shards: [] for shards in self._latency_shards}
        for number in range(self._inserts):
            for shards, found in alone.items():
                begin = time.perf_counter()
                self._commit_alone(shards)
                found.append(1e3 * (time.perf_counter() - begin))
            for shards, found in times.items():
                if number >= self._inserts_of(shards):
                    continue
                table, rows = (self._tables[shards] if shards else self._single), self._block()
                self._wait_for_rest(self._quiet_s)
                begin = time.perf_counter()
                self.insert(table, rows, shards)
                found.append(1e3 * (time.perf_counter() - begin))
        single = quantile(times.pop(0), 0.5)
        measured: Measured = {"single_ms": single}
        for shards, found in times.items():
            joint = quantile(found, 0.5)
            measured |= {f"joint_{shards}_ms": joint, f"added_{shards}_ms": joint - single}
            measured[f"zk_commit_{shards}_ms"] = quantile(alone[shards], 0.5)
        return measured

    def _wait_for_rest(self, longest_s: float) -> None:
        """Wait until the replicas have done the work of the inserts before, so that the next ones do not pay for it."""
        end = time.monotonic() + longest_s
        while time.monotonic() < end:
            before = self._cpu_s()
            time.sleep(LOOK_S)
            if self._cpu_s() - before <= REST_CORES * LOOK_S:
                return

    def _requests(self, shards: int) -> float:
        """Return how many requests one insert into all shards costs, background work included."""
        time.sleep(self._quiet_s)
        before, begin = self._asked(), time.perf_counter()
        inserts = self._inserts_of(shards)
        for _ in range(inserts):
            self.insert(self._tables[shards], self._block(), shards)
        time.sleep(self._quiet_s)
        found, seconds = self._asked() - before, time.perf_counter() - begin
        # What the cluster asks at rest for so long is not the inserts'.
        _, at_rest, rest = self._at_rest()
        return (found - at_rest * seconds / rest) / inserts

    def _inserts_of(self, shards: int) -> int:
        return min(self._inserts, INSERTS_OF_MANY) if shards >= MANY_SHARDS else self._inserts

    def _asked(self) -> int:
        return requests_asked(self._connection)

    def _load(self, shards: int, of: str, blocks: list[pa.Table], touched: int) -> Measured:
        return self._load_of(f"{shards}_of_{of}", self._tables[shards], blocks, touched)

    def _load_of(self, name: str, table: Table, blocks: list[pa.Table], touched: int) -> Measured:
        self._wait_for_rest(MERGES_S)
        before = self._cpu_s()
        load = run_clients(CLIENTS, len(blocks), lambda at: self.insert(table, blocks[at], touched))
        cost = 1e3 * (self._cpu_s() - before) / len(blocks)
        return {f"inserts_per_s_{name}": load.per_second, f"cost_{name}": cost}

    def _cpu_s(self) -> float:
        """Return the CPU seconds that this process, its replicas and ZooKeeper have used."""
        return sum(map(_cpu_s_of, _descendants(os.getpid())))


class CutBench:
    """A table of `READ_SHARDS` shards beside one that is not sharded, both small and at rest.

    Parameters
    ----------
    connection
        A cluster of `REPLICAS` replicas.
    reads
        At each level in one round.
    """

    def __init__(self, connection: Connection, reads: int = READS) -> None:
        self._connection, self._reads = connection, reads
        self._single = connection.create_table("cut_single", SCHEMA, order_by="k", wait_replicas=REPLICAS)
        self._table = connection.create_table(
            "cut_sharded",
            SCHEMA,
            order_by="k",
            shard_by="k",
            shards=READ_SHARDS,
            buckets=BUCKETS,
            wait_replicas=REPLICAS,
        )
        for table in (self._single, self._table):
            table.insert(make_rows(0, 1_000))
        self._times(WARM_UPS)

    def measure(self, _number: int) -> Measured:
        """Read at every level."""
        times = self._times(self._reads)
        single, *cuts = (quantile(found, 0.5) for found in times)
        measured: Measured = {"single_linearizable_ms": single}
        for level, found in zip(CUT_LEVELS, cuts, strict=True):
            measured[f"cut_{READ_SHARDS}_{level}_ms"] = found
            measured[f"zk_requests_cut_{READ_SHARDS}_{level}"] = self._requests(level)
        measured[f"ratio_{READ_SHARDS}_linearizable"] = measured[f"cut_{READ_SHARDS}_linearizable_ms"] / single
        return measured

    def _times(self, reads: int) -> list[list[float]]:
        """Return the milliseconds of reads of the one table, and of the other at each level; they take turns."""
        found: list[list[float]] = [[] for _ in range(1 + len(CUT_LEVELS))]
        for _ in range(reads):
            for times, level in zip(found, (None, *CUT_LEVELS), strict=True):
                begin = time.perf_counter()
                if level is None:
                    self._single.snapshot(level="linearizable")
                else:
                    self._snapshot(level)
                times.append(1e3 * (time.perf_counter() - begin))
        return found

    def _snapshot(self, level: CutLevel) -> None:
        assert isinstance(self._table, ShardedTable)
        self._table.snapshot(level=level)

    def _requests(self, level: CutLevel) -> float:
        before = requests_asked(self._connection)
        for _ in range(self._reads):
            self._snapshot(level)
        return (requests_asked(self._connection) - before) / self._reads


def growth_report(connection: Connection, rounds: int, say: Callable[[str], None]) -> Report:
    """Return the report of inserts into some of the shards of tables (`replitree_bench.shards.growth`)."""
    say("creating the tables")
    bench, found = ShardedBench(connection, (), (), growth_shards=PAPER_SHARDS), list[Measured]()
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        found.append(bench.growth())
    # The three numbers are of the medians, not medians themselves.
    measured = medians(found)
    return Report("growth", measured | growth_of(measured), {}, rounds)


def requests_asked(connection: Connection) -> int:
    """Return how many requests the servers of a cluster have sent to ZooKeeper."""
    return sum(sum(server.coordination_requests.values()) for server in connection.servers())


def _stat(process: int) -> list[str]:
    """Return what Linux says of a process, from its state on."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()


def _cpu_s_of(process: int) -> float:
    user, system = _stat(process)[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _descendants(root: int) -> list[int]:
    """Return a process and all processes below it."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        # Others may end meanwhile.
        with suppress(OSError):
            children.setdefault(int(_stat(int(path.name))[1]), []).append(int(path.name))
    found = [root]
    for process in found:
        found += children.get(process, [])
    return found


__all__ = ["CutBench", "ShardedBench", "growth_report", "requests_asked"]
