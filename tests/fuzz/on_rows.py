"""Targets: rows: Arrow streams of inserts, Parquet files that become parts, files that users load."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from replitree.cli.tables.files import FileFormat, RowSource, open_rows, slices
from replitree.errors import BadInput, CorruptPart
from replitree.replica.http.bodies import decode
from replitree.storage.parts.adopt import adopt_files
from replitree.storage.parts.conform import conform
from replitree.storage.parts.encode import stage_table
from replitree.storage.parts.ipc_extent import measure
from replitree.storage.parts.plain_arrays import Budget
from replitree.storage.rewrite.read import read_parts
from replitree.storage.schema.definition import TableDefinition, define_table
from tests.fuzz.mutate import Shape
from tests.fuzz.target import Read, Target
from tests.storage.support import EVERY_TYPE

_ROWS_MAX, _BYTES_MAX = 100_000, 16 << 20
"""Limits of one body: low, so that what is not measured shows."""

ROWS = define_table("every", EVERY_TYPE, order_by=["i64", "s"], table_id="0" * 32)
FLAT = define_table(
    "flat",
    "k bigint not null, v double, s string, d date, t timestamp, m decimal(12,2), b boolean",
    order_by=["k"],
    table_id="1" * 32,
)


@contextmanager
def _arrow(folder: Path) -> Iterator[Read]:
    """Take the body of an insert as a replica does: parse, conform, write the parts, read them."""

    def one(data: bytes) -> None:
        extent = measure(data, rows_max=_ROWS_MAX, bytes_max=_BYTES_MAX)
        _staged(conform(decode(data, extent), ROWS, Budget(_BYTES_MAX)), ROWS, folder)

    yield one


def _staged(table: object, definition: TableDefinition, folder: Path) -> None:
    staged = folder / "staged"
    try:
        manifests = stage_table(table, definition, staged, sync=False)
        if manifests:
            read_parts([staged / manifest.partition for manifest in manifests], definition)
    finally:
        shutil.rmtree(staged, ignore_errors=True)


@contextmanager
def _adopted(folder: Path) -> Iterator[Read]:
    """Make a Parquet file a part, as an upload does, and read it."""
    file, staged = folder / "rows.parquet", folder / "adopted"

    def one(data: bytes) -> None:
        file.write_bytes(data)
        try:
            manifest = adopt_files([file], ROWS, staged, sync=False)
            read_parts([staged / manifest.partition], ROWS)
        finally:
            shutil.rmtree(staged, ignore_errors=True)

    yield one


def _loaded(file_format: FileFormat, definition: TableDefinition) -> Callable[[Path], AbstractContextManager[Read]]:
    """Load a file as `replitree insert` does: with the columns of the table, or with those that are found in it."""

    @contextmanager
    def opened(folder: Path) -> Iterator[Read]:
        path = folder / f"rows.{file_format.value}"

        def one(data: bytes) -> None:
            path.write_bytes(data)
            expected = definition.arrow_schema if len(data) % 2 else None
            found = open_rows(RowSource(path, file_format), expected)
            for piece in slices(found.batches, found.schema, 1000):
                conform(piece, definition)

        yield one

    return opened


_LOADED = (BadInput,)

TARGETS = (
    Target("arrow", _arrow, (BadInput,), share=250),
    Target("parquet", _adopted, (BadInput, CorruptPart), share=100),
    Target("load-csv", _loaded(FileFormat.CSV, FLAT), _LOADED, Shape.LINES, share=150),
    Target("load-jsonl", _loaded(FileFormat.JSONL, FLAT), _LOADED, Shape.LINES, share=150),
    Target("load-parquet", _loaded(FileFormat.PARQUET, FLAT), _LOADED, share=120),
    Target("load-arrow", _loaded(FileFormat.ARROW, FLAT), _LOADED, share=150),
)
