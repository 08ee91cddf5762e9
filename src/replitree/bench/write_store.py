"""Writing into an object store through Spark: tasks that put files beside tasks whose files a replica puts, in turn, warmed.

Keys::

    rows_per_s, write_s    one job of ``format("replitree")`` into a new table, from its first task to the commit's answer
    replica_read_bytes     what the processes of all replicas have read of files meanwhile, by the system's own count
    bytes                  size of the parts' data files

The "peer" is the same job with ``through=replica``: on this machine its tasks leave the files on the disk of a replica, which
reads them to verify them, and again to put them.  What is read of the store, such as the ends of files, is not in
``replica_read_bytes``: of each file at most 64 KB, when it is small all of it.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from replitree.bench.report import Measured
from replitree.bench.systems import SCHEMA
from replitree.errors import ReplitreeError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from replitree.client import LocalCluster

ROWS = 2_000_000
MONTHS, TASKS = 4, 4
SMALL = 1_000
"""Rows of a write that is not measured, before the first one that is."""

WAYS = ("store", "replica")


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
    """

    def __init__(self, spark: SparkSession, cluster: LocalCluster, store: str, rows: int = ROWS) -> None:
        self._cluster = cluster
        self._store = store
        self._rows = rows
        self._frame = rows_of(spark, rows).cache()
        if self._frame.count() != rows:
            raise ReplitreeError("the rows to write are not as many as asked for")
        for way in WAYS:
            self._write(rows_of(spark, SMALL), f"warm_{way}", way)

    def measure(self, number: int) -> tuple[Measured, Measured]:
        """Write in both ways; return what is found of the one through the store, and of the other."""
        found = {way: self._measured(f"write_{way}_{number}", way) for way in (WAYS if number % 2 == 0 else WAYS[::-1])}
        return found["store"], found["replica"]

    def _measured(self, table: str, way: str) -> Measured:
        before = self._read_bytes()
        seconds, size = self._write(self._frame, table, way)
        read = float(self._read_bytes() - before)
        return {
            "rows_per_s": self._rows / seconds,
            "write_s": seconds,
            "replica_read_bytes": read,
            "bytes": float(size),
        }

    def _write(self, frame: DataFrame, name: str, way: str) -> tuple[float, int]:
        """Write into a new table; return the seconds, and the bytes of its data files."""
        cluster = self._cluster
        table = cluster.create_table(name, SCHEMA, order_by="k", partition_by="month(d)", storage=self._store)
        options = {"url": str(cluster.folder), "table": name, "through": way}
        begin = time.perf_counter()
        frame.write.format("replitree").options(**options).mode("append").save()
        seconds = time.perf_counter() - begin
        snapshot = table.snapshot(table.status().log_tail - 1)
        if snapshot.rows not in (self._rows, SMALL):
            raise ReplitreeError(f"{snapshot.rows:,} rows arrived, not {self._rows:,}")
        size: int = snapshot.bytes
        cluster.drop_table(name)
        return seconds, size

    def _read_bytes(self) -> int:
        """Bytes that the replicas have read of files so far."""
        return sum(_read_of(process.pid) for process in self._cluster.processes)


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
