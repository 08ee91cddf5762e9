"""Prepared merges: results that a client makes, with Spark, for a merge that this replica then proposes.

The order; the client may die at any step, and what it leaves is removed in time:

1. *plan*      what `optimize` would merge is chosen, its parts get a lease and are *reserved*: as long as the lease lasts, this
               replica proposes no merge of them
2. *make*      somewhere else, by the code that merges here, into the data files of an upload, or into the object store
3. *prepare*   every byte of the upload's files is read: order, partition, row count and checksums must be right; the content
               hash comes from the same pass.  Of objects, what is looked at of any upload
               (`replitree.replica.uploads.stored_uploads`)
4. *propose*   the merge, like any other
5. *execute*   the executor of the entry here finds the prepared part and publishes it, instead of merging

A prepared part is memory and a folder among the uploads; of one in the object store the folder has the manifest, and the upload
keeps the share as long as the folder is there.  When it is lost, or its merge is not proposed, the replica merges by itself,
with the same result.  When the merge does not apply any more, or another replica was faster, the part is removed.

Absent on purpose: proof that the rows are those of the sources.  A client that has the cluster's token may insert and delete
as well.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from replitree import private
from replitree.errors import BadInput, SnapshotExpired, Unavailable
from replitree.protocol.core.effects import Epoch, LogIndex, Merge
from replitree.protocol.core.entries import MergeEntry
from replitree.protocol.core.parts import Part, merged_part, parse_part
from replitree.replica.parts.followed_storage import FollowedStorage
from replitree.replica.parts.merges import Merges, OptimizeWish
from replitree.replica.perform.context import LocalParts, TableContext
from replitree.replica.uploads.uploads import MADE_SUFFIX, Uploads
from replitree.storage.files.durable import rename
from replitree.storage.parts.manifest import FileEntry, PartManifest, is_data_file
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.schema.merge_policy import PLAIN

KEPT_S = 600.0
"""How long a prepared part waits for a merge of which it is not known that it is in the log."""


@dataclass(frozen=True, slots=True)
class Planned:
    """Merges that are worth making, each with the schema version of its result; `lease` keeps and reserves their parts."""

    merges: tuple[tuple[tuple[Part, ...], int], ...]
    lease: str | None


@dataclass(frozen=True, slots=True)
class ResultWish:
    """The result of a merge, as a client made it.

    Attributes
    ----------
    upload
        Where its data files are.
    sources, schema_version
        Of what it was made, and with which columns.
    files
        The data files, in the order of the rows.
    manifest, tags
        Of a result that is in the object store: the part, and what the store said of each file when it was put.
    """

    upload: str
    sources: tuple[str, ...]
    schema_version: int
    files: tuple[FileEntry, ...]
    manifest: PartManifest | None = None
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Kept:
    """A prepared part: where it is, what its sources contained, since when (seconds of the clock), and its merge's index."""

    folder: Path
    manifest: PartManifest
    contents: tuple[str, ...]
    since: float
    index: LogIndex | None = None


_Key = tuple[tuple[str, ...], int]


class PreparedMerges:
    """The prepared merges of one table replica.

    Parameters
    ----------
    uploads
        Where results arrive, and lie until their merge is executed.
    merges
        Chooses and proposes merges.
    storage
        The table's object store, where results may be.
    clock
        Seconds that never go back.
    """

    def __init__(
        self,
        context: TableContext,
        parts: LocalParts,
        uploads: Uploads,
        merges: Merges,
        storage: FollowedStorage,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._context = context
        self._store, self._progress, self._old_parts = parts.store, parts.progress, parts.old_parts
        self._uploads = uploads
        self._merges = merges
        self._storage = storage
        self._clock = clock
        self._lock = threading.Lock()
        self._publishing = threading.Lock()
        self._kept: dict[_Key, _Kept] = {}
        self._taking: set[Path] = set()

    # --- the parts that are being merged elsewhere ---

    def plan(self, wish: OptimizeWish, lease_s: float) -> Planned:
        """Choose what to merge, and reserve it for so many seconds, and again after each renewal of the lease.

        Raises
        ------
        Unavailable
            Too many leases are held.
        """
        choices = self._merges.optimize(wish)
        if not choices:
            return Planned((), None)
        parts = [part for choice in choices for part in choice.sources]
        lease = self._old_parts.lease((part.name for part in parts), lease_s)
        self._merges.reserve(lease, parts)
        return Planned(tuple((each.sources, self._merges.schema_version(each.sources)) for each in choices), lease)

    # --- results ---

    def publish(self, wish: ResultWish, epoch: Epoch) -> LogIndex:
        """Take a result over and propose its merge under an epoch; return the index.  The same again proposes nothing twice.

        Raises
        ------
        BadInput
            The files are not a possible result of such a merge.
        SnapshotExpired
            A source has left the table.
        Unavailable
            It is not known whether it was: send it again.
        """
        sources = tuple(parse_part(name) for name in wish.sources)
        if not sources or len({part.partition for part in sources}) != 1:
            raise BadInput("a merge has at least one source, and all of them are of one partition")
        if any(one.block_max >= other.block_min for one, other in pairwise(sources)):
            raise BadInput("the sources of a merge come in the order of their blocks and do not overlap")
        names = [file.name for file in wish.files]
        if not names or len(set(names)) != len(names) or not all(map(is_data_file, names)):
            raise BadInput("name the data files of the result, each once")
        # It raises for sources that have no merged part.
        merged_part(sources)
        key = (wish.sources, wish.schema_version)
        with self._publishing:
            # A repeated request gets the index of its first one.
            for item in reversed(self._progress.history.commands()):
                if isinstance(item.entry, MergeEntry) and (item.entry.sources, item.entry.schema_version) == key:
                    return item.index
            if key not in self._kept:
                self._prepare(wish, sources, key)
            entry = MergeEntry(self._context.replica.name, wish.sources, wish.schema_version)
            indexes = self._merges.propose_entries(epoch, [entry], self._storage.maker_for_all())
            self._context.pull_signal.hurry()
            if not indexes:
                raise Unavailable("it is not known whether the merge is in the log; send it again")
            with self._lock:
                kept = self._kept.get(key)
                if kept is not None:
                    kept.index = indexes[0]
            return indexes[0]

    def has(self, entry: MergeEntry) -> bool:
        """Whether the result of a merge is here."""
        return (entry.sources, entry.schema_version) in self._kept

    def results(self) -> frozenset[str]:
        """Return the names of the results that are here."""
        with self._lock:
            return frozenset(merged_part(tuple(map(parse_part, sources))).name for sources, _ in self._kept)

    def take(self, effect: Merge) -> PartManifest | None:
        """Make a prepared part the staged result of a merge.

        None when there is none, or when a source has been declared lost since.

        Raises
        ------
        StoreError
            The disk refuses; the part is no longer prepared.
        """
        with self._lock:
            kept = self._kept.pop((effect.sources, effect.schema_version), None)
            if kept is None:
                return None
            self._taking.add(kept.folder.parent)
        store = self._store
        try:
            # A source that was declared lost is empty now, and its rows must not come back with this result.
            if kept.contents != self._contents(effect.sources):
                shutil.rmtree(kept.folder, ignore_errors=True)
                return None
            sharing, manifests = self._storage.sharing, (kept.manifest,)
            # The part's share is handed over from its upload to its staging folder; if that fails, the upload gets it back.
            if sharing is not None:
                sharing.take(manifests)
            try:
                store.staged.adopt(kept.folder, effect.staging)
            except BaseException:
                if sharing is not None:
                    upload, partition = kept.folder.parent.name.removesuffix(MADE_SUFFIX), kept.manifest.partition
                    sharing.uploads.put_back(upload, {partition: kept.manifest})
                raise
            store.staged.note(effect.staging, (kept.manifest,))
            with suppress(OSError):
                # If the folder is not empty, the sweep removes it.
                kept.folder.parent.rmdir()
        finally:
            with self._lock:
                self._taking.discard(kept.folder.parent)
        return kept.manifest

    def _contents(self, sources: Sequence[str]) -> tuple[str, ...]:
        return tuple(self._store.manifest(source).content for source in sources)

    def sweep(self) -> int:
        """Remove the parts whose merges did not apply, or never got into the log; return how many."""
        with self._lock:
            over: list[_Key] = []
            for key, kept in self._kept.items():
                # A result whose merge never got into the log is kept for a while: its job may send it again.
                is_given_up = self._clock() - kept.since > KEPT_S
                if is_given_up if kept.index is None else self._progress.is_executed(kept.index):
                    over.append(key)
            removed = [self._kept.pop(key) for key in over]
        for kept in removed:
            shutil.rmtree(kept.folder, ignore_errors=True)
        # Folders of which the parts are published, and those of earlier processes, go when no result is being received.
        if self._publishing.acquire(blocking=False):
            try:
                with self._lock:
                    needed = self._taking | {kept.folder.parent for kept in self._kept.values()}
                for folder in set(self._uploads.root.glob(f"*{MADE_SUFFIX}")) - needed:
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                self._publishing.release()
        return len(removed)

    def _prepare(self, wish: ResultWish, sources: Sequence[Part], key: _Key) -> None:
        """Make a part of the files, and keep it."""
        held = self._progress.held
        gone = next((part.name for part in sources if part not in held), None)
        if gone is not None:
            raise SnapshotExpired(f"{gone} has left the table while its merge was made elsewhere; plan the merge again")
        definition = self._context.definitions.at(wish.schema_version)
        partition, rows = sources[0].partition, sum(self._store.manifest(part.name).rows for part in sources)
        contents = self._contents(wish.sources)
        self._uploads.folder(wish.upload)
        with self._uploads.committing(wish.upload):
            made = self._uploads.root / f"{wish.upload}{MADE_SUFFIX}"
            shutil.rmtree(made, ignore_errors=True)
            private.make_folder(made)
            try:
                manifest = self._received(wish, definition, partition, made / "part")
                _check(wish, manifest, rows, is_plain=definition.policy == PLAIN)
            except BaseException:
                shutil.rmtree(made, ignore_errors=True)
                raise
            with self._lock:
                self._kept[key] = _Kept(made / "part", manifest, contents, self._clock())
            self._uploads.remove(wish.upload)

    def _received(self, wish: ResultWish, definition: TableDefinition, partition: str, folder: Path) -> PartManifest:
        """Make a part of what an upload has: read its files, or look at its objects."""
        from replitree.storage.parts.adopt import adopt_files

        uploaded, manifest = self._uploads.folder(wish.upload), wish.manifest
        if manifest is None:
            return adopt_files([uploaded / partition / file.name for file in wish.files], definition, folder, partition)
        if self._storage.sharing is None:
            raise BadInput("the table has no object store: send the files")
        if (manifest.partition, manifest.schema_version) != (partition, wish.schema_version):
            raise BadInput(
                f"the result is of partition {manifest.partition}, or of another schema; plan the merge again"
            )
        self._storage.sharing.uploads.seal(wish.upload, (manifest,), {partition: wish.tags})
        rename(uploaded, folder)
        return manifest


def _check(wish: ResultWish, manifest: PartManifest, rows: int, *, is_plain: bool) -> None:
    """Compare what was read with what was said, and with the sources."""
    said = [(file.rows, file.bytes, file.checksum) for file in wish.files if file.rows]
    if said != [(file.rows, file.bytes, file.checksum) for file in manifest.files]:
        raise BadInput(
            "the files of the result arrived with other rows or another checksum than announced; send them again"
        )
    if manifest.rows > rows or (is_plain and manifest.rows != rows):
        raise BadInput(f"the result has {manifest.rows} rows, and its sources have {rows}")
