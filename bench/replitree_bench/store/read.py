"""Reading in an object store: a table that lies there beside the same rows on local disks, through Spark, in turn, warmed.

Keys::

    sum_s, group_s, filter_s, count_s, all_s    seconds of an aggregation through `to_df`; the last one reads every column
    source_sum_s, source_all_s                  the same through ``format("replitree")``, whose tasks read with Arrow
    rows, parts, bytes                          of both tables, each part in a partition of its own

The "peer" is the table on local disks, read in the same way.  Nothing is kept between two reads: the gateway, through
which the JVM reads a bucket, forgets its blocks before each.  A session that S3A was set up for (in ``SPARK_CONF_DIR``) reads
with it what is not copied; the note ``opened`` has the schemes of all URLs that were read.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from replitree.errors import ReplitreeError
from replitree_bench.kit.report import Measured
from replitree_bench.kit.systems import SCHEMA
from replitree_bench.table.read import QUERIES, Query, compare, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from replitree.client import LocalCluster, Table

PARTS = 20
PART_ROWS = 100_000

STORE_QUERIES: dict[str, Query] = {**QUERIES, "all_s": lambda frame: frame.selectExpr("sum(hash(*))")}
SOURCE_QUERIES = ("sum_s", "all_s")


class StoreReadBench:
    """Two tables with the same rows, read by the same queries.

    Parameters
    ----------
    spark, cluster
        Where to read.
    store
        URL of the object store.
    parts, part_rows
        How large the tables are.
    """

    def __init__(
        self, spark: SparkSession, cluster: LocalCluster, store: str, parts: int = PARTS, part_rows: int = PART_ROWS
    ) -> None:
        self._spark = spark
        self._cluster = cluster
        self._stored = self._filled("in_the_store", store, parts, part_rows)
        self._local = self._filled("on_disk", "local", parts, part_rows)

    def measure(self, _number: int) -> tuple[Measured, Measured]:
        """Run every query on both tables, in both ways; return those of the table in the store, and of the other one."""
        ours, local = self._size(self._stored), self._size(self._local)
        if {key: ours[key] for key in ("rows", "parts")} != {key: local[key] for key in ("rows", "parts")}:
            raise ReplitreeError("a table was merged while it was read: the times could not be compared")
        ways: dict[str, tuple[Query, Callable[[Table], DataFrame]]] = {
            name: (query, self._direct) for name, query in STORE_QUERIES.items()
        }
        ways |= {f"source_{name}": (STORE_QUERIES[name], self._source) for name in SOURCE_QUERIES}
        for name, (query, frame) in ways.items():
            found = compare(
                query,
                {"ours": partial(frame, self._stored), "local": partial(frame, self._local)},
            )
            ours[name], local[name] = found["ours"], found["local"]
        return ours, local

    def opened(self) -> str:
        """Return the schemes of the URLs at which Spark's JVM opens the files of the table in the store."""
        return ", ".join(sorted({urlsplit(url).scheme for url in self._direct(self._stored).inputFiles()}))

    def _filled(self, name: str, storage: str, parts: int, part_rows: int) -> Table:
        table: Table = self._cluster.create_table(name, SCHEMA, order_by="k", partition_by="month(d)", storage=storage)
        for number in range(parts):
            table.insert(rows_of(number, part_rows))
        return table

    def _direct(self, table: Table) -> DataFrame:
        from replitree.spark.store.copies import these_copies
        from replitree.spark.store.gateway import this_gateway

        these_copies().forget()
        this_gateway().forget()
        return table.to_df(self._spark, through="store")

    def _source(self, table: Table) -> DataFrame:
        options = {"url": str(self._cluster.folder), "through": "store"}
        return self._spark.read.format("replitree").options(**options).load(table.name)

    def _size(self, table: Table) -> Measured:
        snapshot = table.snapshot()
        return {"rows": snapshot.rows, "parts": len(snapshot.parts), "bytes": snapshot.bytes}


__all__ = ["PARTS", "PART_ROWS", "StoreReadBench"]
