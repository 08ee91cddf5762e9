"""Read parts into Arrow.

Guarantees: rows come in the order of the given parts and, inside a part, of its files; columns have the table's types, in the
order asked for; a part that the predicate proves empty of wanted rows is not opened.

A part of an older schema version is read as `replitree.storage.schema.layout` says.  Neighbours with the same layout
are scanned together; as long as no column was altered that is one scan.

Absent on purpose: which parts a snapshot has (the replica says), merging of sorted runs, readers for Spark (its own reads the
same files).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from replitree.errors import BadInput, CorruptPart, StoreError
from replitree.storage.files.sums import is_summed
from replitree.storage.parts.manifest import read_manifest
from replitree.storage.parts.verified import CheckedFile, CheckedPart, StoredFile
from replitree.storage.schema.adapt import every_chunk
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.schema.layout import Layout, Origin, is_plain, layouts_of, stored_schema
from replitree.storage.sql.expression import wanted_rows
from replitree.storage.sql.predicate import Predicate
from replitree.storage.sql.predicate_parser import parse_predicate

if TYPE_CHECKING:
    import pyarrow.dataset as ds

BATCH_ROWS = 131_072
"""Rows of a batch at most: those of a row group."""

BATCHES_AHEAD = 4
FILES_AHEAD = 2
Piece: TypeAlias = tuple[int, int]
"""Which row groups of each file are read: the first number says which piece, from 0 on, and the second one of how many."""

READ_FIRST_BYTES = 32 << 20
"""How far a streaming reader reads ahead: its memory does not grow with the table.  Of small files, so many bytes are read when
a scan is planned."""


@dataclass(frozen=True, slots=True)
class FileScan:
    """A scan of neighbouring files of one layout.

    Attributes
    ----------
    scanner
        Gives the columns that are wanted; those of `reshaped` as the files have them.
    reshaped
        Position and origin of each column that files have with other fields inside.
    computed
        What the scanner could not filter by; None: nothing.
    columns
        With `computed`, how many columns are wanted; those after them are there for the condition alone.
    """

    scanner: ds.Scanner
    reshaped: tuple[tuple[int, Origin], ...] = ()
    computed: Predicate | None = None
    columns: int = 0

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Give the rows, batch by batch."""
        for batch in self.scanner.to_batches():
            shown = batch
            for place, origin in self.reshaped:
                shown = shown.set_column(place, origin.column.name, origin.shown(shown.column(place)))
            yield self._wanted(shown)

    def to_table(self) -> pa.Table:
        """Give all rows."""
        found = self.scanner.to_table()
        for place, origin in self.reshaped:
            values = every_chunk(found.column(place), origin.column.arrow_type, origin.shown)
            found = found.set_column(place, origin.column.name, values)
        if self.computed is None:
            return found
        # After the scan: the scanner can't calculate what is left of the condition.
        batches = [self._wanted(batch) for batch in found.to_batches()]
        return pa.Table.from_batches(batches, pa.schema(list(found.schema)[: self.columns]))

    def _wanted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.computed is None:
            return batch
        return wanted_rows(self.computed, batch).select(list(range(self.columns)))


def read_parts(
    parts: Sequence[Path | CheckedPart],
    definition: TableDefinition,
    columns: Sequence[str] | None = None,
    where: str | Predicate | None = None,
) -> pa.Table:
    """Read parts as one table.

    Parameters
    ----------
    parts
        Folders of parts, or parts whose manifests are known.  Every byte that is read of their files is verified.
    columns
        Names, in the order wanted; all by default.
    where
        Which rows, see `replitree.storage.sql.predicate`.

    Raises
    ------
    BadInput
        Unknown column, or a predicate that can't be used.
    CorruptPart, StoreError
        A part can't be read.
    """
    scans, schema = _scans(parts, definition, columns, where)
    with _reading(definition):
        tables = [scan.to_table().cast(schema) for scan in scans]
    return pa.concat_tables(tables) if tables else schema.empty_table()


def read_batches(
    parts: Sequence[Path | CheckedPart],
    definition: TableDefinition,
    columns: Sequence[str] | None = None,
    where: str | Predicate | None = None,
    piece: Piece = (0, 1),
) -> pa.RecordBatchReader:
    """Read parts batch by batch, in bounded memory.  Parameters and errors as `read_parts`; `piece`: only these row groups."""
    scans, schema = _scans(parts, definition, columns, where, piece)

    def batches() -> Iterator[pa.RecordBatch]:
        with _reading(definition):
            for scan in scans:
                for batch in scan.to_batches():
                    if batch.num_rows:
                        yield batch.cast(schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


@contextmanager
def _reading(definition: TableDefinition) -> Iterator[None]:
    try:
        yield
    except CorruptPart:
        raise
    # A file that vanished: the snapshot's lease has ended, and its parts were deleted.
    except OSError as error:
        raise StoreError(f"can't read the parts of {definition.name}: {error}; ask for a new snapshot") from error
    except pa.ArrowException as error:
        raise StoreError(f"can't read the parts of {definition.name}: {error}; verify them") from error


def wanted_parts(parts: Sequence[CheckedPart], where: Predicate | None) -> list[CheckedPart]:
    """Leave out the parts in which no row can be wanted."""
    return [part for part in parts if where is None or where.may_match(part.manifest)]


def _scans(
    parts: Sequence[Path | CheckedPart],
    definition: TableDefinition,
    columns: Sequence[str] | None,
    where: str | Predicate | None,
    piece: Piece = (0, 1),
) -> tuple[Iterator[FileScan], pa.Schema]:
    names = [column.name for column in definition.selected(columns)]
    if not names:
        raise BadInput("name at least one column")
    schema = pa.schema([definition.arrow_schema.field(name) for name in names])
    predicate = parse_predicate(where, definition) if isinstance(where, str) else where
    known = [part if isinstance(part, CheckedPart) else CheckedPart(part, read_manifest(part)) for part in parts]
    files = [(part.manifest.schema_version, file) for part in wanted_parts(known, predicate) for file in part.files]
    return scan_files(files, definition, names, predicate, piece=piece), schema


def scan_files(
    files: Sequence[tuple[int, CheckedFile | StoredFile]],
    definition: TableDefinition,
    names: Sequence[str],
    where: Predicate | None,
    *,
    batch_rows: int = BATCH_ROWS,
    batches_ahead: int = BATCHES_AHEAD,
    files_ahead: int = FILES_AHEAD,
    piece: Piece = (0, 1),
) -> Iterator[FileScan]:
    """Give the scans that read data files in their order: neighbours of one layout make one.

    Parameters
    ----------
    files
        Each with the schema version of its part.
    names
        Columns, in the order wanted; the scans give them these names and the table's types, every one nullable.
    where
        Which rows.
    batch_rows, batches_ahead, files_ahead
        Rows of a batch at most, and how far to read ahead.
    piece
        Which row groups of each file.

    Raises
    ------
    StoreError
        A part is newer than the definition.
    CorruptPart
        A file that is read in pieces has not as many rows as its manifest says.
    """
    plain, computed = where.split() if where is not None else (None, None)
    columns = len(names)
    # Columns of the calculated condition are read as well, behind those that were asked for, and dropped afterwards.
    if computed is not None:
        names = [*names, *(name for name in computed.columns if name not in names)]
    layouts = layouts_of(definition, (version for version, _ in files))
    for layout, group in groupby(files, lambda file: layouts[file[0]]):
        origins = {origin.column.name: origin for origin in layout}
        scanner = _dataset([path for _, path in group], layout, piece).scanner(
            columns=list(names) if is_plain(layout) else {name: origins[name].expression() for name in names},
            filter=plain.to_arrow(layout) if plain is not None else None,
            batch_size=batch_rows,
            batch_readahead=batches_ahead,
            fragment_readahead=files_ahead,
        )
        wanted = ((place, origins[name]) for place, name in enumerate(names))
        yield FileScan(
            scanner, tuple((place, origin) for place, origin in wanted if origin.is_reshaped), computed, columns
        )


def _dataset(files: Sequence[CheckedFile | StoredFile], layout: Layout, piece: Piece) -> ds.Dataset:
    import pyarrow.dataset as ds

    from replitree.storage.parts.checked_files import file_system_of

    # What the files promise is checked by the cast to the table's schema; a filter on "not null" would be simplified away.
    # The schema is the layout's, not that of the first file, which may lack columns.
    schema, form = stored_schema(layout), ds.ParquetFileFormat()
    checked = file_system_of({str(file.path): file for file in files})
    fragments, room = [], READ_FIRST_BYTES
    for file in files:
        # Of objects, also small ones are opened by the scan's threads: they wait for the store, side by side.
        if isinstance(file, StoredFile) or is_summed(file.entry.bytes) or file.entry.bytes > room:
            fragments.append(form.make_fragment(str(file.path), checked, file_size=file.entry.bytes))
        else:  # a scan's threads would wait for one another to open it: five times what it takes to read it here
            room -= file.entry.bytes
            fragments.append(form.make_fragment(file.read()))
    number, pieces = piece
    for place, file in enumerate(files if pieces > 1 else ()):
        groups, rows = fragments[place].num_row_groups, fragments[place].metadata.num_rows
        # The reader of a piece can't count the rows of the part: the footer, which all readers of the file have, must be right.
        if rows != file.entry.rows:
            raise CorruptPart(f"{file.path} has {rows} rows, its manifest says {file.entry.rows}; fetch the part again")
        first, end = groups * number // pieces, groups * (number + 1) // pieces
        fragments[place] = fragments[place].subset(row_group_ids=list(range(first, end)))
    return ds.FileSystemDataset(fragments, schema, form)
