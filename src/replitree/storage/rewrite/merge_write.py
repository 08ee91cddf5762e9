"""Write a part from sorted rows that come piece by piece, in bounded memory.

`PartWriter` writes what `replitree.storage.parts.encode.stage_table` would write of all the rows together: the same
columns, content hash, statistics and row groups, in one data file, or in one for each run of rows that is sorted by
itself (`end_run`).  A run that is in a file already is only counted, and the file linked (`link`).  The encodings are
chosen by the rows of the first row group that is written; a part of one row group is exactly what `stage_table` writes.

The bytes depend on the rows alone, not on how they were cut into pieces, except where rows are so wide that a row group of the
table's size would take more than `group_bytes`: then row groups end earlier.

Which columns may have NaN must be known before the first row is written (see `replitree.storage.parts.encodings`), so it is an
argument; a column that is named there without need only lacks statistics.

Order of a part's publication: data file, manifest, sync of both, sync of the folders, as in `replitree.storage.parts.encode`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from replitree import private
from replitree.storage.files.durable import HashingFile, link_file, make_folder, sync_made
from replitree.storage.files.sums import is_summed
from replitree.storage.parts.content_hash import ContentHasher
from replitree.storage.parts.encode import seal_part
from replitree.storage.parts.encodings import writer_options
from replitree.storage.parts.manifest import FORMAT as MANIFEST_FORMAT
from replitree.storage.parts.manifest import FileEntry, PartManifest, data_file
from replitree.storage.parts.statistics import StatisticsCollector
from replitree.storage.parts.sums_files import link_sums, write_sums
from replitree.storage.schema.bounds import Scalar
from replitree.storage.schema.definition import TableDefinition

if TYPE_CHECKING:
    import pyarrow.parquet as pq


class PartWriter:
    """A part that is being written.  As a context: whatever goes wrong in it removes what was written.

    Parameters
    ----------
    folder
        The part's folder, which must not exist.  The folder around it is made if missing; its parent must exist.
    definition
        The table, its columns named as in data files.
    with_nan
        Parquet paths of the leaf columns that may have NaN.
    group_bytes
        Rows to have in memory; a row group has no more.
    taken
        Names that no file gets which is written.
    """

    def __init__(
        self,
        folder: Path,
        definition: TableDefinition,
        *,
        with_nan: frozenset[str],
        group_bytes: int,
        taken: frozenset[str] = frozenset(),
    ) -> None:
        self._is_new = make_folder(folder.parent)
        private.make_folder(folder)
        self._folder = folder
        self._definition = definition
        self._schema = definition.arrow_schema
        self._with_nan = with_nan
        self._group_bytes = group_bytes
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0
        self._waiting_bytes = 0
        self._hasher = ContentHasher(self._schema)
        plain_keys = (n for n in definition.key_columns if not pa.types.is_nested(definition.column(n).arrow_type))
        self._statistics = {name: StatisticsCollector() for name in plain_keys}
        self._options: dict[str, Any] = {}
        self._file: HashingFile | None = None
        self._writer: pq.ParquetWriter | None = None
        self._rows = 0
        self._entries: list[FileEntry] = []
        self._names = (name for name in map(data_file, count()) if name not in taken)
        self._name = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            if self._writer is not None and self._file is not None:
                self._file.close()
                with suppress(OSError, ValueError, pa.ArrowException):
                    self._writer.close()
                # Or else the writer would write again when Python collects it, and complain.
                self._writer.is_open = False
            # The error that ended the write is the one to report; what is left lies in staging, and is swept.
            shutil.rmtree(self._folder, ignore_errors=True)

    def write(self, rows: pa.Table) -> None:
        """Add rows, in the order of the part."""
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        self._waiting_bytes += rows.nbytes
        group_rows = self._definition.settings.row_group_rows
        # Row groups have the table's size whatever the windows had:
        # replicas with other memory limits write the same bytes.
        while self._waiting_rows >= group_rows:
            self._flush(group_rows)
        if self._waiting_bytes >= self._group_bytes:
            self._flush(self._waiting_rows)

    def end_run(self) -> None:
        """End the data file: the rows that follow are sorted by themselves.  A run without rows makes no file."""
        if self._waiting_rows:
            self._flush(self._waiting_rows)
        if self._writer is not None:
            self._end_file()

    def link(self, path: Path, entry: FileEntry, rows: Iterable[pa.RecordBatch]) -> None:
        """Add a data file that is there, under the name that it has, as a run of its own.

        Parameters
        ----------
        path, entry
            Where it is, and what is known of it.
        rows
            What is in it, in pieces.
        """
        self.end_run()
        for each in rows:
            self._count(pa.Table.from_batches([each]))
        link_file(path, self._folder / entry.name)
        link_sums(path, self._folder / entry.name)
        self._entries.append(entry)

    def finish(
        self, partition: str, values: tuple[Scalar, ...], *, sync: bool, form: int = MANIFEST_FORMAT
    ) -> PartManifest:
        """Write what is left, and the manifest; from here on the folder is a part.

        Parameters
        ----------
        partition, values
            The partition's id, and the values of the table's transforms.
        sync
            Whether to wait for the disk.
        form
            Format of the manifest.
        """
        self.end_run()
        # A part has at least one file, also without rows: a manifest without files is damaged.
        if not self._entries:
            self._write_group(self._schema.empty_table())
            self._end_file()
        manifest = PartManifest(
            format=form,
            partition=partition,
            partition_values=values,
            rows=sum(entry.rows for entry in self._entries),
            bytes=sum(entry.bytes for entry in self._entries),
            schema_version=self._definition.schema_version,
            files=tuple(self._entries),
            columns={name: found.stats(self._schema.field(name).type) for name, found in self._statistics.items()},
            content_hash=self._hasher.hexdigest(),
        )
        seal_part(self._folder, manifest, sync=sync)
        if sync:
            sync_made(self._folder.parent, is_new=self._is_new)
        return manifest

    def _flush(self, count: int) -> None:
        """Write the first `count` rows that wait as a row group."""
        waiting = pa.concat_tables(self._waiting) if self._waiting else self._schema.empty_table()
        # One chunk: a row group is written by columns, and small chunks cost a call each.
        group = waiting.slice(0, count).combine_chunks()
        rest = waiting.slice(count)
        self._waiting = [rest] if rest.num_rows else []
        self._waiting_rows = rest.num_rows
        self._waiting_bytes = rest.nbytes
        self._write_group(group)

    def _end_file(self) -> None:
        assert self._writer is not None
        assert self._file is not None
        self._writer.close()
        self._file.close()
        if is_summed(self._file.bytes):
            write_sums(self._folder / self._name, self._file.sums())
        self._entries.append(FileEntry(self._name, self._rows, self._file.bytes, self._file.checksum))
        self._writer, self._file, self._rows = None, None, 0

    def _write_group(self, group: pa.Table) -> None:
        import pyarrow.parquet as pq

        if self._writer is None:
            self._options = self._options or writer_options(group, self._definition, with_nan=self._with_nan)
            self._name = next(self._names)
            self._file = HashingFile(self._folder / self._name)
            self._writer = pq.ParquetWriter(self._file, self._schema, **self._options)
        if not group.num_rows:
            return
        self._writer.write_table(group, row_group_size=group.num_rows)
        self._rows += group.num_rows
        self._count(group)

    def _count(self, rows: pa.Table) -> None:
        """Take rows into the statistics and the content hash, which are of the whole part."""
        for name, collector in self._statistics.items():
            collector.update(rows.column(name))
        for batch in rows.to_batches():
            self._hasher.update(batch)
