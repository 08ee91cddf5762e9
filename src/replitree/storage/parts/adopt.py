"""Adopt: Parquet files that Spark or a user wrote become a part as they are.

What `adopt_files` does, in this order:

1. check every file's schema, from its footer
2. read every file once, a batch at a time: each must be sorted by the order key, and all rows be of one partition; statistics,
   content hash and checksums come from the same pass
3. move the files into ``<folder>/<partition>/data-N.parquet``
4. sync them, write the manifest, sync the folders

Until step 3 nothing is changed, so a file that can't be adopted stays where it is.  Each file is a sorted run of its own; runs
may overlap.

Absent on purpose: sorting and converting.  Rows that need it go through `replitree.storage.parts.encode`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa

from replitree import private
from replitree.errors import BadInput, SchemaMismatch
from replitree.storage.files.durable import (
    copy_file,
    file_bytes,
    file_sums,
    make_folder,
    on_one_disk,
    rename,
    store_errors,
    sync_folder,
)
from replitree.storage.files.sums import Sums, is_summed
from replitree.storage.parts.content_hash import ContentHasher
from replitree.storage.parts.encode import seal_part
from replitree.storage.parts.encodings import columns_with_nan
from replitree.storage.parts.manifest import FileEntry, PartManifest, data_file
from replitree.storage.parts.order import is_sorted
from replitree.storage.parts.statistics import StatisticsCollector
from replitree.storage.parts.sums_files import write_sums
from replitree.storage.schema.bounds import Scalar
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.schema.partition import split_by_partition
from replitree.storage.schema.types import format_type, storable_type

BATCH_ROWS = 131_072


def adopt_files(
    files: Sequence[Path],
    definition: TableDefinition,
    folder: Path,
    partition: str | None = None,
    *,
    sync: bool = True,
) -> PartManifest:
    """Make Parquet files a staged part.

    Parameters
    ----------
    files
        At least one; each sorted by the order key (nulls first), all of one partition.  Their columns have the stored names
        of the table's (see `replitree.storage.schema.columns`).  They are moved; files without rows are left where they are.
    definition
        The table.
    folder
        Where the part's folder goes; made if missing.  Its parent must exist.
    partition
        The partition that all rows must be in; by default the one that they are in.

    Raises
    ------
    SchemaMismatch
        A file has other columns than the table.
    BadInput
        A file is not Parquet, not sorted, or has rows of another partition; or there are no rows.
    StoreError
        The disk is full or failing.
    """
    with store_errors(f"adopt files into {folder}"):
        pass_ = _Pass(definition.stored, partition)
        entries = [(path, entry) for path in files if (entry := pass_.file(path)) is not None]
        if not entries:
            raise BadInput("there are no rows in the files; nothing to insert")
        manifest = pass_.manifest(
            tuple(
                FileEntry(data_file(i), entry.rows, entry.bytes, entry.checksum) for i, (_, entry) in enumerate(entries)
            )
        )
        make_folder(folder)
        target = folder / manifest.partition
        private.make_folder(target)
        for (path, _), entry in zip(entries, manifest.files, strict=True):
            place = target / entry.name
            if on_one_disk(path, target):
                rename(path, place)
                # A moved file keeps the mode that Spark or the user gave it.
                private.fit(place)
            else:
                # The copy is synced before the source goes: a crash in between leaves both, and the copy lies in staging.
                copy_file(path, place)
                path.unlink()
            if is_summed(entry.bytes):
                write_sums(place, pass_.sums[path])
        # The manifest comes last: until it is written the folder is no part, and the sweep of staging deletes it.
        seal_part(target, manifest, sync=sync)
        if sync:
            sync_folder(folder)
            sync_folder(folder.parent)
    return manifest


def described(folder: Path, manifest: PartManifest, definition: TableDefinition, batch_rows: int) -> PartManifest:
    """Read every row of a part; return its manifest as the rows say it should be.

    Parameters
    ----------
    folder
        Where its data files are.
    definition
        The table with the columns of the part's schema version.
    batch_rows
        How many rows are in memory at once.

    Raises
    ------
    SchemaMismatch, BadInput
        As `adopt_files`.
    StoreError
        The disk is failing.
    """
    pass_ = _Pass(definition.stored, manifest.partition)
    with store_errors(f"read the part in {folder}"):
        rows = [pass_.rows(folder / file.name, batch_rows) for file in manifest.files]
    files = tuple(msgspec.structs.replace(file, rows=count) for file, count in zip(manifest.files, rows, strict=True))
    return pass_.manifest(files) if sum(rows) else msgspec.structs.replace(manifest, files=files, rows=0)


@dataclass(slots=True)
class _Group:
    partition: str
    values: tuple[Scalar, ...]


class _Pass:
    """The one pass over all rows, and what it has found so far."""

    def __init__(self, definition: TableDefinition, partition: str | None) -> None:
        self._definition = definition
        self._expected = partition
        self._group: _Group | None = None
        self._with_nan: frozenset[str] = frozenset()
        self._hasher = ContentHasher(definition.arrow_schema)
        self.sums: dict[Path, Sums] = {}
        self._statistics = {name: StatisticsCollector() for name in definition.key_columns}

    def file(self, path: Path) -> FileEntry | None:
        """Check a file and add its rows; None when it has none."""
        if file_bytes(path) is None:
            raise BadInput(f"{path} is not a file")
        rows = self.rows(path, BATCH_ROWS)
        size = file_bytes(path)
        assert size is not None
        if not rows:
            return None
        checksum, self.sums[path] = file_sums(path)
        return FileEntry(path.name, rows, size, checksum)

    def rows(self, path: Path, batch_rows: int) -> int:
        """Add the rows of a file; return how many there are."""
        import pyarrow.parquet as pq

        rows = 0
        last: pa.Table | None = None
        for batch in file_batches(path, self._definition, batch_rows):
            table = pa.Table.from_batches([batch])
            # Two sorted batches may still overlap: the last row of one is compared with the first row of the next.
            joined = table if last is None else pa.concat_tables([last, table.slice(0, 1)])
            order = self._definition.order_by
            if not is_sorted(table, order) or not is_sorted(joined, order):
                raise BadInput(f"{path} is not sorted by {', '.join(order)} (ascending, nulls first)")
            last = table.slice(table.num_rows - 1)
            for part in split_by_partition(table, self._definition):
                if self._group is None:
                    self._group = _Group(part.partition, part.values)
                # The first row decides, unless the caller names a partition.
                expected = self._group.partition if self._expected is None else self._expected
                if part.partition != expected:
                    raise BadInput(
                        f"{path} has rows of partition {part.partition}; all rows of these files must be of {expected}"
                    )
            self._with_nan |= columns_with_nan(table)
            self._hasher.update(batch)
            for name, collector in self._statistics.items():
                collector.update(table.column(name))
            rows += batch.num_rows
        if not self._with_nan:
            return rows
        # Spark would not find rows with NaN in bounds that leave NaN out (see `replitree.storage.parts.encodings`).
        metadata = pq.read_metadata(path)
        for group in range(metadata.num_row_groups):
            for number in range(metadata.num_columns):
                column = metadata.row_group(group).column(number)
                if column.path_in_schema in self._with_nan and column.is_stats_set and column.statistics.has_min_max:
                    raise BadInput(
                        f"{path}: column {column.path_in_schema} has NaN, and statistics that leave it out, so that Spark "
                        "would miss rows; insert the rows of the file instead of the file"
                    )
        return rows

    def manifest(self, files: tuple[FileEntry, ...]) -> PartManifest:
        assert self._group is not None
        schema = self._definition.arrow_schema
        return PartManifest(
            partition=self._group.partition,
            partition_values=self._group.values,
            rows=sum(file.rows for file in files),
            bytes=sum(file.bytes for file in files),
            schema_version=self._definition.schema_version,
            files=files,
            columns={name: found.stats(schema.field(name).type) for name, found in self._statistics.items()},
            content_hash=self._hasher.hexdigest(),
        )


def file_batches(path: Path, definition: TableDefinition, batch_rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
    """Read the rows of a file in the columns of a table, named as in files; its page checksums are compared if it has any.

    Parameters
    ----------
    batch_rows
        How many rows are in memory at once.

    Raises
    ------
    SchemaMismatch, BadInput
        It has other columns, or can't be read.
    """
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            check_schema(file.schema_arrow, str(path), definition)
            schema = definition.arrow_schema
            for batch in file.iter_batches(batch_rows, columns=schema.names):
                # Arrow returns a batch without rows for an empty row group.
                if not batch.num_rows:
                    continue
                for field in schema:
                    if not field.nullable and (nulls := batch.column(field.name).null_count):
                        raise SchemaMismatch(f"{path}: column {field.name!r} may not be null, and has {nulls}")
                exact = batch.select(schema.names).cast(schema)
                # Arrow's reader takes any bytes of a file for text, and readers of the table would fail on them.
                exact.validate(full=True)
                yield exact
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            # The disk's error: Arrow raises OSError without a number for bytes that it can't decode.
            raise
        raise BadInput(f"{path} can't be read as Parquet: {str(error).strip()}") from error


def check_schema(schema: pa.Schema, file: str, definition: TableDefinition) -> None:
    """Do nothing if a file has the columns of a table.

    Parameters
    ----------
    schema, file
        The file's schema as Arrow reads it, and its name for messages.
    definition
        The table, under the names that its columns have in files.

    Raises
    ------
    SchemaMismatch
        A column is missing, too many, or of another type.
    """
    found = {field.name: field.type for field in schema}
    for column in definition.columns:
        if column.name not in found:
            raise SchemaMismatch(f"{file}: column {column.name!r} is missing: expected {column.type}")
        arrow = found.pop(column.name)
        # The Arrow types may differ (dictionary, large text); what counts is the type that Parquet stores.
        # Differences in layout, and in what may be null inside, are none: any reader sees the column's type.
        try:
            is_same = _is_stored_plainly(arrow) and format_type(storable_type(arrow)) == column.type
        except BadInput:
            is_same = False
        if not is_same:
            is_int96 = pa.types.is_timestamp(arrow) and arrow.unit == "ns"
            hint = ": write with spark.sql.parquet.outputTimestampType=TIMESTAMP_MICROS" if is_int96 else ""
            raise SchemaMismatch(f"{file}: column {column.name!r}: expected {column.type}, found {arrow}{hint}")
    if found:
        raise SchemaMismatch(f"{file}: table {definition.name} has no column {next(iter(found))!r}")


def _is_stored_plainly(arrow: pa.DataType) -> bool:
    kinds = pa.types
    if kinds.is_dictionary(arrow):
        # Parquet stores a dictionary column as its values; only Arrow's reader calls it a dictionary.
        return _is_stored_plainly(arrow.value_type)
    if arrow.num_fields:
        return all(_is_stored_plainly(arrow.field(i).type) for i in range(arrow.num_fields))
    if kinds.is_timestamp(arrow):
        # Spark writes INT96 by default, which Arrow reads as nanoseconds.
        return bool(arrow.unit == "us")
    return not (
        # `storable_type` takes these for rows that are converted; a file
        # stays as it is, and Spark can't read them as the column's type.
        kinds.is_unsigned_integer(arrow)
        or kinds.is_float16(arrow)
        or kinds.is_date64(arrow)
        or kinds.is_fixed_size_binary(arrow)
    )
