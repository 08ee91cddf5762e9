"""Staging: rows become the part files of one upload, slice by slice, in the memory of one slice.

Guarantees: however many slices there are, the upload has one part per partition and one manifest for each, as if the
rows had come at once; only the order inside a part differs: each slice is a sorted run of its own, in its own files.

The replica syncs the files when it takes the upload.

Absent on purpose: the manifests on disk (the replica writes those that the commit brings), and removal after a failure
(the upload is discarded as a whole).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from replitree import private
from replitree.storage.files.durable import make_folder, store_errors
from replitree.storage.parts.content_hash import ContentHasher
from replitree.storage.parts.encode import FILE_ROWS_MIN, stage_table, write_files
from replitree.storage.parts.manifest import FileEntry, PartManifest, data_file
from replitree.storage.parts.order import sort_rows
from replitree.storage.parts.statistics import StatisticsCollector
from replitree.storage.parts.sums_files import move_sums
from replitree.storage.rewrite.slices import Slice
from replitree.storage.schema.adapt import stored_rows
from replitree.storage.schema.bounds import Scalar
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.schema.partition import PartitionRows, split_by_partition

FILES_MAX = 2
"""Files into which a slice's part is cut, so that two cores write it."""


def stage_slices(
    slices: Iterable[Slice], definition: TableDefinition, folder: Path, *, sync: bool = True
) -> tuple[PartManifest, ...]:
    """Write slices as the parts of one upload.

    Parameters
    ----------
    folder
        An empty folder; it gets one folder per partition, with the data files.
    sync
        Whether the thread that writes a large file, if all rows come at once, waits for the disk; no use if the files go
        elsewhere.

    Returns
    -------
    tuple
        Manifests by partition; none when there are no rows.

    Raises
    ------
    StoreError
        The disk is full or failing.
    """
    stager: SliceStager | None = None
    for piece in slices:
        # Nearly every upload is one slice, which needs no stager.
        if stager is None and piece.last:
            return stage_table(piece.rows, definition, folder, files_max=FILES_MAX, sync=sync, sealed=False)
        stager = stager or SliceStager(definition, folder)
        stager.add(piece.rows)
    return stager.finish() if stager is not None else ()


@dataclass(slots=True)
class _Growing:
    """A part that gets more rows with every slice."""

    values: tuple[Scalar, ...]
    hasher: ContentHasher
    statistics: dict[str, StatisticsCollector]
    files: list[FileEntry] = field(default_factory=list)


class SliceStager:
    """Writes slices, one after the other, into the parts of one upload.

    Parameters
    ----------
    definition
        The table.
    folder
        The upload's folder.
    first_number
        Number of the first data file of each part; several writers of one folder take disjoint numbers.
    """

    def __init__(self, definition: TableDefinition, folder: Path, *, first_number: int = 0) -> None:
        self._table = definition
        # Files have the columns' stored names, which a rename does not change.
        self._definition = definition.stored
        self._folder = folder
        self._first_number = first_number
        self._parts: dict[str, _Growing] = {}

    def add(self, rows: pa.Table) -> None:
        """Write one slice: rows in the table's schema.

        Raises
        ------
        BadInput
            The rows belong to too many partitions.
        StoreError
            The disk is full or failing.
        """
        pieces = split_by_partition(stored_rows(rows, self._table), self._definition)
        for piece in pieces:
            if piece.partition not in self._parts:
                statistics = {name: StatisticsCollector() for name in self._definition.key_columns}
                self._parts[piece.partition] = _Growing(
                    piece.values, ContentHasher(self._definition.arrow_schema), statistics
                )
        with store_errors(f"write a part in {self._folder}"):
            make_folder(self._folder)
            if rows.num_rows < FILE_ROWS_MIN:
                for piece in pieces:
                    self._write(piece, None)
                return
            with ThreadPoolExecutor(os.cpu_count() or 1, "encode") as pool:
                # One partition is encoded by many threads, many partitions by one thread each.
                if len(pieces) == 1:
                    self._write(pieces[0], pool)
                else:
                    list(pool.map(lambda piece: self._write(piece, None), pieces))

    def finish(self) -> tuple[PartManifest, ...]:
        """Return the manifests of all parts, by partition."""
        schema = self._definition.arrow_schema
        return tuple(
            PartManifest(
                partition=partition,
                partition_values=part.values,
                rows=sum(file.rows for file in part.files),
                bytes=sum(file.bytes for file in part.files),
                schema_version=self._definition.schema_version,
                files=tuple(part.files),
                columns={name: found.stats(schema.field(name).type) for name, found in part.statistics.items()},
                content_hash=part.hasher.hexdigest(),
            )
            for partition, part in sorted(self._parts.items())
        )

    def _write(self, piece: PartitionRows, pool: ThreadPoolExecutor | None) -> None:
        part = self._parts[piece.partition]
        rows = sort_rows(piece.rows, self._definition.order_by)
        # No name of a partition begins with "slice_", because none has an underscore.
        target, draft = self._folder / piece.partition, self._folder / f"slice_{piece.partition}"
        make_folder(target)
        private.make_folder(draft)
        written = write_files(rows, self._definition, draft, files_max=FILES_MAX, sync=False, pool=pool)
        for file in written:
            name = data_file(self._first_number + len(part.files))
            (draft / file.name).rename(target / name)
            move_sums(draft / file.name, target / name)
            part.files.append(FileEntry(name, file.rows, file.bytes, file.checksum))
        draft.rmdir()
        for batch in rows.to_batches():
            part.hasher.update(batch)
        for column, collector in part.statistics.items():
            collector.update(rows.column(column))
