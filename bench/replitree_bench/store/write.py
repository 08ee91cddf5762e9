"""Writing into an object store through Spark: tasks that put files beside tasks whose files a replica puts, in turn, warmed.

Keys::

    rows_per_s, write_s    one job of ``format("replitree")`` into a new table, from its first task to the commit's answer
    replica_read_bytes     what the processes of all replicas have read of files meanwhile, by the system's own count
    bytes                  size of the parts' data files
    insert_…               the same of ``table.insert(df)``
    merge_s                the parts of eight jobs become one in each month: ``table.optimize(final=True, spark=spark)``

The "peer" is the same job with ``through=replica``: on this machine its tasks leave the files on the disk of a replica, which
reads them to verify them, and again to put them.  What is read of the store, such as the ends of files, is not in
``replica_read_bytes``: of each file at most 64 KB, when it is small all of it.  With ``through=replica`` the files of
``table.insert(df)`` are written by Spark's JVM.  Merges are made by a replica there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from replitree.client.transport.stored import Through
from replitree.errors import ReplitreeError
from replitree_bench.kit.report import Measured
from replitree_bench.kit.systems import SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from replitree.client import LocalCluster, Table

Save: TypeAlias = "Callable[[DataFrame, Table, Through], None]"
"""Writes a frame into a table, in one way."""

ROWS = 2_000_000
MONTHS, TASKS = 4, 4
MERGED_JOBS = 8
"""Jobs whose parts are merged, unless a test asks for fewer."""

SMALL = 1_000
"""Rows of a write that is not measured, before the first one that is."""

WAYS: tuple[Through, ...] = ("store", "replica")


class StoreWriteBench:
    """The same rows, written again and again into new tables.

    Parameters
    ----------
    spark, cluster
        Where to write.
    store
        URL of the object store.
    rows
        How many.
    merged_jobs
        How many jobs write the parts that are merged.
    """

    def __init__(
        self,
        spark: SparkSession,
        cluster: LocalCluster,
        store: str,
        rows: int = ROWS,
        merged_jobs: int = MERGED_JOBS,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._rows = rows
        self._merged_jobs = merged_jobs
        self._frame = rows_of(spark, rows).cache()
        if self._frame.count() != rows:
            raise ReplitreeError("the rows to write are not as many as asked for")
        self._saves: dict[str, Save] = {"": self._save, "insert_": _insert}
        for way in WAYS:
            for what, save in self._saves.items():
                self._write(rows_of(spark, SMALL), f"warm_{what}{way}", way, save)
            self._merge("warm_merge", way)

    def measure(self, number: int) -> tuple[Measured, Measured]:
        """Write in both ways; return what is found of the one through the store, and of the other."""
        found = {way: self._measured(number, way) for way in (WAYS if number % 2 == 0 else WAYS[::-1])}
        return found["store"], found["replica"]

    def _measured(self, number: int, way: Through) -> Measured:
        found: Measured = {}
        for what, save in self._saves.items():
            before = self._read_bytes()
            seconds, size = self._write(self._frame, f"write_{what}{way}_{number}", way, save)
            read = float(self._read_bytes() - before)
            found |= {
                f"{what}rows_per_s": self._rows / seconds,
                f"{what}write_s": seconds,
                f"{what}replica_read_bytes": read,
                f"{what}bytes": float(size),
            }
        return found | {"merge_s": self._merge(f"merge_{way}_{number}", way)}

    def _merge(self, name: str, way: Through) -> float:
        """Return how many seconds it takes to merge all rows, as several jobs have written them."""
        table = self._table(name)
        table.pause_merges()
        for job in range(self._merged_jobs):
            _insert(self._frame.where(f"k % {self._merged_jobs} = {job}"), table, "store")
        table.resume_merges()
        begin = time.perf_counter()
        result = table.optimize(final=True, spark=self._frame.sparkSession if way == "store" else None)
        seconds = time.perf_counter() - begin
        snapshot = table.snapshot(table.status().log_tail - 1)
        if not result.finished or len(snapshot.files()) != MONTHS or snapshot.rows != self._rows:
            raise ReplitreeError(f"{snapshot.rows:,} of {self._rows:,} rows were merged: {result}")
        self._cluster.drop_table(name)
        return seconds

    def _table(self, name: str) -> Table:
        return self._cluster.create_table(name, SCHEMA, order_by="k", partition_by="month(d)", storage=self._store)

    def _write(self, frame: DataFrame, name: str, way: Through, save: Save) -> tuple[float, int]:
        """Write into a new table; return the seconds, and the bytes of its data files."""
        table = self._table(name)
        begin = time.perf_counter()
        save(frame, table, way)
        seconds = time.perf_counter() - begin
        snapshot = table.snapshot(table.status().log_tail - 1)
        if snapshot.rows not in (self._rows, SMALL):
            raise ReplitreeError(f"{snapshot.rows:,} rows arrived, not {self._rows:,}")
        size: int = snapshot.bytes
        self._cluster.drop_table(name)
        return seconds, size

    def _save(self, frame: DataFrame, table: Table, way: Through) -> None:
        options = {"url": str(self._cluster.folder), "table": table.name, "through": way}
        frame.write.format("replitree").options(**options).mode("append").save()

    def _read_bytes(self) -> int:
        """Bytes that the replicas have read of files so far."""
        return sum(_read_of(process.pid) for process in self._cluster.processes)


def _insert(frame: DataFrame, table: Table, way: Through) -> None:
    from replitree.spark.write.write import insert_df

    insert_df(table, frame, through=way, deduplicate=False)


def rows_of(spark: SparkSession, rows: int) -> DataFrame:
    """Return rows of the common schema, in as many tasks and months as there are; values hardly compress."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

    return spark.range(0, rows, 1, TASKS).select(
        F.expr(f"add_months(date'2024-01-01', cast(id % {MONTHS} as int))").alias("d"),
        F.col("id").alias("k"),
        (F.rand(7) * 10_000).alias("v"),
        F.xxhash64("id").cast("string").alias("s"),
    )


def _read_of(pid: int) -> int:
    text = Path(f"/proc/{pid}/io").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("rchar:"))


__all__ = ["ROWS", "StoreWriteBench", "rows_of"]
