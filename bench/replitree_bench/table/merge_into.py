"""MERGE INTO: one hundredth of a table's rows, ten times, while two writers insert and the leader merges parts.

Keys::

    merge_p50_s, merge_worst_s    one MERGE, from the statement to its end
    rewritten_share               rows of the parts that a MERGE replaces, of all rows; the most of the ten
    retries                       statements that had to be run again after a conflict
    inserts, insert_p99_ms        what the writers inserted meanwhile
    rows                          of the table at the beginning

Nine of ten rows of a source change a row, one is new.  The keys of a source are those of one month.

After the last MERGE the rows must be those that DuckDB has after the same statements, with the writers' rows once each, on
every replica; and no MERGE may have replaced a part of another month.  Otherwise the benchmark fails.
"""

from __future__ import annotations

import statistics
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException

from replitree.errors import ReplitreeError
from replitree.protocol.core.parts import parse_part
from replitree.spark.session.catalog import CATALOG
from replitree_bench.kit.report import Measured

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pyspark.sql import SparkSession

    from replitree.client.cluster import LocalCluster
    from replitree.client.table import Table

MERGES = 10
MONTHS = 12
WRITERS = 2
WRITER_ROWS = 100
PAUSE_S = 0.05
"""Between two inserts of a writer."""

FIRST_OF_WRITERS = 1 << 40
"""The writers' keys begin here: the statements meet none of them."""

STATEMENT = (
    "merge into {table} t using source s on t.k = s.k and t.d = s.d"
    " when matched then update set v = t.v + s.v, s = s.s"
    " when not matched then insert (d, k, v, s) values (s.d, s.k, s.v, s.s)"
)


def rows(keys: np.ndarray, months: np.ndarray, value: float, text: str) -> pa.Table:
    """Return rows with these keys; a row's month is 2024's."""
    days = (np.datetime64("2024-01", "M") + months.astype("timedelta64[M]")).astype("datetime64[D]")
    return pa.table(
        {
            "d": pa.array(days),
            "k": pa.array(keys, pa.int64()),
            "v": pa.array(np.full(len(keys), value)),
            "s": pa.array([f"{text}{key % 97}" for key in keys.tolist()]),
        }
    )


@dataclass
class Writer:
    """Inserts its rows one after the other until it is told to stop."""

    table: Table
    number: int
    inserted: int = 0
    took_s: list[float] = field(default_factory=list)
    problem: str = ""

    def run(self, stopped: threading.Event) -> None:
        """Insert until `stopped` is set or an insert is refused."""
        while not stopped.wait(PAUSE_S):
            first = FIRST_OF_WRITERS + (self.inserted * WRITERS + self.number) * WRITER_ROWS
            keys = np.arange(first, first + WRITER_ROWS)
            begin = time.perf_counter()
            try:
                self.table.insert(rows(keys, keys % MONTHS, 0.0, "w"))
            except ReplitreeError as error:
                self.problem = str(error)
                return
            self.took_s.append(time.perf_counter() - begin)
            self.inserted += 1


def measure(spark: SparkSession, cluster: LocalCluster, count: int, seed: int = 1) -> Measured:
    """Run the statements on a table of `count` rows.

    Raises
    ------
    ReplitreeError
        The rows are not what they should be, or a part was replaced for nothing.
    """
    import duckdb

    spark.conf.set(f"{CATALOG}.url", str(cluster.folder))
    table = cluster.create_table(
        "merged", "d date, k bigint not null, v double, s string", order_by="k", partition_by="month(d)"
    )
    keys = np.arange(count)
    base = rows(keys, keys * MONTHS // count, 0.0, "s")
    table.insert(base)
    database = duckdb.connect()
    database.register("base", base)
    database.execute("create table t as select * from base")
    chance, stopped = np.random.default_rng(seed), threading.Event()
    writers = [Writer(cluster.table("merged"), number) for number in range(WRITERS)]
    threads = [threading.Thread(target=writer.run, args=(stopped,)) for writer in writers]
    for thread in threads:
        thread.start()
    took, shares, retries = [], [], 0
    try:
        for number in range(MERGES):
            source, month = _source(chance, count, number)
            spark.createDataFrame(source).createOrReplaceTempView("source")
            begin = time.perf_counter()
            retries += _merge(spark)
            took.append(time.perf_counter() - begin)
            shares.append(_share(table, f"2024-{month + 1:02}"))
            database.register("source", source)
            database.execute(STATEMENT.format(table="t"))
    finally:
        stopped.set()
        for thread in threads:
            thread.join()
    for problem in (writer.problem for writer in writers if writer.problem):
        raise ReplitreeError(f"a writer was refused: {problem}")
    _compare(table, database, writers)
    inserts = [each for writer in writers for each in writer.took_s]
    return {
        "merge_p50_s": statistics.median(took),
        "merge_worst_s": max(took),
        "rewritten_share": max(shares),
        "retries": retries,
        "inserts": len(inserts),
        "insert_p99_ms": 1000 * float(np.quantile(inserts, 0.99)),
        "rows": count,
    }


def _source(chance: np.random.Generator, count: int, number: int) -> tuple[pa.Table, int]:
    """Return the rows of a source, and their month: nine of ten are there, one is new."""
    month = int(chance.integers(MONTHS))
    # The keys whose month it is: those of `rows` in `measure`.
    first, end = -(-month * count // MONTHS), -(-(month + 1) * count // MONTHS)
    there = chance.choice(np.arange(first, end), count // 100 * 9 // 10, replace=False)
    new = np.arange(count // 1000) + count * (number + 1)
    keys = np.concatenate([there, new])
    return rows(keys, np.full(len(keys), month), float(number + 1), f"m{number}-"), month


def _merge(spark: SparkSession) -> int:
    """Run the statement until it succeeds; return how often it had to be run again."""
    for retries in range(100):
        try:
            spark.sql(STATEMENT.format(table="replitree.default.merged"))
        except PySparkException as error:
            if "run it again" not in str(error):
                raise
        else:
            return retries
    raise ReplitreeError("a MERGE was refused a hundred times")


def _share(table: Table, partition: str) -> float:
    """Return the share of the rows that lie in parts which the last rewrite has made; they must be of one partition."""
    index = next(entry.index for entry in table.history() if entry.kind == "rewrite")
    snapshot = table.snapshot(level="linearizable")
    made = 0
    for part in snapshot.parts:
        name = parse_part(part.part)
        if index in (name.mutation, name.block_min):
            made += part.manifest.rows
            if name.partition != partition:
                raise ReplitreeError(f"a MERGE of {partition} has replaced {part.part}")
    return made / snapshot.rows


def _compare(table: Table, database: DuckDBPyConnection, writers: list[Writer]) -> None:
    """Compare every replica's rows with DuckDB's and with what the writers have inserted."""
    wanted = database.sql("select d, k, v, s from t order by k").to_arrow_table()
    inserted = sorted(
        FIRST_OF_WRITERS + (number * WRITERS + writer.number) * WRITER_ROWS
        for writer in writers
        for number in range(writer.inserted)
    )
    tail = table.status().log_tail - 1
    for replica in table.replicas():
        read = table.replica(replica.name).to_arrow(["d", "k", "v", "s"], None, tail).sort_by("k")
        keys = read["k"].to_numpy()
        ours = read.slice(0, int(np.searchsorted(keys, FIRST_OF_WRITERS)))
        theirs = keys[len(ours) :]
        if not ours.equals(wanted.cast(ours.schema)):
            raise ReplitreeError(f"replica {replica.name} has other rows than DuckDB after the same statements")
        if not np.array_equal(theirs[::WRITER_ROWS], inserted) or len(theirs) != len(inserted) * WRITER_ROWS:
            raise ReplitreeError(f"replica {replica.name} lacks rows of the writers, or has some twice")
