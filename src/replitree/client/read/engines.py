"""Engines that read Arrow, each an extra of the distribution: DuckDB, Polars and pandas.

They are imported when a caller asks for one, and not before.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from replitree.errors import EngineMissing

if TYPE_CHECKING:
    import polars as pl
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

    from replitree.client.read.scan import Scan
    from replitree.client.read.snapshot import Snapshot

NAMES = {"duckdb": "DuckDB", "pandas": "pandas", "polars": "Polars"}
"""Extras of the distribution, which have the packages' own names, and what messages call them."""


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


def polars_lazy(scan: Scan, is_native: Callable[[Snapshot | None], bool]) -> pl.LazyFrame:
    """Return a LazyFrame of a scan of one snapshot."""
    polars = engine("polars")
    if is_native(scan.snapshot):
        native: pl.LazyFrame = polars.scan_pyarrow_dataset(scan.dataset())
        return native
    from polars.io.plugins import register_io_source

    def read(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        del batch_size
        left = n_rows
        for batch in scan.batches():
            frame = polars.from_arrow(batch)
            # Its own condition may look at columns that are not wanted, so it is applied first.
            frame = frame if predicate is None else frame.filter(predicate)
            frame = frame if with_columns is None else frame.select(with_columns)
            frame = frame if left is None else frame.head(left)
            left = None if left is None else left - frame.height
            yield frame
            if left == 0:
                return

    schema = polars.from_arrow(scan.schema.empty_table()).schema
    return register_io_source(read, schema=schema, is_pure=True)


def duckdb_relation(con: DuckDBPyConnection, rows: Any, name: str | None) -> DuckDBPyRelation:
    """Return rows as a relation of DuckDB, also as a view of this name.

    Parameters
    ----------
    con
        The connection.
    rows
        A dataset of Arrow's, or what has ``__arrow_c_stream__``.
    name
        Of the view.
    """
    engine("duckdb")
    if name is None:
        return con.from_arrow(rows)
    # A registered object stays for as long as the connection has the view.
    con.register(name, rows)
    return con.table(name)


__all__ = ["NAMES", "duckdb_relation", "engine", "polars_frame", "polars_lazy"]
