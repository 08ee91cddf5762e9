"""Many parts: what a table with a part in each of many partitions costs a reader, a delete and a restart.

Keys::

    partitions                 partitions of the table, each with one part of `PARTITION_ROWS` rows
    insert_s                   seconds of all inserts together, each of `INSERT_PARTITIONS` partitions
    first_plan_s               seconds until a client that has just connected knows the parts that ``p = 77`` may match
    first_read_s               seconds of its first ``to_arrow(where="p = 77")``, the plan included
    plan_s, read_s             the same, medians of `TIMES` later ones
    full_plan_s                seconds of a snapshot of all parts, first and median of `TIMES`
    delete_partition_s         seconds until a delete of one row, by partition column and key, is done on every replica
    delete_row_s               the same for a delete of one row by a column that is no partition column
    delete_all_s               the same for an update that changes a row of every partition
    parts_renamed_partition    parts that the first of these deletes gave a new name; …_row, …_all: the others
    serving_s                  seconds from the start of a killed replica's process until a linearizable read of one partition
    serving_behind_s           the same of a replica that is killed during a mutation of all parts: sequential read
    replica_mb                 resident memory of replica 1 in the end, in 2**20 bytes
    znodes, znode_mb           nodes of ZooKeeper in the end, and the bytes of their values and names
    idle_cores                 CPU seconds per second of all replicas while the table is at rest
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from replitree.coordination.embedded import ask
from replitree.errors import ReplitreeError
from replitree_bench.kit.clients import cpu_s
from replitree_bench.kit.report import Measured

if TYPE_CHECKING:
    import pyarrow as pa

    from replitree.client import LocalCluster, Table

PARTITIONS = 20_000
INSERT_PARTITIONS = 1_000
PARTITION_ROWS = 5
TIMES = 5
WAIT_S_MAX = 600.0
IDLE_S = 10.0
REPLICAS = 3

Say = Callable[[str], None]


def rows_of(first: int, partitions: int) -> pa.Table:
    """Return `PARTITION_ROWS` rows for each of the partitions from `first` on."""
    import numpy as np
    import pyarrow as pa

    numbers = np.arange(first * PARTITION_ROWS, (first + partitions) * PARTITION_ROWS, dtype=np.int64)
    return pa.table({"p": (numbers // PARTITION_ROWS).astype(np.int32), "k": numbers, "v": numbers / 2.0})


def measure_parts(cluster: LocalCluster, say: Say, partitions: int = PARTITIONS, *, with_all: bool = True) -> Measured:
    """Fill a table and measure it.

    Parameters
    ----------
    cluster
        Of `REPLICAS` replicas, with nothing else to do.
    partitions
        How many; at least 100.
    with_all
        Whether changes of all parts are measured too, which take minutes.
    """
    name = "parts"
    table = cluster.create_table(
        name, "p int not null, k bigint not null, v double", order_by="k", partition_by="p", wait_replicas=REPLICAS
    )
    say(f"inserting {partitions:,} partitions")
    measured: Measured = {"partitions": float(partitions), "insert_s": _timed(lambda: _fill(table, partitions))}
    _wait_all(cluster, name)
    measured |= _reads(cluster, name, say)
    measured |= _deletes(cluster, name, partitions if with_all else 0, say)
    say("killing a replica, and starting it again")
    measured["serving_s"] = _serving_s(cluster, name, "linearizable")
    if with_all:
        measured |= _killed_in_mutation(cluster, name, say)
    say("looking at the cluster at rest")
    measured["idle_cores"] = _idle_cores(cluster)
    measured["replica_mb"] = _resident_mb(cluster.processes[0].pid)
    return measured | _nodes(cluster)


def _fill(table: Table, partitions: int) -> None:
    for first in range(0, partitions, INSERT_PARTITIONS):
        table.insert(rows_of(first, min(INSERT_PARTITIONS, partitions - first)), timeout_s=WAIT_S_MAX)


def _wait_all(cluster: LocalCluster, name: str) -> None:
    """Wait until every replica shows everything; a plan of all parts would take longer than what is waited for."""
    for replica in cluster.names:
        table = cluster.table(name).replica(replica)
        table.snapshot(level="linearizable", where="p = 99", timeout_s=WAIT_S_MAX)


def _reads(cluster: LocalCluster, name: str, say: Say) -> Measured:
    say("reading")
    where = "p = 77"
    table = cluster.table(name).replica("r1")
    measured: Measured = {
        "first_read_s": _timed(lambda: _expect(table.to_arrow(where=where).num_rows, PARTITION_ROWS)),
        "first_full_plan_s": _timed(table.snapshot),
    }
    second = cluster.table(name).replica("r2")
    measured["first_plan_s"] = _timed(lambda: second.snapshot().select(where))
    measured["plan_s"] = _median(lambda: table.snapshot().select(where))
    measured["read_s"] = _median(lambda: table.to_arrow(where=where))
    measured["full_plan_s"] = _median(table.snapshot)
    return measured


def _deletes(cluster: LocalCluster, name: str, partitions: int, say: Say) -> Measured:
    table = cluster.table(name)
    measured: Measured = {}
    changes: tuple[tuple[str, Callable[[], object]], ...] = (
        ("partition", lambda: table.delete(f"p = 77 and k = {77 * PARTITION_ROWS}", timeout_s=WAIT_S_MAX)),
        ("row", lambda: table.delete(f"k = {78 * PARTITION_ROWS}", timeout_s=WAIT_S_MAX)),
        (
            "all",
            lambda: table.update({"v": "0.0"}, f"k >= 0 and k < {partitions * PARTITION_ROWS}", timeout_s=WAIT_S_MAX),
        ),
    )
    for key, change in changes if partitions else changes[:-1]:
        say(f"changing rows: {key}")
        before = {part.part for part in table.snapshot().parts}
        begin = time.perf_counter()
        change()
        _wait_all(cluster, name)
        measured[f"{'change' if key == 'all' else 'delete'}_{key}_s"] = time.perf_counter() - begin
        after = {part.part for part in table.snapshot().parts}
        measured[f"parts_renamed_{key}"] = float(len(after - before))
    return measured


def _serving_s(cluster: LocalCluster, name: str, level: str) -> float:
    """Kill the first replica, start it again; return the seconds until it has answered a read."""
    cluster.kill("r1")
    begin = time.perf_counter()
    cluster.start("r1")
    table = cluster.table(name).replica("r1")
    table.snapshot(-1 if level == "eventual" else None, level=level, where="p = 99", timeout_s=WAIT_S_MAX)  # type: ignore[arg-type]
    return time.perf_counter() - begin


def _killed_in_mutation(cluster: LocalCluster, name: str, say: Say) -> Measured:
    """Kill a replica that has a long mutation in its queue; it serves what is below the mutation at once."""
    say("killing a replica during a mutation of all parts")
    table = cluster.table(name)
    table.update({"v": "1.0"}, "k >= 0", timeout_s=0.0)
    return {"serving_behind_s": _serving_s(cluster, name, "eventual")}


def _idle_cores(cluster: LocalCluster) -> float:
    _wait_all(cluster, "parts")
    pids = [entry.pid for entry in cluster.processes]
    before, begin = sum(map(cpu_s, pids)), time.perf_counter()
    time.sleep(IDLE_S)
    return (sum(map(cpu_s, pids)) - before) / (time.perf_counter() - begin)


def _resident_mb(pid: int) -> float:
    line = next(
        line
        for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
        if line.startswith("VmRSS")
    )
    return int(line.split()[1]) / 1024


def _nodes(cluster: LocalCluster) -> Measured:
    assert cluster.zookeeper is not None
    state = ask(cluster.zookeeper.ports[0], "mntr", patience_s=10.0)
    found = dict(line.split("\t", 1) for line in state.splitlines() if "\t" in line)
    return {
        "znodes": float(found["zk_znode_count"]),
        "znode_mb": float(found["zk_approximate_data_size"]) / 2**20,
    }


def _timed(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _median(work: Callable[[], object]) -> float:
    return statistics.median(_timed(work) for _ in range(TIMES))


def _expect(found: int, wanted: int) -> None:
    if found != wanted:
        raise ReplitreeError(f"a read gave {found} rows, not {wanted}")
