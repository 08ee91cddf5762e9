"""Other engines: DuckDB, Polars and pandas on a table, beside their own readers on the very same files, in turn, warmed.

Keys; of each the peer has the same query on the table's files, by the engine's own Parquet reader::

    duckdb_filter_s, duckdb_range_s     a relation of `Table.scan`: 1 row in 1,000 by a column that no statistics help with;
                                        a fortieth of the key
    duckdb_dataset_s                    the filter on `Snapshot.dataset`
    duckdb_arrow_s, polars_arrow_s      the same; the peer is a dataset that pyarrow makes of the files
    arrow_in_duckdb_s,                  that dataset of pyarrow's, beside the engine's own reader: what Arrow's reader costs,
    arrow_in_polars_s                   whoever makes the dataset
    polars_filter_s, polars_range_s     the same on a lazy frame of `Table.scan`
    polars_dataset_s                    the filter on `Snapshot.dataset`
    pandas_filter_s                     `Snapshot.scan` with the filter as its condition, to a DataFrame of pandas
    pandas_fresh_s                      the same by `Table.scan`, which takes a snapshot each time; the others take one for all
    first_s                             a relation is made for the first time: snapshot, and every byte compared; no peer
    again_s                             the same afterwards; no peer
    rows, files                         of the table

Every answer is compared with the peer's.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from replitree_bench.kit.report import Measured
from replitree_bench.kit.systems import SCHEMA
from replitree_bench.table.read import rows_of

if TYPE_CHECKING:
    from replitree.client import Connection, Snapshot, Table

PARTS = 4
PART_ROWS = 1_000_000
WARM_UPS = 2
TIMES = 7
"""Measurements of one query in one round, of which the median counts."""

VALUES_MAX = 10_000
"""Values of `v` are spread evenly below this: see `rows_of`."""

RANGE = 40
"""One in so many keys is in the range."""

Answer = tuple[int, float]


class EngineBench:
    """A table of some large parts, and the engines that read it.

    Parameters
    ----------
    connection
        Where to make the table.
    parts, part_rows
        How large it is.
    """

    def __init__(self, connection: Connection, parts: int = PARTS, part_rows: int = PART_ROWS) -> None:
        self._rows = parts * part_rows
        self._table: Table = connection.create_table("engines", SCHEMA, order_by="k", partition_by="month(d)")
        for number in range(parts):
            # Each in a month of its own: merges leave the parts as they are.
            self._table.insert(rows_of(number, part_rows))
        first = self._rows // 2
        self._range = first, first + self._rows // RANGE

    def measure(self, number: int) -> tuple[Measured, Measured]:
        """Run every query both ways, in turn; return ours and the engines' own."""
        import duckdb

        begin = time.perf_counter()
        relation = self._table.scan().to_duckdb(duckdb.connect())
        first_s = time.perf_counter() - begin
        begin = time.perf_counter()
        self._table.scan().to_duckdb(duckdb.connect())
        again_s = time.perf_counter() - begin
        snapshot = self._table.snapshot()
        files = snapshot.files()
        ours: Measured = {"rows": self._rows, "files": len(files), "again_s": again_s}
        # Later rounds find that this process has compared the files.
        ours |= {"first_s": first_s} if number == 0 else {}
        theirs: Measured = {"rows": self._rows, "files": len(files)}
        for name, (own, plain) in self._queries(relation, snapshot, files).items():
            ours[name], theirs[name] = compare(own, plain)
        return ours, theirs

    def _queries(
        self, relation: Any, snapshot: Snapshot, files: list[Path]
    ) -> dict[str, tuple[Callable[[], Answer], Callable[[], Answer]]]:
        """Return each query, ours and the engine's own."""
        import duckdb
        import pandas as pd
        import polars as pl
        import pyarrow.dataset as ds

        low, high = self._range
        limit = VALUES_MAX / 1_000
        filters = {"filter": f"v < {limit}", "range": f"k BETWEEN {low} AND {high}"}
        wanted = {"filter": pl.col("v") < limit, "range": pl.col("k").is_between(low, high)}
        con = duckdb.connect()
        plain = con.read_parquet([str(file) for file in files])
        dataset = snapshot.dataset()
        shown = con.from_arrow(dataset)
        lazy = self._table.scan().to_polars(lazy=True)
        paths = [str(file) for file in files]
        arrow = ds.dataset(paths)
        arrow_shown = con.from_arrow(arrow)

        def by_duckdb(rows: Any, name: str) -> Answer:
            count, total = rows.filter(filters[name]).aggregate("count(*), sum(v)").fetchall()[0]
            return int(count), float(total)

        def by_polars(frame: pl.LazyFrame, name: str) -> Answer:
            count, total = frame.filter(wanted[name]).select(pl.len(), pl.col("v").sum()).collect().row(0)
            return int(count), float(total)

        def by_pandas(frame: Any) -> Answer:
            return len(frame), float(frame["v"].sum())

        found: dict[str, tuple[Callable[[], Answer], Callable[[], Answer]]] = {
            "duckdb_dataset_s": (lambda: by_duckdb(shown, "filter"), lambda: by_duckdb(plain, "filter")),
            "duckdb_arrow_s": (lambda: by_duckdb(shown, "filter"), lambda: by_duckdb(arrow_shown, "filter")),
            "polars_arrow_s": (
                lambda: by_polars(pl.scan_pyarrow_dataset(dataset), "filter"),
                lambda: by_polars(pl.scan_pyarrow_dataset(arrow), "filter"),
            ),
            "arrow_in_duckdb_s": (lambda: by_duckdb(arrow_shown, "filter"), lambda: by_duckdb(plain, "filter")),
            "arrow_in_polars_s": (
                lambda: by_polars(pl.scan_pyarrow_dataset(arrow), "filter"),
                lambda: by_polars(pl.scan_parquet(paths), "filter"),
            ),
            "polars_dataset_s": (
                lambda: by_polars(pl.scan_pyarrow_dataset(dataset), "filter"),
                lambda: by_polars(pl.scan_parquet(paths), "filter"),
            ),
        }
        for name, scanned in {"filter": snapshot, "fresh": self._table}.items():
            found[f"pandas_{name}_s"] = (
                lambda scanned=scanned: by_pandas(scanned.scan(["v"], filters["filter"]).to_pandas()),  # type: ignore[misc]
                lambda: by_pandas(pd.read_parquet(paths, columns=["v"], filters=[("v", "<", limit)])),
            )
        for name in filters:
            found[f"duckdb_{name}_s"] = (
                lambda name=name: by_duckdb(relation, name),  # type: ignore[misc]
                lambda name=name: by_duckdb(plain, name),  # type: ignore[misc]
            )
            found[f"polars_{name}_s"] = (
                lambda name=name: by_polars(lazy, name),  # type: ignore[misc]
                lambda name=name: by_polars(pl.scan_parquet(paths), name),  # type: ignore[misc]
            )
        return found


def compare(own: Callable[[], Answer], plain: Callable[[], Answer]) -> tuple[float, float]:
    """Return the median times of both, in seconds; measured in turn, warmed.

    Raises
    ------
    AssertionError
        They have different answers.
    """
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(WARM_UPS + TIMES):
        answers = []
        ways = ((own, times[0]), (plain, times[1]))
        # Whoever runs second finds the files in the processor's caches: they take turns.
        for way, kept in ways if number % 2 == 0 else ways[::-1]:
            begin = time.perf_counter()
            answers.append(way())
            if number >= WARM_UPS:
                kept.append(time.perf_counter() - begin)
        (count, total), (other_count, other_total) = answers
        assert count == other_count > 0
        # The order in which threads add up their sums differs.
        assert abs(total - other_total) <= 1e-9 * abs(total)
    return statistics.median(times[0]), statistics.median(times[1])
