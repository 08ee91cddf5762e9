"""Merge: neighbouring parts of one partition become one part, or one stream of rows.

`merge_parts` does, in this order:

1. check every source: each file has the size and the checksum that its manifest says, so that a damaged file ends here and is
   not copied into a part with a new checksum
2. read all files as sorted runs, side by side (`replitree.storage.rewrite.merge_runs`)
3. apply the table's policy to rows with equal keys (`replitree.storage.rewrite.merge_reduce`)
4. write and sync the result as a staged part (`replitree.storage.rewrite.merge_write`)

2 and 3 run in one thread, 4 in another, one window apart.

Guarantees: the rows of the result are a function of the sources and of the table's definition: no memory limit, number of cores
or library version changes its content hash.  Rows with equal keys keep the order of the sources.  Memory is bounded by
`memory_bytes`, whatever the number and size of the sources.  What fails or is cancelled leaves nothing in `folder`.

A *final* read, `final_batches`, gives the rows that a merge of all parts of a partition would have, without those that only say
that their key is deleted.

Absent on purpose: which parts to merge (`replitree.protocol.propose.select_merges`), the result's name, free space on the disk.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from replitree.errors import BadInput, ReplitreeError
from replitree.storage.files.durable import store_errors
from replitree.storage.files.limits import MERGE_MEMORY_BYTES
from replitree.storage.parts.manifest import PartManifest, read_manifest
from replitree.storage.parts.verified import CheckedPart
from replitree.storage.rewrite.key_range import KeyRange
from replitree.storage.rewrite.merge_reduce import Reducer, reducer_of, summed_columns, without_deleted
from replitree.storage.rewrite.merge_runs import Merging, RunFile, merge_runs, window_bytes
from replitree.storage.rewrite.merge_sources import MergeSource, check_files, read_sources, run_files
from replitree.storage.rewrite.merge_write import PartWriter
from replitree.storage.schema.adapt import shown_rows
from replitree.storage.schema.definition import TableDefinition

_T = TypeVar("_T")


class MergeCancelled(ReplitreeError):
    """The merge was asked to stop; nothing of it is left, and it can be begun again."""


def never() -> bool:
    """Never ask a merge to stop."""
    return False


def ignore(rows: int) -> None:
    """Let progress pass unseen."""


def merge_parts(
    sources: Sequence[Path],
    definition: TableDefinition,
    folder: Path,
    *,
    prefix: str = "",
    memory_bytes: int = MERGE_MEMORY_BYTES,
    cancelled: Callable[[], bool] = never,
    progress: Callable[[int], None] = ignore,
    sync: bool = True,
) -> PartManifest:
    """Merge parts of one partition into a staged part.

    Parameters
    ----------
    sources
        Folders of parts, at least one, in the order of their blocks.
    definition
        The table, with the schema version that the result gets; no source is newer.
    folder
        Where the part's folder goes, named by partition.  Made if missing; its parent must exist.
    prefix
        What the name of the part's folder begins with.
    memory_bytes
        Bytes of Arrow memory to stay below; less than 32 MiB is tried, and not promised.
    cancelled
        Asked before every window, and before each source is checked; may be called by another thread.
    progress
        Told the number of the sources' rows that are merged, which never goes down.
    sync
        Whether to wait for the disk.

    Returns
    -------
    PartManifest
        Of the staged part; it has no rows when the policy left none.

    Raises
    ------
    MergeCancelled
        `cancelled` said so.
    CorruptPart
        A source is damaged or missing; names it.
    StoreError
        The disk is full or failing, or a source has a newer schema version.
    BadInput
        The sources are of several partitions.
    """
    return _merge(sources, definition, folder, _MergeJob(prefix, memory_bytes, cancelled, progress, sync))


def merge_range(
    sources: Sequence[Path | MergeSource],
    definition: TableDefinition,
    folder: Path,
    key_range: KeyRange | None,
    *,
    memory_bytes: int = MERGE_MEMORY_BYTES,
) -> PartManifest:
    """Merge the rows of one range of keys, without a wait for the disk.

    The files of all ranges, in their order, are the files of the merged part.  The merge of the range without a lower bound
    checks the sources for all of them.

    Parameters
    ----------
    sources, definition, folder, memory_bytes
        As `merge_parts`; errors too.  A source may also be in an object store.
    key_range
        Which rows; None: all.
    """
    return _merge(sources, definition, folder, _MergeJob("", memory_bytes, never, ignore, False, key_range))


@dataclass(frozen=True, slots=True)
class _MergeJob:
    """How a merge is done: see `merge_parts`."""

    prefix: str
    memory_bytes: int
    cancelled: Callable[[], bool]
    progress: Callable[[int], None]
    sync: bool
    key_range: KeyRange | None = None


def _merge(
    sources: Sequence[Path | MergeSource], definition: TableDefinition, folder: Path, job: _MergeJob
) -> PartManifest:
    """Merge what is wanted of some parts into a staged part."""

    def step() -> None:
        if job.cancelled():
            raise MergeCancelled("the merge was cancelled")

    table, key_range = definition.stored, job.key_range
    found = read_sources(sources)
    # One of the ranges checks the files for all: each check reads every byte.
    if key_range is None or key_range.lower is None:
        check_files(found, step)
    files, with_nan = run_files(found, table, table.arrow_schema.names, key_range)
    partition = found[0].manifest.partition
    values = next((one.manifest.partition_values for one in found if one.manifest.partition_values), ())
    target = folder / f"{job.prefix}{partition}"
    # Adding infinities of both signs makes NaN, which no source has.
    summed = (table.arrow_schema.field(name) for name in summed_columns(table))
    nan = with_nan | frozenset(field.name for field in summed if pa.types.is_floating(field.type))
    group = window_bytes(job.memory_bytes)
    with store_errors(f"merge parts into {folder}"):
        try:
            with PartWriter(target, table, with_nan=nan, group_bytes=group) as writer:
                with _scratch(target) as scratch:
                    merging = Merging(table.order_by, job.memory_bytes, scratch, step)
                    with closing(_ahead(_reduced(files, merging, table))) as pieces:
                        for rows, done in pieces:
                            writer.write(rows)
                            job.progress(done)
                return writer.finish(partition, values, sync=job.sync)
        finally:
            # Arrow's allocator keeps what it has freed: the process would seem to need the memory of its largest merge.
            pa.default_memory_pool().release_unused()


def final_batches(
    sources: Sequence[Path | CheckedPart],
    definition: TableDefinition,
    columns: Sequence[str] | None = None,
    *,
    memory_bytes: int = MERGE_MEMORY_BYTES,
    key_range: KeyRange | None = None,
    deletions: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Read the rows that a merge of all parts of a partition would have, in bounded memory.

    Rows that say that their key is deleted are left out.

    Parameters
    ----------
    sources
        The parts of *one* partition, in the order of their blocks.  Every byte that is read of their files is verified.
    definition
        The table; no source has a newer schema version.
    columns
        Names, in the order wanted; all by default.
    memory_bytes
        Bytes of Arrow memory to stay below.
    key_range
        Only rows in it; all by default.
    deletions
        Whether to return the rows that say that their key is deleted, too.

    Raises
    ------
    BadInput
        No column, an unknown one, or parts of several partitions.
    CorruptPart
        A part can't be read; names it.
    StoreError
        The disk refuses, or a source has a newer schema version.
    """
    table = definition.stored
    wanted = definition.selected(columns)
    if not wanted:
        raise BadInput("name at least one column")
    needed = {
        *(column.stored_name for column in wanted),
        *table.order_by,
        *table.policy.columns,
        *summed_columns(table),
    }
    names = [name for name in table.arrow_schema.names if name in needed]
    parts = [each if isinstance(each, CheckedPart) else CheckedPart(each, read_manifest(each)) for each in sources]
    found = read_sources([MergeSource(part.folder, part.manifest, part.files) for part in parts])
    files, _ = run_files(found, table, names, key_range)
    with store_errors(f"read parts of {definition.name}"), _scratch(None) as scratch:
        # No step: a reader is stopped by not asking for more.
        merging = Merging(table.order_by, memory_bytes, scratch, lambda: None)
        with closing(_reduced(files, merging, table)) as pieces:
            for rows, _ in pieces:
                kept = rows if deletions else without_deleted(rows, table)
                yield from (batch for batch in shown_rows(kept, wanted).to_batches() if batch.num_rows)


# --- inside -----------------------------------------------------------------------------------------------------------------


def _reduced(
    files: Sequence[RunFile], merging: Merging, table: TableDefinition
) -> Generator[tuple[pa.Table, int], None, None]:
    """Merge runs under the table's policy; with each piece, count the rows of the sources that are done."""
    done = 0
    reducer: Reducer | None = None
    with closing(merge_runs(files, merging)) as windows:
        for window in windows:
            if not done:
                # With the first window's schema: a final read has only some of the columns.
                reducer = reducer_of(table, window.schema)
            done += window.num_rows
            yield window if reducer is None else reducer.reduce(window), done
    if reducer is not None:
        yield reducer.finish(), done


def _ahead(items: Generator[_T, None, None]) -> Generator[_T, None, None]:
    """Make each item in another thread while the one before it is used."""
    # `closing` outside of the pool: the thread has ended before the generator, which it may be in, is closed.
    with closing(items), ThreadPoolExecutor(1, "merge") as pool:
        coming = pool.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = pool.submit(next, items, None)
            yield item


@contextmanager
def _scratch(folder: Path | None) -> Iterator[Callable[[], Path]]:
    """Give what makes fresh paths in a temporary folder: in `folder`, or where the system has them.  It goes in the end."""
    with ExitStack() as stack:
        made: list[Path] = []

        def fresh() -> Path:
            if not made:
                place = tempfile.TemporaryDirectory(prefix="runs-", dir=folder)
                made.append(Path(stack.enter_context(place)))
            made.append(made[0] / f"{len(made)}.parquet")
            return made[-1]

        yield fresh
