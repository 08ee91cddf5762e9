"""Engines that read Arrow, each an extra of the distribution: DuckDB, Polars and pandas.

They are imported when a caller asks for one, and not before.

An engine that reads data files by itself (`replitree.client.read.native`) knows no snapshot.  So it gets the union of the files
and of an empty source, which is a Python object that has the snapshot, and the snapshot has the lease: the files stay for as
long as the engine has the plan.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from replitree.errors import EngineMissing

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    from duckdb import DuckDBPyConnection, DuckDBPyRelation
    from pyarrow.dataset import Dataset

NAMES = {"duckdb": "DuckDB", "pandas": "pandas", "polars": "Polars"}
"""Extras of the distribution, which have the packages' own names, and what messages call them."""


HELD = "__replitree_"
"""Before a view's name, the name of what keeps its snapshot."""


class HeldSnapshot(Protocol):
    """What is scanned: a snapshot of a table, or of the shards of one."""

    def check(self) -> None:
        """Do nothing, unless the files may go at any time.  Raises `LeaseLost`."""


class EngineScan(Protocol):
    """A scan of one snapshot, as engines read it: `Scan`, or `ShardedScan`."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its columns."""

    @property
    def schema(self) -> pa.Schema:
        """Its Arrow schema."""

    @property
    def snapshot(self) -> HeldSnapshot | None:
        """What is scanned."""

    @property
    def is_native(self) -> bool:
        """Whether a dataset has just its rows."""

    def native_paths(self) -> list[Path] | None:
        """Return the files that an engine may read by itself; None when it must not."""

    def dataset(self) -> Dataset:
        """Return the rows as a dataset."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read the rows batch by batch."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows as a capsule of Arrow's C stream interface."""


def engine(extra: str) -> Any:
    """Return the module of an engine.

    Raises
    ------
    EngineMissing
        It is not installed; names the extra that installs it.
    """
    try:
        return importlib.import_module(extra)
    except ModuleNotFoundError as error:
        if error.name != extra:
            raise
        raise EngineMissing(f"replitree has no {NAMES[extra]} here: pip install 'replitree[{extra}]'") from error


def polars_frame(read: Callable[[], pa.Table]) -> pl.DataFrame:
    """Return rows as a DataFrame of Polars; `read` is called when Polars is there."""
    polars = engine("polars")
    frame: pl.DataFrame = polars.from_arrow(read())
    return frame


def polars_lazy(scan: EngineScan) -> pl.LazyFrame:
    """Return a LazyFrame of a scan of one snapshot."""
    polars = engine("polars")
    paths = scan.native_paths()
    if paths is not None:
        files = polars.scan_parquet(paths, glob=False, hive_partitioning=False).select(scan.names)
        # Polars keeps the function, and the function keeps the snapshot, for as long as there is a frame of these files.
        held = _polars_source(lambda: iter(()), files.collect_schema(), scan)
        joined: pl.LazyFrame = polars.concat([files, held])
        return joined
    if scan.is_native:
        native: pl.LazyFrame = polars.scan_pyarrow_dataset(scan.dataset())
        return native
    return _polars_source(scan.batches, polars.from_arrow(scan.schema.empty_table()).schema, scan)


def _polars_source(
    batches: Callable[[], Iterator[pa.RecordBatch]], schema: pl.Schema, held: EngineScan
) -> pl.LazyFrame:
    """Return a LazyFrame of rows that are read anew for each query."""
    polars = engine("polars")
    from polars.io.plugins import register_io_source

    def read(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        del batch_size
        # The files may go when the lease was lost, and what reads them by itself would say only that one is missing.
        if held.snapshot is not None:
            held.snapshot.check()
        # At least one frame, which may be empty: it has the columns.
        frames = (polars.from_arrow(batch) for batch in batches())
        left = n_rows
        for frame in chain([polars.DataFrame(schema=schema)], frames):
            # Its own condition may look at columns that are not wanted, so it is applied first.
            found = frame if predicate is None else frame.filter(predicate)
            found = found if with_columns is None else found.select(with_columns)
            found = found if left is None else found.head(left)
            left = None if left is None else left - found.height
            yield found
            if left == 0:
                return

    return register_io_source(read, schema=schema, is_pure=True)


class _SnapshotKeeper:
    """No rows, as a stream of Arrow's: what DuckDB reads beside files keeps their snapshot."""

    def __init__(self, scan: EngineScan) -> None:
        self._scan = scan

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return an empty stream.  Raises `LeaseLost`: then the files may go, and DuckDB would only miss one."""
        if self._scan.snapshot is not None:
            self._scan.snapshot.check()
        return self._scan.schema.empty_table().__arrow_c_stream__(requested_schema)


def duckdb_relation(con: DuckDBPyConnection, scan: EngineScan, name: str | None) -> DuckDBPyRelation:
    """Return a scan of one snapshot as a relation of DuckDB, also as a view of this name."""
    engine("duckdb")
    paths = scan.native_paths()
    rows = scan.dataset() if paths is None and scan.is_native else scan
    columns = ", ".join(_quoted(column) for column in scan.names)
    if name is None:
        if paths is None:
            return con.from_arrow(rows)
        files = con.read_parquet([str(path) for path in paths], hive_partitioning=False)
        return files.project(columns).union(con.from_arrow(_SnapshotKeeper(scan)))
    # A registered object stays for as long as the connection, or until another one takes its name.
    if paths is None:
        con.unregister(f"{HELD}{name}")
        # A view of files that has the name gives way to no registered object.
        con.execute(f"DROP VIEW IF EXISTS temp.{_quoted(name)}")
        con.register(name, rows)
    else:
        con.register(f"{HELD}{name}", _SnapshotKeeper(scan))
        _view_of_files(con, name, paths, columns, f" UNION ALL SELECT {columns} FROM {_quoted(HELD + name)}")  # noqa: S608 - quoted
    return con.table(name)


def duckdb_view(con: DuckDBPyConnection, scan: EngineScan, name: str) -> None:
    """Make a view of a scan of one snapshot, which the caller keeps for as long as the view is used.

    Parameters
    ----------
    con
        Gets the view, in the place of one of this name.
    scan
        Made by `Snapshot.scan` or `ShardedSnapshot.scan`.
    name
        Of the view.

    Raises
    ------
    EngineMissing
        DuckDB is not installed.  Other errors as `Scan.to_arrow`.
    """
    paths = scan.native_paths()
    if paths is None:
        duckdb_relation(con, scan, name)
    else:
        # No object of Arrow's beside the files: DuckDB would import pandas for it, which takes longer than a small query.
        _view_of_files(con, name, paths, ", ".join(_quoted(column) for column in scan.names))


def _view_of_files(con: DuckDBPyConnection, name: str, paths: Sequence[Path], columns: str, more: str = "") -> None:
    """Make a view of these columns of files, and of more rows."""
    texts = ", ".join("'" + str(path).replace("'", "''") + "'" for path in paths)
    con.execute(  # names and paths are quoted
        f"CREATE OR REPLACE TEMP VIEW {_quoted(name)} AS"  # noqa: S608
        f" SELECT {columns} FROM read_parquet([{texts}], hive_partitioning = false){more}"
    )


def _quoted(name: str) -> str:
    """Return a name as DuckDB's SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


__all__ = ["HELD", "NAMES", "duckdb_relation", "duckdb_view", "engine", "polars_frame", "polars_lazy"]
