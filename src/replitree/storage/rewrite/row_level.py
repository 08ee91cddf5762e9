"""Row level: the files that a statement wrote become the results of parts and new parts of a rewrite.

A statement of SQL (`UPDATE`, `MERGE INTO`, some `DELETE`s) has read parts.  Its tasks have written the rows that each part has
afterwards, and new rows.  The files lie on this machine: it runs the planner of Spark's catalog, the replica to which tasks
have sent them, or, of a table in an object store, the executor of the task.

Guarantees: a part whose rows are as they were has no result.  Rows that left the partition of their part become part of a new
part there, beside the new rows: one for each partition.

What each task has made of its own files are *pieces*: `joined_pieces` makes the parts of them, without reading a row.

Absent on purpose: the commit, and whether the statement was right.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from replitree import private
from replitree.errors import BadInput
from replitree.protocol.core.parts import parse_part
from replitree.storage.parts.adopt import adopt_files, file_batches
from replitree.storage.parts.joined import joined_manifest
from replitree.storage.parts.manifest import PartManifest
from replitree.storage.rewrite.slices import cut
from replitree.storage.rewrite.staging import stage_slices
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.schema.partition import UNPARTITIONED, split_by_partition


class StatementParts(msgspec.Struct, frozen=True):
    """The parts that a statement leaves.

    Attributes
    ----------
    results
        By the part whose place it takes; None: no row is left.
    inserts
        The new parts, by partition.
    rows
        In all files of the statement.
    """

    results: dict[str, PartManifest | None]
    inserts: dict[str, PartManifest]
    rows: int


class StatementPieces(msgspec.Struct, frozen=True):
    """What the files of one task became, each with a share that all tasks of the statement have in common.

    Attributes
    ----------
    results, inserts, rows
        As of `StatementParts`, of the rows of this task.
    same
        The parts whose rows are all in its files, as they were; nothing was made of them.
    tags
        What the store said of the files when they were put, by the part's name and the file's.
    """

    results: dict[str, PartManifest | None]
    inserts: dict[str, PartManifest]
    rows: int
    same: tuple[str, ...] = ()
    tags: dict[str, dict[str, str]] = {}


def statement_parts(
    definition: TableDefinition,
    hashes: Mapping[str, str],
    files: Mapping[str, Sequence[Path]],
    new: Sequence[Path],
    folder: Path,
    put: Callable[[str, Path, PartManifest], None],
    threads: int | None = None,
) -> StatementParts:
    """Make parts of the files of a statement.

    Parameters
    ----------
    definition
        The table.
    hashes
        The content hash of each part that was read.
    files, new
        The files with the rows that each of these parts has afterwards, and those with new rows.  They are moved.
    folder
        Where parts are made; a new one.
    put
        Takes the files of a part: its name (of a result its source's, of a new part its partition), their folder, the manifest.
    threads
        How many files are read at once; by default one for each core.

    Raises
    ------
    SchemaMismatch, BadInput
        The rows are not such as the table may have.
    StoreError
        The disk is full or failing.
    """
    private.make_folder(folder)
    results, inserts = dict[str, PartManifest | None](), dict[str, PartManifest]()
    rows = sum(pq.read_metadata(path).num_rows for some in (*files.values(), new) for path in some)
    partitions = {part: parse_part(part).partition for part in files}

    def result(part: str) -> tuple[PartManifest | None, bool]:
        """Make the result of a part; tell whether rows have left its partition."""
        some, partition = files[part], partitions[part]
        if not some:
            return None, False
        if _partitions(some, definition) == {partition}:
            return adopt_files(some, definition, folder / part, partition, sync=False), False
        stayed = _staged(_rows(some, definition, partition, stay=True), definition, folder / part)
        return next(iter(stayed), None), True

    with ThreadPoolExecutor(threads or os.cpu_count() or 1, "adopt") as pool:
        made = dict(zip(files, pool.map(result, files), strict=True))
    for part, (manifest, _) in made.items():
        if manifest is not None:
            # The hash is that of all rows in their order: the statement has changed none of them.
            if manifest.content_hash == hashes[part]:
                continue
            put(part, folder / part / partitions[part], manifest)
        results[part] = manifest
    left = [part for part, (_, has_left) in made.items() if has_left]
    if new and not left and not definition.partition_by:
        brought: Sequence[PartManifest] = (adopt_files(new, definition, folder / "new", sync=False),)
    else:
        moved = (_rows(files[part], definition, partitions[part], stay=False) for part in left)
        brought = _staged(chain(_batches(new, definition), *moved), definition, folder / "new")
    for manifest in brought:
        put(manifest.partition, folder / "new" / manifest.partition, manifest)
        inserts[manifest.partition] = manifest
    return StatementParts(results, inserts, rows)


def joined_pieces(parts: Iterable[str], tasks: Sequence[StatementPieces]) -> StatementParts:
    """Return the parts that a statement leaves, of what its tasks have made.

    A result, or a new part, of several tasks has the files of all; each is a sorted run of its own.

    Parameters
    ----------
    parts
        The parts that the statement has read.
    tasks
        In their order.

    Raises
    ------
    BadInput
        The pieces contradict one another.
    """
    results, inserts = dict[str, PartManifest | None](), dict[str, list[PartManifest]]()
    same = {part for task in tasks for part in task.same}
    for part in parts:
        some = [made for task in tasks if (made := task.results.get(part)) is not None]
        if part in same and some:
            raise BadInput(f"tasks have written rows of {part}, and one of them has found all its rows unchanged")
        if part not in same:
            results[part] = joined_manifest(some) if some else None
    for task in tasks:
        for partition, made in task.inserts.items():
            inserts.setdefault(partition, []).append(made)
    brought = {partition: joined_manifest(some) for partition, some in sorted(inserts.items())}
    return StatementParts(results, brought, sum(task.rows for task in tasks))


def _partitions(files: Sequence[Path], definition: TableDefinition) -> set[str]:
    """Return the partitions of the rows in files; only the columns are read that decide it."""
    columns = list(dict.fromkeys(transform.column for transform in definition.stored.partition_by))
    if not columns:
        return {UNPARTITIONED}
    found = set()
    for path in files:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(columns=columns):
                rows = pa.Table.from_batches([batch])
                found |= {each.partition for each in split_by_partition(rows, definition.stored)}
    return found


def _batches(files: Sequence[Path], definition: TableDefinition) -> Iterator[pa.RecordBatch]:
    for path in files:
        yield from file_batches(path, definition.stored)


def _rows(
    files: Sequence[Path], definition: TableDefinition, partition: str, *, stay: bool
) -> Iterator[pa.RecordBatch]:
    """Read the rows that are in a partition, or those that have left it."""
    for batch in _batches(files, definition):
        for each in split_by_partition(pa.Table.from_batches([batch]), definition.stored):
            if (each.partition == partition) is stay:
                yield from each.rows.to_batches()


def _staged(batches: Iterator[pa.RecordBatch], definition: TableDefinition, folder: Path) -> tuple[PartManifest, ...]:
    """Sort rows and write them as one part for each partition."""
    stored = definition.stored
    reader = pa.RecordBatchReader.from_batches(stored.arrow_schema, batches)
    return stage_slices(cut(reader, stored), stored, folder, sync=False)


__all__ = ["StatementParts", "StatementPieces", "joined_pieces", "statement_parts"]
