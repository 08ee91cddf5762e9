"""Reading: a table through `to_df` against ``spark.read.read.parquet`` on the very same files, in turn, warmed.

Keys::

    sum_s, group_s, filter_s, count_s   seconds of an aggregation, for both
    parts                               of the table, each in a partition of its own: merges leave them as they are
    parts_opened                        for a range of the key that one part in `parts` holds; the peer opens all

The "peer" here is plain Spark on the table's own files: what it would cost without replitree.
"""

from __future__ import annotations

import datetime as dt
import statistics
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from replitree_bench.kit.report import Measured
from replitree_bench.kit.systems import DAY, SCHEMA, make_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from replitree.client import Connection, Table

PARTS = 100
PART_ROWS = 30_000
WARM_UPS = 2
LONGEST_MONTH = dt.timedelta(days=31)
TIMES = 7
"""Measurements of one query in one round, of which the median counts: one alone varies by a tenth."""

Query = Callable[["DataFrame"], "DataFrame"]

QUERIES: dict[str, Query] = {
    "sum_s": lambda frame: frame.selectExpr("sum(v)", "max(k)"),
    "group_s": lambda frame: frame.groupBy((frame.k % 1000).alias("g")).agg({"v": "avg", "s": "max"}),
    "filter_s": lambda frame: frame.where("v < 1000 AND s LIKE '1%'").selectExpr("count(*)", "sum(k)"),
    "count_s": lambda frame: frame.selectExpr("count(*)"),
}


def compare(query: Query, ways: Mapping[str, Callable[[], DataFrame]]) -> dict[str, float]:
    """Return the median time of a query on a frame made in each way, in seconds; measured in turn, warmed."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(WARM_UPS + TIMES):
        for name, frame in ways.items():
            begin = time.perf_counter()
            query(frame()).collect()
            if number >= WARM_UPS:
                times[name].append(time.perf_counter() - begin)
    return {name: statistics.median(found) for name, found in times.items()}


def rows_of(number: int, rows: int) -> pa.Table:
    """Return the rows of one part, in a month and with keys that no other part has; values hardly compress."""
    import numpy as np
    import pyarrow as pa

    draw = np.random.default_rng(number)
    columns = {
        "d": pa.repeat(pa.scalar(DAY + number * LONGEST_MONTH, pa.date32()), rows),
        "k": pa.array(np.arange(number * rows, (number + 1) * rows)),
        "v": pa.array(draw.uniform(0, 10_000, rows)),
        "s": pa.array(draw.integers(0, 10**9, rows)).cast(pa.string()),
    }
    return pa.table(columns)


class ReadBench:
    """A table of many parts, read in two ways.

    Parameters
    ----------
    spark, connection
        Where to read.
    parts, part_rows
        How large the table is; the parts' keys do not overlap.
    """

    def __init__(
        self, spark: SparkSession, connection: Connection, parts: int = PARTS, part_rows: int = PART_ROWS
    ) -> None:
        self._spark = spark
        self._parts = parts
        self._part_rows = part_rows
        self._table: Table = connection.create_table("readings", SCHEMA, order_by="k", partition_by="month(d)")
        for number in range(parts):
            self._table.insert(self._part(number))

    def _part(self, number: int) -> pa.Table:
        """Return the rows of one part, all in one month that no other part has."""
        import pyarrow as pa

        rows = make_rows(number * self._part_rows, self._part_rows)
        day = pa.repeat(pa.scalar(DAY + number * LONGEST_MONTH, pa.date32()), self._part_rows)
        return rows.set_column(0, rows.schema.field(0), day)

    def measure(self, _number: int) -> tuple[Measured, Measured]:
        """Run every query both ways, in turn; return ours and plain Spark's."""
        files = [str(file) for file in self._table.snapshot().files()]
        ours: Measured = {}
        plain: Measured = {}
        for name, query in QUERIES.items():
            ours[name], plain[name] = self._compare(query, files)
        where, opened = self._range()
        ours |= {"parts": len(files), "parts_opened": opened}
        plain |= {"parts": len(files), "parts_opened": len(self._spark.read.parquet(*files).where(where).inputFiles())}
        return ours, plain

    def _compare(self, query: Query, files: list[str]) -> tuple[float, float]:
        """Return the medians of both ways, measured in turn."""
        found = compare(
            query,
            {"ours": lambda: self._table.to_df(self._spark), "plain": lambda: self._spark.read.parquet(*files)},
        )
        return found["ours"], found["plain"]

    def _range(self) -> tuple[str, int]:
        """Ask for keys of one part in the middle; return the condition and how many parts Spark would open."""
        first = self._parts // 2 * self._part_rows
        where = f"k BETWEEN {first + 10} AND {first + 20}"
        frame = self._table.to_df(self._spark, where=where)
        assert frame.count() == 11
        return where, len({file.rpartition("/")[0] for file in frame.inputFiles()})
