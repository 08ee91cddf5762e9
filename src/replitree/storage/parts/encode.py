"""Encode: rows become the files of a part, on disk for good.

What `stage_table` does, in this order; a crash between any two steps leaves a folder that nothing refers to:

1. split the rows by partition, sort each partition by the order key if it is not sorted already
2. write ``<folder>/<partition>/data-N.parquet``; a large part is cut into a few files, written in parallel
3. write ``manifest.json``: a folder without one is not a part
4. sync these files, the part's folder, `folder` and, if `folder` is new, the folder that holds it, all at once

How the Parquet files are written, and why, is in `replitree.storage.parts.encodings`.

Absent on purpose: a name that the log gives (a staged part has none yet), retries, removal of what a failure left.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import xxhash

from replitree import private
from replitree.errors import BadInput
from replitree.storage.files.durable import HashingFile, make_folder, store_errors, write_file
from replitree.storage.files.sums import is_summed, sums_of
from replitree.storage.parts.content_hash import content_hash
from replitree.storage.parts.encodings import writer_options
from replitree.storage.parts.manifest import MANIFEST_FILE, FileEntry, PartManifest, data_file
from replitree.storage.parts.order import sort_rows
from replitree.storage.parts.part_sync import SyncTogether, sync_part, sync_parts
from replitree.storage.parts.statistics import table_statistics
from replitree.storage.parts.sums_files import write_sums
from replitree.storage.schema.adapt import stored_rows
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.schema.partition import PartitionRows, split_by_partition

FILE_ROWS_MIN = 524_288
"""A part is cut into files only if each gets at least this many rows."""

MEMORY_BYTES_MAX = 4 << 20
"""A file of at most so many bytes of rows is encoded in memory and written at once."""

COLUMN_BYTES_MAX = 2**31 - 1
"""Bytes of one column in one insert: Arrow's plain strings and lists end there."""


def stage_table(
    table: pa.Table,
    definition: TableDefinition,
    folder: Path,
    *,
    prefix: str = "",
    files_max: int = 2,
    sync: bool | SyncTogether = True,
    sealed: bool = True,
    partitions_max: int | None = None,
) -> tuple[PartManifest, ...]:
    """Write rows as one staged part per partition.

    Parameters
    ----------
    table
        Rows in the table's schema (see `replitree.storage.parts.conform`).
    definition
        The table.
    folder
        Where the parts go, one folder each, named by partition.  Made if missing; its parent must exist.
    prefix
        What the names of the parts' folders begin with.
    files_max
        Files of a large part, written in parallel.
    sync
        Whether to wait for the disk.  Without it a power failure may take what was acknowledged.  `SyncTogether` takes what
        step 4 would sync: the caller syncs it together with the parts of other tables.
    sealed
        Whether to make parts of the folders, by steps 3 and 4.  Without it the process that takes the files does that; here
        only large files are synced, as soon as they are written.
    partitions_max
        As of `split_by_partition`.

    Returns
    -------
    tuple
        Manifests by partition id; none when there are no rows.

    Raises
    ------
    BadInput
        Too many partitions, or a column of more than 2 GiB.
    StoreError
        The disk is full or failing; what was written so far lies in `folder`.
    """
    # The buffers first: `nbytes` looks at the slices of every chunk.
    if table.get_total_buffer_size() > COLUMN_BYTES_MAX and table.nbytes > COLUMN_BYTES_MAX:
        for name, column in zip(table.column_names, table.columns, strict=True):
            if column.nbytes > COLUMN_BYTES_MAX:
                raise BadInput(
                    f"column {name!r} has {column.nbytes:,} bytes; one insert may have 2 GiB: insert in slices"
                )
    table, definition = stored_rows(table, definition), definition.stored
    if _is_small(table):
        # A group's many small pieces would be looked at one by one, several times.
        table = table.combine_chunks()
    parts = split_by_partition(table, definition, partitions_max)
    with store_errors(f"write a part in {folder}"):
        # Whether the folder is new decides whether its own name, in its parent, has to be synced.
        is_new = make_folder(folder)
        jobs = [
            _StagingJob(part, definition, folder / f"{prefix}{part.partition}", files_max, bool(sync), sealed)
            for part in parts
        ]
        rows = sum(part.rows.num_rows for part in parts)
        # Threads cost more than they gain for rows that one file takes.
        if rows < 2 * FILE_ROWS_MIN or (len(jobs) == 1 and files_max == 1):
            manifests = tuple(map(_stage_part, jobs))
        else:
            with ThreadPoolExecutor(os.cpu_count() or 1, "encode") as pool:
                # The sort and the files of a single part share the threads.  Several
                # parts have a thread each, and must not wait for the same pool.
                manifests = (_stage_part(jobs[0], pool),) if len(jobs) == 1 else tuple(pool.map(_stage_part, jobs))
        if sync and sealed:
            staged = [(job.folder, manifest) for job, manifest in zip(jobs, manifests, strict=True)]
            names = (folder, folder.parent) if is_new else (folder,)
            if isinstance(sync, SyncTogether):
                sync.add(staged, names)
            else:
                sync_parts(staged, names)
    return manifests


def unwritten_manifests(table: pa.Table, definition: TableDefinition) -> tuple[PartManifest, ...]:
    """Return the manifest of each part that `stage_table` would write, without its files, and without writing any."""
    rows, stored = stored_rows(table, definition), definition.stored
    parts = split_by_partition(rows, stored)
    return tuple(_manifest(part, sort_rows(part.rows, stored.order_by), stored, ()) for part in parts)


def _is_small(table: pa.Table) -> bool:
    """Tell whether rows are to be handled in memory; what is cheap to ask is asked first."""
    return bool(table.get_total_buffer_size() <= MEMORY_BYTES_MAX or table.nbytes <= MEMORY_BYTES_MAX)


@dataclass(frozen=True, slots=True)
class _StagingJob:
    """One part to write."""

    part: PartitionRows
    definition: TableDefinition
    folder: Path
    files_max: int
    sync: bool
    sealed: bool


def _stage_part(job: _StagingJob, pool: ThreadPoolExecutor | None = None) -> PartManifest:
    rows = sort_rows(job.part.rows, job.definition.order_by, pool)
    # The folder is ours: its files need no look at its mode, each of which would let another thread have the interpreter.
    mode = private.make_folder(job.folder)
    files = write_files(rows, job.definition, job.folder, files_max=job.files_max, sync=job.sync, pool=pool, mode=mode)
    manifest = _manifest(job.part, rows, job.definition, files)
    if job.sealed:
        # `stage_table` syncs all parts at once: the disk writes its journal once for all of them.
        seal_part(job.folder, manifest, sync=False, mode=mode)
    return manifest


def _manifest(
    part: PartitionRows, rows: pa.Table, definition: TableDefinition, files: tuple[FileEntry, ...]
) -> PartManifest:
    """Return the manifest of a part; `rows`: those of the part, sorted."""
    return PartManifest(
        partition=part.partition,
        partition_values=part.values,
        rows=rows.num_rows,
        bytes=sum(file.bytes for file in files),
        schema_version=definition.schema_version,
        files=files,
        columns=table_statistics(rows, definition),
        content_hash=content_hash(rows, definition.arrow_schema),
    )


def seal_part(folder: Path, manifest: PartManifest, *, sync: bool = True, mode: int | None = None) -> None:
    """Write the manifest of a part whose data files are written, and sync them all: from here on the folder is a part."""
    # The manifest after the files: a crash before it leaves a folder that is no part.
    write_file(f"{folder}/{MANIFEST_FILE}", manifest.encode(), sync=False, mode=mode)
    if sync:
        sync_part(folder, manifest)


# --- files ------------------------------------------------------------------------------------------------------------------


def write_files(
    rows: pa.Table,
    definition: TableDefinition,
    folder: Path,
    *,
    files_max: int = 2,
    sync: bool = True,
    pool: ThreadPoolExecutor | None = None,
    mode: int | None = None,
) -> tuple[FileEntry, ...]:
    """Write sorted rows as the data files of a part, each a contiguous piece.

    Parameters
    ----------
    sync
        Whether to wait for the disk as soon as a large file is written; small ones are left to `sync_part`.
    pool
        Where to write the files in parallel; one after the other by default.
    mode
        As of `private.open_new`.
    """
    options = writer_options(rows, definition)
    group = definition.settings.row_group_rows
    pieces = _cut(rows, files_max, group)
    paths = [folder / data_file(number) for number in range(len(pieces))]

    def write(piece: pa.Table, path: Path) -> FileEntry:
        if _is_small(piece):
            sink = pa.BufferOutputStream()
            _encode_into(sink, piece, options, group)
            data = sink.getvalue()
            # Small files are synced together with the manifest: see `sync_parts`.
            write_file(path, data, sync=False, mode=mode)
            if is_summed(len(data)):
                write_sums(path, sums_of(data))
            return FileEntry(path.name, piece.num_rows, len(data), xxhash.xxh3_128_hexdigest(data))
        file = HashingFile(path)
        try:
            _encode_into(file, piece, options, group)
            # In the thread that wrote the file: the disk writes while other threads encode.
            if sync:
                file.sync()
        finally:
            file.close()
        if is_summed(file.bytes):
            write_sums(path, file.sums())
        return FileEntry(path.name, piece.num_rows, file.bytes, file.checksum)

    run = map if pool is None or len(pieces) == 1 else pool.map
    return tuple(run(write, pieces, paths))


def _cut(rows: pa.Table, files_max: int, group: int) -> list[pa.Table]:
    """Cut into about equal pieces that end where row groups do."""
    files = max(1, min(files_max, rows.num_rows // FILE_ROWS_MIN))
    if files == 1:
        return [rows]
    # Pieces end where row groups do: otherwise each file would have one more short row group.
    size = -(-rows.num_rows // (files * group)) * group
    return [rows.slice(start, size) for start in range(0, rows.num_rows, size)]


def _encode_into(sink: Any, rows: pa.Table, options: dict[str, Any], group: int) -> None:
    import pyarrow.parquet as pq

    writer = pq.ParquetWriter(sink, rows.schema, **options)
    try:
        writer.write_table(rows, row_group_size=group)
        writer.close()
    finally:
        # A writer that has failed would write again as soon as Python collects it.
        writer.is_open = False
