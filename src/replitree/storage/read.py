"""Read parts into Arrow.

Guarantees: rows come in the order of the given parts and, inside a part, of its files; columns have the table's types, in the
order asked for; a part that the predicate proves empty of wanted rows is not opened.

Absent on purpose: which parts a snapshot has (the replica says), merging of sorted runs, readers for Spark (its own reads the
same files).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from replitree.errors import BadInput, StoreError
from replitree.storage.definition import TableDefinition
from replitree.storage.manifest import PartManifest, read_manifest
from replitree.storage.predicate import Predicate
from replitree.storage.predicate_parser import parse_predicate

if TYPE_CHECKING:
    import pyarrow.dataset as ds

BATCH_ROWS = 131_072
"""Rows of a batch at most: those of a row group."""

BATCHES_AHEAD = 4
FILES_AHEAD = 2
"""How far a streaming reader reads ahead: its memory does not grow with the table."""


def read_parts(
    parts: Sequence[Path],
    definition: TableDefinition,
    columns: Sequence[str] | None = None,
    where: str | Predicate | None = None,
) -> pa.Table:
    """Read parts as one table.

    Parameters
    ----------
    parts
        Folders of parts.
    columns
        Names, in the order wanted; all by default.
    where
        Which rows, see `replitree.storage.predicate`.

    Raises
    ------
    BadInput
        Unknown column, or a predicate that can't be used.
    CorruptPart, StoreError
        A part can't be read.
    """
    with _reading(definition):
        scanner, schema = _scanner(parts, definition, columns, where)
        return scanner.to_table().cast(schema)


def read_batches(
    parts: Sequence[Path],
    definition: TableDefinition,
    columns: Sequence[str] | None = None,
    where: str | Predicate | None = None,
) -> pa.RecordBatchReader:
    """Read parts batch by batch, in bounded memory.  Parameters and errors as `read_parts`."""
    with _reading(definition):
        scanner, schema = _scanner(parts, definition, columns, where)
    return pa.RecordBatchReader.from_batches(schema, _batches(scanner, schema, definition))


@contextmanager
def _reading(definition: TableDefinition) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"can't read the parts of {definition.name}: {error}; ask for a new snapshot") from error
    except pa.ArrowException as error:
        raise StoreError(f"can't read the parts of {definition.name}: {error}; verify them") from error


def _batches(scanner: ds.Scanner, schema: pa.Schema, definition: TableDefinition) -> Iterator[pa.RecordBatch]:
    with _reading(definition):
        for batch in scanner.to_batches():
            if batch.num_rows:
                yield batch.cast(schema)


def wanted_parts(
    parts: Sequence[tuple[Path, PartManifest]], where: Predicate | None
) -> list[tuple[Path, PartManifest]]:
    """Leave out the parts in which no row can be wanted."""
    return [(path, manifest) for path, manifest in parts if where is None or where.may_match(manifest)]


def _scanner(
    parts: Sequence[Path],
    definition: TableDefinition,
    columns: Sequence[str] | None,
    where: str | Predicate | None,
) -> tuple[ds.Scanner, pa.Schema]:
    names = [c.name for c in definition.columns] if columns is None else [definition.column(n).name for n in columns]
    if not names:
        raise BadInput("name at least one column")
    schema = pa.schema([definition.arrow_schema.field(name) for name in names])
    predicate = parse_predicate(where, definition) if isinstance(where, str) else where
    found = wanted_parts([(path, read_manifest(path)) for path in parts], predicate)
    files = [str(path / file.name) for path, manifest in found for file in manifest.files]
    scanner = _dataset(files, definition).scanner(
        columns=names,
        filter=predicate.to_arrow() if predicate is not None else None,
        batch_size=BATCH_ROWS,
        batch_readahead=BATCHES_AHEAD,
        fragment_readahead=FILES_AHEAD,
    )
    return scanner, schema


def _dataset(files: Sequence[str], definition: TableDefinition) -> ds.Dataset:
    import pyarrow.dataset as ds

    # What the files promise is checked by the cast to the table's schema; a filter on "not null" would be simplified away.
    nullable = pa.schema([field.with_nullable(True) for field in definition.arrow_schema])
    if not files:
        return ds.dataset(nullable.empty_table())
    return ds.dataset(list(files), schema=nullable, format=ds.ParquetFileFormat())
