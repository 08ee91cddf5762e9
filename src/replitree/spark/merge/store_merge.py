"""Merges in the object store: tasks read the parts there and put the result there, and no row goes through a replica.

Order, for the merges that a replica has planned and keeps the parts of (`replitree.client.change.planned`):

1. *cut*     one task for each merge looks at the footers of the parts, and cuts the merge into ranges of the order key
2. *make*    each range is one task: it reads the row groups that have rows of it, merges, and puts one file, under a name that
             no other task gets (`replitree.client.insert.stored_upload`)
3. *hash*    a result of several files is read once more, in one task for each merge: its content hash is that of all rows, as
             if a replica had made it, so that a replica that makes it again has the same

Manifests of ranges become one without reading anything (`replitree.storage.parts.joined`).  The replica of the upload
proposes the merge and registers the part by reference.  A task that is repeated puts another file; that one goes with
the upload, or, when the other counts, is deleted when the result is taken.

A task that does not reach the store says so before it has done anything; that merge is then made through the replica.

Absent on purpose: publishing (`replitree.spark.merge.optimize`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec
import pyarrow as pa

from replitree import private
from replitree.client.insert.stored_upload import PutParts, put_parts, reach
from replitree.client.insert.upload import Upload
from replitree.client.read.part_cache import PartCache
from replitree.client.read.snapshot import SnapshotPart
from replitree.client.transport.http import HttpClient
from replitree.client.transport.stored import StoredParts
from replitree.errors import NotAuthorized, StoreError
from replitree.spark.merge.damaged import Damaged, or_damaged
from replitree.spark.write.store_write import joined
from replitree.storage.files.limits import MERGE_MEMORY_BYTES
from replitree.storage.parts.content_hash import content_hash
from replitree.storage.parts.manifest import FileEntry, PartManifest
from replitree.storage.parts.verified import CheckedFile
from replitree.storage.rewrite.data_files import DataFile, open_parquet, reading_part
from replitree.storage.rewrite.key_range import KeyRange, ranges_of_files
from replitree.storage.rewrite.merge import merge_range
from replitree.storage.rewrite.merge_sources import MergeSource
from replitree.storage.schema.definition import TableDefinition, decode_definition

W = TypeVar("W")
R = TypeVar("R")

BUFFER_BYTES = 1 << 20
"""Bytes of one column that the reader of a result reads at a time."""


@dataclass(frozen=True, slots=True)
class StoreMerge:
    """A merge, as its tasks need it.

    Attributes
    ----------
    definition
        The table, as it is encoded.
    sources, addresses
        The parts, in the order of their blocks, and the addresses that send those that are not in the store.
    http
        How replicas are asked.
    upload
        Takes the result; its replica has planned the merge.
    ranges_max
        Into how many ranges to cut it.
    memory_bytes
        What one task may take.
    """

    definition: tuple[bytes, bytes]
    sources: tuple[SnapshotPart, ...]
    addresses: tuple[str, ...]
    http: HttpClient
    upload: Upload
    ranges_max: int
    memory_bytes: int = MERGE_MEMORY_BYTES

    @property
    def table(self) -> TableDefinition:
        """The table, with the columns of the result."""
        return decode_definition(*self.definition)


@dataclass(frozen=True, slots=True)
class NotReached:
    """A task does not reach the table's store, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class _Range:
    number: int
    merge: StoreMerge
    key_range: KeyRange | None


@dataclass(frozen=True, slots=True)
class _Result:
    merge: StoreMerge
    manifest: PartManifest


class RunTasks(Protocol):
    """Does each piece of work in a task of its own, and returns what they gave (`replitree.spark.session.tasks.run_tasks`)."""

    def __call__(self, work: Sequence[W], do: Callable[[W], R], /) -> list[R]:
        """Do it."""


def merged_in_store(run: RunTasks, merges: Sequence[StoreMerge]) -> list[PutParts | NotReached | Damaged]:
    """Make merges; return what was put of each, in their order: the manifest of one part, or none when no row is left.

    Of a merge of damaged parts nothing counts.

    Parameters
    ----------
    run
        Runs tasks.
    merges
        Each with an upload of its own.

    Raises
    ------
    Unavailable
        The Spark job failed.
    """
    cuts = run(merges, cut)
    work = [
        _Range(number, merge, each)
        for number, (merge, ranges) in enumerate(zip(merges, cuts, strict=True))
        if not isinstance(ranges, NotReached | Damaged)
        for each in ranges
    ]
    made = list(zip(work, run(work, make), strict=True))
    pieces = [[put for piece, put in made if piece.number == number] for number in range(len(merges))]
    found = list[PutParts | NotReached | Damaged]()
    for merge, ranges, some in zip(merges, cuts, pieces, strict=True):
        # One range that did not reach the store spoils its merge: all of it goes through the replica.
        missed = next((each for each in (ranges, *some) if isinstance(each, Damaged)), None) or next(
            (each for each in (ranges, *some) if isinstance(each, NotReached)), None
        )
        found.append(missed or joined(merge.table, [each for each in some if isinstance(each, PutParts)]))
    # The content hash of a result that has several files comes from all of its rows.
    several = {
        number: _Result(merges[number], each.manifests[0])
        for number, each in enumerate(found)
        if isinstance(each, PutParts) and each.manifests and len(each.manifests[0].files) > 1
    }
    hashes = dict(zip(several, run(list(several.values()), hash_rows), strict=True))
    for number, known in hashes.items():
        result = found[number]
        if isinstance(known, NotReached):
            found[number] = known
        elif isinstance(result, PutParts):
            hashed = msgspec.structs.replace(result.manifests[0], content_hash=known)
            found[number] = PutParts((hashed,), result.tags)
    return found


# --- tasks --------------------------------------------------------------------------------------------------------------------


def cut(merge: StoreMerge) -> tuple[KeyRange | None, ...] | NotReached | Damaged:
    """Cut a merge into ranges, on an executor.

    Raises
    ------
    SnapshotExpired
        A source is gone.
    StoreError
        The store reads nothing any more.
    """

    def ranges() -> tuple[KeyRange | None, ...] | NotReached:
        stored = _stored(merge)
        if isinstance(stored, NotReached):
            return stored
        with tempfile.TemporaryDirectory(prefix="replitree-task-") as temporary:
            sources = _sources(merge, stored, Path(temporary))
            files = [place for source in sources for place, _ in source.entries]
            with reading_part(Path(merge.sources[0].part)):
                return ranges_of_files(files, merge.table, merge.ranges_max)

    return or_damaged(merge.sources, ranges)


def make(piece: _Range) -> PutParts | NotReached | Damaged:
    """Merge one range and put its file, on an executor; nothing is put when no row is left.  Raises as `cut`."""

    def parts() -> PutParts | NotReached:
        merge = piece.merge
        stored = _stored(merge)
        if isinstance(stored, NotReached):
            return stored
        with tempfile.TemporaryDirectory(prefix="replitree-task-") as temporary:
            attempt, brought = Path(temporary) / "made", Path(temporary) / "brought"
            private.make_folder(brought)
            sources = _sources(merge, stored, brought)
            part = merge_range(sources, merge.table, attempt, piece.key_range, memory_bytes=merge.memory_bytes)
            if not part.rows:
                return PutParts((), {})
            return put_parts(merge.http, merge.upload, stored.objects, attempt, (part,))

    return or_damaged(piece.merge.sources, parts)


def hash_rows(result: _Result) -> str | NotReached:
    """Read a result and return its content hash, on an executor.  Raises as `cut`."""
    stored = _stored(result.merge)
    if isinstance(stored, NotReached):
        return stored
    source = _placed(stored, "the result", result.manifest)
    schema = result.merge.table.stored.arrow_schema

    def batches() -> Iterator[pa.RecordBatch]:
        for place, _ in source.entries:
            with reading_part(source.part), open_parquet(place, buffer_bytes=BUFFER_BYTES) as opened:
                yield from opened.iter_batches(columns=schema.names)

    return content_hash(batches(), schema)


def _stored(merge: StoreMerge) -> StoredParts | NotReached:
    """Return the table's parts in its store as this process reaches them."""
    stored = StoredParts(merge.table)
    try:
        stored.objects = reach(merge.table, merge.upload.store)
    except (NotAuthorized, StoreError) as error:
        return NotReached(str(error))
    return stored


def _sources(merge: StoreMerge, stored: StoredParts, folder: Path) -> list[MergeSource]:
    """Return the parts as a merge reads them: those in the store there, others from copies that a replica sends."""
    cache = PartCache(merge.http, merge.table.name, merge.addresses, folder)
    return [
        _placed(stored, each.part, each.manifest)
        if each.manifest.shares
        else MergeSource(cache.fetch(each), each.manifest)
        for each in merge.sources
    ]


def _placed(stored: StoredParts, part: str, manifest: PartManifest) -> MergeSource:
    """Return a part in the store; it may have files of several shares."""

    def place(file: FileEntry) -> DataFile:
        return (
            CheckedFile(stored.path(manifest, file), file) if stored.is_folder else stored.objects.file(manifest, file)
        )

    return MergeSource(Path(part), manifest, tuple(map(place, manifest.files)))


__all__ = ["NotReached", "RunTasks", "StoreMerge", "cut", "hash_rows", "make", "merged_in_store"]
