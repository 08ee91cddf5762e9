"""What verification costs: processor time of two source trees in turn, this one beside that of an earlier commit.

    git worktree add /tmp/before COMMIT
    python -m tests.bench.verification /tmp/before [arrow|spark]

Each round runs every workload in a process of its own with one tree, then with the other; the medians are compared.  It is
processor time that is compared, not time on a clock, so that other load on the machine matters little.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from replitree import Connection

ROWS = 2_000_000
PARTS = 8
ROUNDS = 3
RUNS = 5
READS = 60
INSERTS = 10
"""How often a workload runs in one process; the least time counts.

Java's compiler works beside the first ones, and has more to compile where blocks are verified: it needs about 40 reads of one
column until the time of a read no longer falls.
"""


SCHEMA = "k bigint, a bigint, b double, c int, s string, u string"


def some_rows(count: int, first: int) -> pa.Table:
    """Return rows of six columns; the keys begin with `first`, and every third number is one."""
    numbers = np.random.default_rng(first)
    columns = {
        "k": np.arange(first, first + count * 3, 3),
        "a": numbers.integers(0, 1 << 40, count),
        "b": numbers.random(count),
        "c": numbers.integers(0, 1000, count).astype("int32"),
        "s": pa.array([f"kind {n % 97}" for n in range(count)]),
        "u": pa.array([f"{n:x}" for n in numbers.integers(0, 1 << 60, count)]),
    }
    return pa.table(columns)


def storage(module: str, name: str) -> Any:
    """Return a function of the storage; earlier trees have its module without a room."""
    try:
        found = importlib.import_module(f"replitree.storage.{module}")
    except ModuleNotFoundError:
        found = importlib.import_module(f"replitree.storage.{module.rpartition('.')[2]}")
    return getattr(found, name)


def workloads(folder: Path) -> dict[str, Callable[[], object]]:
    """Return what is measured: bulk insert, reading all and one of six columns, and a merge."""
    stage_table, merge_parts = storage("parts.encode", "stage_table"), storage("rewrite.merge", "merge_parts")
    read_parts, define_table = storage("rewrite.read", "read_parts"), storage("schema.definition", "define_table")
    table = define_table("t", SCHEMA, order_by="k")
    everything = some_rows(ROWS, 0)
    stage_table(everything, table, folder / "read", sync=False)
    sources = [folder / f"source-{n}" for n in range(PARTS)]
    for number, source in enumerate(sources):
        stage_table(some_rows(ROWS // PARTS, number), table, source, sync=False)
    (folder / "small").mkdir()
    few = some_rows(1000, 0)

    def small() -> None:
        for number in range(200):
            stage_table(few, table, folder / "small" / f"{time.monotonic_ns()}-{number}", sync=False)

    return {
        "bulk insert": lambda: stage_table(everything, table, folder / f"in-{time.monotonic_ns()}", sync=False),
        "200 small inserts": small,
        "read all": lambda: read_parts([folder / "read" / "all"], table),
        "read one column": lambda: read_parts([folder / "read" / "all"], table, ["b"]),
        "merge": lambda: merge_parts(
            [source / "all" for source in sources], table, folder / f"out-{time.monotonic_ns()}", sync=False
        ),
    }


def with_spark(spark: SparkSession, cluster: Connection) -> dict[str, Callable[[], object]]:
    """Return what is measured of Spark: reading all of a table and one of six columns, and a bulk insert."""
    table = cluster.create_table("t", SCHEMA, order_by="k")
    frame = spark.range(ROWS).selectExpr(
        "3 * id AS k",
        "xxhash64(id) AS a",
        "rand(1) AS b",
        "cast(id % 1000 AS int) AS c",
        "concat('kind ', id % 97) AS s",
        "hex(xxhash64(id)) AS u",
    )
    table.insert(frame)
    return {
        "to_df, all": lambda: table.to_df(spark).write.format("noop").mode("overwrite").save(),
        "to_df, one column": lambda: table.to_df(spark, ["b"]).write.format("noop").mode("overwrite").save(),
        "insert of a frame": lambda: table.insert(frame),
    }


def least(run: Callable[[], object], runs: int, clock: Callable[[], float]) -> float:
    """Return the least time of some runs, by a clock, in seconds."""
    times = []
    for _ in range(runs):
        begun = clock()
        run()
        times.append(clock() - begun)
    return min(times)


def measured() -> dict[str, float]:
    """Return the least processor time of each workload without Spark, in seconds."""
    with tempfile.TemporaryDirectory(prefix="replitree-verification-") as folder:
        return {name: least(run, RUNS, time.process_time) for name, run in workloads(Path(folder)).items()}


def measured_spark() -> dict[str, float]:
    """Return the least processor time of each workload with Spark, in seconds: of this process, the JVM and its workers."""
    import replitree
    from replitree.spark import spark_session

    spark = spark_session()
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - nothing public names the JVM's process
    with replitree.local(replicas=1) as cluster:
        of_spark = with_spark(spark, cluster).items()
        clock = partial(processor_time, gateway.proc.pid)
        return {name: least(run, INSERTS if "insert" in name else READS, clock) for name, run in of_spark}


def processor_time(java: int) -> float:
    """Return the processor time so far of this process, a JVM and the processes below the JVM, in seconds."""
    parents, ended = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            fields = stat.read_text().rpartition(")")[2].split()
            process = int(stat.parent.name)
            parents[process] = int(fields[1])
            ended[process] = sum(map(int, fields[13:15])) / os.sysconf("SC_CLK_TCK")
    below = {java}
    while more := {process for process, parent in parents.items() if parent in below} - below:
        below |= more
    return time.process_time() + sum(process_clock(process) + ended[process] for process in below)


def process_clock(process: int) -> float:
    """Return the processor time of a running process, in seconds: /proc has it in hundredths, too coarse for one read."""
    with contextlib.suppress(OSError):  # it has ended meanwhile
        return time.clock_gettime(
            ~process << 3 | 2
        )  # Linux's id of a process's clock: MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED)
    return 0.0


def main(before: Path, kind: str) -> None:
    """Measure both trees in turn and print the medians and their ratios."""
    here = Path(__file__).parents[2]
    found: dict[str, dict[str, list[float]]] = {}
    for _ in range(ROUNDS):
        for tree in (before, here):
            environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{here}"}
            command = [sys.executable, "-m", "tests.bench.verification", "--measure", kind]
            answer = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
            for name, seconds in json.loads(answer.stdout).items():
                found.setdefault(name, {}).setdefault(str(tree), []).append(seconds)
    for name, times in found.items():
        old, new = (statistics.median(times[str(tree)]) for tree in (before, here))
        print(f"{name:20} before {old:7.3f} s, now {new:7.3f} s of processor time: {new / old:.3f}")


KINDS = {"arrow": measured, "spark": measured_spark}

if __name__ == "__main__":
    if sys.argv[1] == "--measure":
        print(json.dumps(KINDS[sys.argv[2]]()))
    else:
        main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "arrow")
