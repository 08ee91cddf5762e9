"""One table's parts on one local disk.

::

    <root>/parts/<part>/{data-0.parquet, …, manifest.json}        published: what a replica shows and serves
    <root>/staging/<staging id>@<partition>/…                      written by an insert, not (known to be) in the log yet
    <root>/staging/fetch-<part>/…                                  on its way from another replica
    <root>/detached/…                                              taken out; kept for people, see `disk_detached`
    <root>/frozen/<name>/…                                         snapshots, by hard links, see `disk_frozen`
    <root>/removing/<part>_<n>/…                                   on its way out; swept

Guarantees:

* A folder under ``parts`` appears by one rename of a folder whose files were synced before, and is durable when `publish` or
  `finish_fetch` returns.  So a part is there as a whole or not at all, after any crash.
* Every operation may be repeated after a crash at any of its steps, and ends as if it had run once.
* No name leaves the root: names are checked against what they may be, and symbolic links are not followed.
* A full or failing disk raises `StoreError`; what was there before is still there.

Order of publication (`publish`): staged files are whole (sizes as in the manifest) → rename → sync ``parts``.
Order of a fetch (`finish_fetch`): verify every checksum → sync files → sync folder →
rename → sync ``parts``; of several small ones at once, see `replitree.storage.disk_fetch`.
Order of a removal (`remove_parts`): rename into ``removing`` → sync ``removing`` and ``parts`` → delete.  A half-deleted part
is never under a part's name, not even when the power fails.

Absent on purpose: what a part means (the log knows), when one may be deleted (readers hold leases; who removes has asked),
locks between processes (a replica's name has one live process; the epoch sees to that).
"""

from __future__ import annotations

import os
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path

from replitree.errors import BadInput, CorruptPart, InvalidName
from replitree.storage.definition import TableDefinition
from replitree.storage.disk_detached import (
    BROKEN,
    DETACHED,
    REASONS,
    REMOVED,
    DetachedPart,
    attachable_parts,
    free_name,
)
from replitree.storage.disk_fetch import (
    ReceivedPart,
    check_expected,
    check_received,
    sync_received,
    write_received,
)
from replitree.storage.disk_frozen import FrozenFolder, FrozenSnapshot, describe_snapshot
from replitree.storage.durable import is_folder, make_folder, rename, store_errors, sync_folder, write_file
from replitree.storage.encode import sync_part
from replitree.storage.manifest import (
    MANIFEST_FILE,
    PartManifest,
    decode_manifest,
    is_partition_id,
    manifest_problem,
    read_manifest,
)
from replitree.storage.part_folder import (
    FETCH_PREFIX,
    FOLDER_NAME,
    PART_NAME,
    STAGING_ID,
    DamagedFile,
    check_file_name,
    check_part_name,
    check_staging_id,
    folders,
    link_part_folder,
    partitions_in,
    remove_folder,
    verify_files,
    whole_manifest,
)

MANIFESTS_CACHED_MAX = 4096
"""Manifests kept in memory, about 2 kB each."""

_PARTITION_MARK = "@"
_STAGED_NAME = re.compile(rf"{STAGING_ID.pattern}{_PARTITION_MARK}[^/@]+")


class PartStore:
    """The parts of one table on one local disk.  May be used by several threads.

    Parameters
    ----------
    root
        The table's folder; made, with its parents, if missing.
    """

    def __init__(self, root: Path) -> None:
        self._lock = threading.Lock()
        self._sweeping = threading.Lock()
        self._naming = threading.Lock()
        self._names_open = True
        """Whether a part may have a name that is not durable; an earlier process may have left one."""
        self._manifests: OrderedDict[str, PartManifest] = OrderedDict()
        self._staged: dict[Path, PartManifest] = {}
        with store_errors(f"make the table's folder {root}"):
            root.mkdir(parents=True, exist_ok=True)
            self.root = root.resolve()
            self._parts = self.root / "parts"
            self._staging = self.root / "staging"
            self._detached = self.root / "detached"
            self._removing = self.root / "removing"
            self._frozen = FrozenFolder(self.root / "frozen")
            for folder in (self._parts, self._staging, self._detached, self._removing, self.root / "frozen"):
                self._make(folder)
            sync_folder(self.root)
            sync_folder(self.root.parent)

    def _make(self, folder: Path) -> None:
        make_folder(folder)
        if not is_folder(folder):
            raise BadInput(f"{folder} is not a folder of its own: links out of the table's folder are not followed")

    # --- names to paths -------------------------------------------------------------------------------------------------

    def part_path(self, part: str) -> Path:
        """Folder of a published part, whether it is there or not.  Raises `BadInput` for what can't be a part's name."""
        return self._parts / check_part_name(part)

    def file_path(self, part: str, file: str) -> Path:
        """Path of a file of a published part: its manifest or a data file.  Raises `BadInput` for any other name."""
        return self.part_path(part) / check_file_name(file)

    @property
    def staging(self) -> Path:
        """Folder in which inserts are staged: what `stage_table` is to be given, with a `staging_prefix`."""
        return self._staging

    def staging_prefix(self, staging: str) -> str:
        """Begin of the names of what is staged under an id.  Raises `InvalidName` for what can't be an id."""
        return f"{check_staging_id(staging)}{_PARTITION_MARK}"

    def staged_path(self, staging: str, partition: str) -> Path:
        """Folder of a staged part, whether it is there or not."""
        if not is_partition_id(partition):
            raise InvalidName(f"{partition!r} can't be a partition's id")
        return self._staging / f"{self.staging_prefix(staging)}{partition}"

    # --- what is there --------------------------------------------------------------------------------------------------

    def parts(self) -> tuple[str, ...]:
        """Names of the published parts, ascending."""
        return folders(self._parts, PART_NAME)

    def stagings(self) -> tuple[str, ...]:
        """Staging ids on disk, ascending."""
        return tuple(sorted({n.partition(_PARTITION_MARK)[0] for n in folders(self._staging, _STAGED_NAME)}))

    def fetches(self) -> tuple[str, ...]:
        """Names of the parts whose fetch was begun and not finished, ascending."""
        names = folders(self._staging, FOLDER_NAME)
        return tuple(n.removeprefix(FETCH_PREFIX) for n in names if n.startswith(FETCH_PREFIX))

    def detached(self) -> tuple[str, ...]:
        """Names of the folders that were taken out, ascending."""
        return folders(self._detached, FOLDER_NAME)

    def has_part(self, part: str) -> bool:
        """Whether a published part is there with every file in its full size."""
        return whole_manifest(self.part_path(part)) is not None

    def manifest(self, part: str) -> PartManifest:
        """Manifest of a published part, from memory if it was read lately.

        Raises
        ------
        CorruptPart
            The part is not there, or its manifest is damaged.
        """
        with self._lock:
            if part in self._manifests:
                self._manifests.move_to_end(part)
                return self._manifests[part]
        with store_errors(f"read the manifest of {part}"):
            manifest = read_manifest(self.part_path(part))
        self._remember(part, manifest)
        return manifest

    def manifest_bytes(self, part: str) -> bytes:
        """Manifest of a published part as it is on disk.  Raises as `manifest`."""
        return self.manifest(part).encode()

    def free_bytes(self) -> int:
        """Bytes that may still be written on this disk."""
        with store_errors(f"ask for the room in {self.root}"):
            found = os.statvfs(self.root)
        return found.f_bavail * found.f_frsize

    def probe(self) -> None:
        """Write and sync a few bytes.  Raises `StoreError` while the disk is full or failing."""
        path = self._staging / ".probe"
        with store_errors(f"write in {self._staging}"):
            path.unlink(missing_ok=True)
            write_file(path, b"probe")
            path.unlink()

    # --- insert ---------------------------------------------------------------------------------------------------------

    def seal_upload(self, folder: Path, manifests: Sequence[PartManifest]) -> None:
        """Turn files in a folder of this disk into parts: verify them against their manifests, write these, sync everything.

        Raises
        ------
        BadInput
            A manifest contradicts itself.
        CorruptPart
            A file is missing or is not what its manifest says.
        """
        with store_errors(f"seal the upload in {folder.name}"):
            for manifest in manifests:
                self._seal(folder, manifest)
            sync_folder(folder)

    def adopt_staging(self, folder: Path, staging: str) -> None:
        """Make the parts in a sealed folder of this disk the staged parts of an insert.  Idempotent."""
        with store_errors(f"adopt {folder.name} as {staging}"):
            for partition in partitions_in(folder) if is_folder(folder) else ():
                rename(folder / partition, self.staged_path(staging, partition))
            sync_folder(self._staging)
            remove_folder(folder)

    def _seal(self, root: Path, manifest: PartManifest) -> None:
        problem = manifest_problem(manifest)
        if problem is not None:
            raise BadInput(f"the manifest of an uploaded part contradicts itself: {problem}")
        folder = root / manifest.partition
        verify_files(folder, manifest)
        (folder / MANIFEST_FILE).unlink(missing_ok=True)
        write_file(folder / MANIFEST_FILE, manifest.encode(), sync=False)
        sync_part(folder, manifest)

    def publish(self, staging: str, names: Mapping[str, str], *, sync_names: bool = True) -> tuple[str, ...]:
        """Give the staged parts their names.

        Parameters
        ----------
        staging
            The staging id; nothing may be staged under it any more when this was done before.
        names
            Part name by partition.
        sync_names
            Whether the names are durable on return; with False the caller says `sync_names`, or `publish` again, before it
            relies on them.  The files are durable in any case, under one name or the other.

        Returns
        -------
        tuple
            Names of the parts that are neither staged nor published as a whole: they must be fetched.
        """
        with store_errors(f"publish the insert {staging}"):
            missing = tuple(part for each, part in sorted(names.items()) if not self._publish_part(staging, each, part))
        if sync_names:
            self.sync_names()
        return missing

    def note_staged(self, staging: str, manifests: Sequence[PartManifest]) -> None:
        """Remember what this process has just staged and synced: `publish` need not look at it again."""
        with self._lock:
            self._staged.update({self.staged_path(staging, each.partition): each for each in manifests})

    def _publish_part(self, staging: str, partition: str, part: str) -> bool:
        staged, target = self.staged_path(staging, partition), self.part_path(part)
        with self._lock:
            noted = self._staged.pop(staged, None)
        if noted is not None and not os.path.lexists(target):
            self._give_name(staged, target)
            self._remember(part, noted)
            return True
        if whole_manifest(target) is not None:
            return True
        manifest = whole_manifest(staged)
        if manifest is None or manifest.partition != partition:
            return False
        if is_folder(target):
            self.quarantine(target.name, "found damaged when it was to be published")
        self._give_name(staged, target)
        self._remember(target.name, manifest)
        return True

    def remove_staging(self, staging: str) -> None:
        """Delete whatever is staged under an id.  Idempotent."""
        prefix = self.staging_prefix(staging)
        with self._lock:
            self._staged = {path: noted for path, noted in self._staged.items() if not path.name.startswith(prefix)}
        with store_errors(f"remove what is staged as {staging}"):
            for name in folders(self._staging, _STAGED_NAME):
                if name.startswith(prefix):
                    remove_folder(self._staging / name)

    # --- links ----------------------------------------------------------------------------------------------------------

    def link_part(self, part: str, staging: str, partition: str) -> PartManifest:
        """Stage a published part as it is, by hard links, so that `publish` can give it a second name.  Idempotent.

        Raises
        ------
        BadInput
            The part is of another partition.
        CorruptPart
            The part is not there as a whole.
        """
        manifest = whole_manifest(self.part_path(part))
        if manifest is None:
            raise CorruptPart(f"{part} is not there as a whole, so it can't be linked; fetch it again")
        if manifest.partition != partition:
            raise BadInput(f"{part} is of partition {manifest.partition}, not {partition}")
        self._stage_link(self.part_path(part), manifest, staging)
        return manifest

    def stage_detached(self, name: str, staging: str) -> PartManifest:
        """Verify a detached part and stage it, by hard links, so that an insert can publish it.  Idempotent.

        Whether its rows fit the table is for the caller to ask.

        Raises
        ------
        BadInput
            Nothing of this name is detached; names what can be attached.
        CorruptPart
            A file is missing or has changed.
        """
        if name not in self.detached():
            known = ", ".join(each.name for each in self.attachable()) or "none"
            raise BadInput(f"nothing is detached as {name!r}; what can be attached: {known}")
        folder = self._detached / name
        with store_errors(f"verify {name}"):
            manifest = read_manifest(folder)
            verify_files(folder, manifest)
        self._stage_link(folder, manifest, staging)
        return manifest

    def _stage_link(self, source: Path, manifest: PartManifest, staging: str) -> None:
        target = self.staged_path(staging, manifest.partition)
        with store_errors(f"link {source.name} as {target.name}"):
            if whole_manifest(target) != manifest:
                link_part_folder(source, manifest, target)
            sync_folder(self._staging)
        self.note_staged(staging, (manifest,))

    # --- fetch ----------------------------------------------------------------------------------------------------------

    def begin_fetch(self, part: str) -> Path:
        """Give the folder into which a part's files are to be fetched; what an earlier try left is still in it."""
        folder = self._fetch_path(part)
        with store_errors(f"begin to fetch {part}"):
            self._make(folder)
        return folder

    def finish_fetch(self, part: str, content_hash: str | None = None, *, sync_names: bool = True) -> PartManifest:
        """Verify the fetched files, sync them, and publish the part.  A part that is there already stays.

        Parameters
        ----------
        content_hash
            What the log says of the part.
        sync_names
            Whether to sync the folders of parts; with False the caller says `sync_names` after a batch, and the part counts
            as published only then.

        Raises
        ------
        CorruptPart
            A file is missing, or is not what the manifest or the log says.  The damaged file (or, for a wrong manifest,
            everything) is removed, so that the next try fetches it again and keeps the rest.
        """
        folder, target = self._fetch_path(part), self.part_path(part)
        with store_errors(f"finish to fetch {part}"):
            manifest = self._present(target, content_hash)
            if manifest is not None:
                remove_folder(folder)
            else:
                manifest = self._verified_fetch(folder, part, content_hash)
                sync_part(folder, manifest)
                self._name_fetched(folder, part)
        if sync_names:  # also for a part that is there: an earlier try may have stopped before its sync
            self.sync_names()
        self._remember(part, manifest)
        return manifest

    def receive(self, part: str, raw: bytes, content_hash: str | None, files: Sequence[bytes]) -> ReceivedPart:
        """Check and write a small part that has arrived whole; `publish_received` makes it durable and publishes it.

        Parameters
        ----------
        raw, files
            The manifest and the data files, in the manifest's order.
        content_hash
            What the log says of the part.

        Raises
        ------
        CorruptPart
            It is not what the manifest or the log says; nothing was written.
        """
        received = ReceivedPart(part, decode_manifest(raw), self._fetch_path(part))
        check_expected(received.manifest, part, content_hash)
        check_received(part, received.manifest, files)
        with store_errors(f"write the fetched {part}"):
            write_received(received, raw, files)
        return received

    def publish_received(self, batch: Sequence[ReceivedPart]) -> None:
        """Sync what was received, publish it, and sync the names: all at once.  A part that is there already stays."""
        with store_errors(f"publish {len(batch)} fetched parts"):
            sync_received(batch)
            for each in batch:
                if self._present(self.part_path(each.part), each.manifest.content_hash) is not None:
                    remove_folder(each.folder)
                else:
                    self._name_fetched(each.folder, each.part)
            self.sync_names()
        for each in batch:
            self._remember(each.part, each.manifest)

    def _name_fetched(self, folder: Path, part: str) -> None:
        """Give a fetched part its name; one that is there with other content makes way."""
        target = self.part_path(part)
        if is_folder(target):
            self.quarantine(part, "it did not have the content that the log says")
        self._give_name(folder, target)

    def _give_name(self, folder: Path, target: Path) -> None:
        rename(folder, target)
        self._names_open = True  # after the rename: whoever closes it from now on syncs this name, too

    def sync_names(self) -> None:
        """Make the names of the published parts durable; when they are already, nothing is left to do."""
        with self._naming, store_errors("sync the folder of parts"):  # who comes during a sync waits for its end
            if self._names_open:
                self._names_open = False
                try:
                    sync_folder(self._parts)
                except BaseException:
                    self._names_open = True
                    raise

    def abandon_fetch(self, part: str) -> None:
        """Delete what was fetched of a part.  Idempotent."""
        with store_errors(f"abandon the fetch of {part}"):
            remove_folder(self._fetch_path(part))

    def _fetch_path(self, part: str) -> Path:
        return self._staging / f"{FETCH_PREFIX}{check_part_name(part)}"

    def _present(self, target: Path, content_hash: str | None) -> PartManifest | None:
        manifest = whole_manifest(target)
        if manifest is None or content_hash not in (None, manifest.content_hash):
            return None
        return manifest

    def _verified_fetch(self, folder: Path, part: str, content_hash: str | None) -> PartManifest:
        try:
            manifest = read_manifest(folder)
            check_expected(manifest, part, content_hash)
        except CorruptPart:
            remove_folder(folder)
            raise
        try:
            verify_files(folder, manifest)
        except DamagedFile as error:
            error.path.unlink(missing_ok=True)
            raise
        return manifest

    # --- health ---------------------------------------------------------------------------------------------------------

    def verify(self, part: str) -> PartManifest:
        """Read every byte of a published part and compare the checksums.

        Raises
        ------
        CorruptPart
            Something is missing or has changed; say `quarantine` and fetch the part again.
        """
        folder = self.part_path(part)
        with store_errors(f"verify {part}"):
            manifest = read_manifest(folder)
            verify_files(folder, manifest)
        return manifest

    def quarantine(self, part: str, reason: str) -> Path | None:
        """Take a damaged part out, for people to look at.  None when it is not there.

        Parameters
        ----------
        reason
            Kept in the folder as ``reason.txt``.
        """
        moved = self._take_out((part,), BROKEN)
        for folder in moved:
            with store_errors(f"note why {part} was taken out"):
                (folder / "reason.txt").write_text(f"{reason}\n", encoding="utf-8")
        return moved[0] if moved else None

    # --- what leaves ----------------------------------------------------------------------------------------------------

    def detach(self, part: str) -> Path | None:
        """Take a part out because the table no longer has it; it is kept aside.  None when it is not there."""
        moved = self._take_out((part,), REMOVED)
        return moved[0] if moved else None

    def detach_parts(self, parts: Sequence[str], why: str = DETACHED) -> tuple[str, ...]:
        """Take parts out and keep them aside; those that are not there are left out.  Idempotent.

        Parameters
        ----------
        why
            ``detached`` (can be attached again), ``removed`` or ``broken``.

        Returns
        -------
        tuple
            Names under which they are in `detached`.
        """
        if why not in REASONS:
            raise BadInput(f"{why!r} is no reason to take a part out; use one of {', '.join(sorted(REASONS))}")
        return tuple(folder.name for folder in self._take_out(parts, why))

    def keep_aside(self, parts: Sequence[str]) -> tuple[str, ...]:
        """Keep published parts among the detached ones as well, by hard links under their own names.  Idempotent.

        The parts stay where they are: readers may need them a while longer.

        Returns
        -------
        tuple
            Names under which they are in `detached`: their own.

        Raises
        ------
        CorruptPart
            A part is not there as a whole, and was not kept before either.
        """
        targets = [self._detached / self.part_path(part).name for part in parts]
        with self._sweeping, store_errors(f"keep {', '.join(parts[:5])} aside"):
            for part, target in zip(parts, targets, strict=True):
                self._keep(self.part_path(part), target)
            sync_folder(self._detached)
        return tuple(parts)

    def _keep(self, source: Path, target: Path) -> None:
        manifest, kept = whole_manifest(source), whole_manifest(target)
        if manifest is None and kept is None:
            raise CorruptPart(f"{source.name} is not there as a whole, so it can't be kept aside; fetch it again")
        if manifest is None or manifest == kept:
            return
        if kept is not None:  # somebody put another part here under this name
            self._move_out(target, self._detached, f"{DETACHED}_{target.name}")
        link_part_folder(source, manifest, target)

    def attachable(self) -> tuple[DetachedPart, ...]:
        """Give the detached parts that are whole and were not taken out as wrong, by name."""
        with store_errors("list what is detached"):
            return tuple(attachable_parts(self._detached))

    def remove_detached(self, name: str) -> None:
        """Delete something that was taken out, by its name in `detached`.  Idempotent."""
        if name in self.detached():
            self._delete([(self._detached / name, name)])

    def remove_parts(self, parts: Sequence[str]) -> tuple[str, ...]:
        """Delete published parts for good; return those that were there.  Idempotent."""
        paths = [self.part_path(part) for part in parts]
        with self._lock:
            for part in parts:
                self._manifests.pop(part, None)
        return self._delete([(path, path.name) for path in paths])

    def _delete(self, doomed: Sequence[tuple[Path, str]]) -> tuple[str, ...]:
        """Delete folders, each first put where nobody looks for it."""
        with self._sweeping, store_errors(f"delete {', '.join(name for _, name in doomed[:5])}"):
            there = [(path, name) for path, name in doomed if is_folder(path)]
            moved = [(path, self._move_out(path, self._removing, name)) for path, name in there]
            sync_folder(self._removing)
            for parent in sorted({path.parent for path, _ in doomed}):  # also for what an earlier try has moved already
                sync_folder(parent)
            for _, target in moved:
                remove_folder(target)
        return tuple(name for _, name in there)

    def _take_out(self, parts: Sequence[str], why: str) -> tuple[Path, ...]:
        sources = [self.part_path(part) for part in parts]
        with self._lock, store_errors(f"take out {', '.join(parts[:5])}"):
            for part in parts:
                self._manifests.pop(part, None)
            moved = [
                self._move_out(source, self._detached, f"{why}_{source.name}")
                for source in sources
                if is_folder(source)
            ]
            sync_folder(self._detached)  # also for what an earlier try has moved already
            sync_folder(self._parts)
        return tuple(moved)

    def _move_out(self, source: Path, folder: Path, stem: str) -> Path:
        target = free_name(folder, stem)
        rename(source, target)
        return target

    # --- frozen snapshots -----------------------------------------------------------------------------------------------

    def freeze(
        self, parts: Sequence[str], name: str, definition: TableDefinition, index: int, note: str = ""
    ) -> FrozenSnapshot:
        """Keep published parts as they are, by hard links, until `remove_frozen`.  The same again changes nothing.

        Parameters
        ----------
        index
            Up to which index of the log (not included) the parts are the table.
        note
            For people: when and why.

        Raises
        ------
        BadInput
            Another snapshot has this name, or it can't be a name.
        CorruptPart
            A part is not there as a whole.
        """
        sources: dict[str, tuple[Path, PartManifest]] = {}
        for part in parts:
            manifest = whole_manifest(self.part_path(part))
            if manifest is None:
                raise CorruptPart(f"{part} is not there as a whole, so it can't be frozen; fetch it again")
            sources[part] = (self.part_path(part), manifest)
        snapshot = describe_snapshot({part: found for part, (_, found) in sources.items()}, definition, index, note)
        with self._sweeping, store_errors(f"freeze {len(sources)} parts as {name}"):
            self._frozen.make(name, snapshot, sources)
        return snapshot

    def frozen(self) -> tuple[str, ...]:
        """Names of the frozen snapshots, ascending."""
        return self._frozen.names()

    def frozen_snapshot(self, name: str) -> FrozenSnapshot:
        """Read what a frozen snapshot is.  Raises `BadInput` if there is none, `CorruptPart` if its description is damaged."""
        return self._frozen.read(name)

    def frozen_path(self, name: str) -> Path:
        """Folder of a frozen snapshot, whether it is there or not.  Raises `InvalidName` for what can't be a name."""
        return self._frozen.path(name)

    def remove_frozen(self, name: str) -> None:
        """Delete a frozen snapshot.  Idempotent."""
        self._delete([(self._frozen.path(name), name)])

    def sweep(self) -> int:
        """Delete what removals and freezes that a crash cut short have left; return how many folders.

        Said once by a process that has the replica's name for sure: another's freeze may be under way before.
        """
        with self._sweeping, store_errors(f"sweep {self.root}"):
            left = folders(self._removing, FOLDER_NAME)
            for name in left:
                remove_folder(self._removing / name)
            return len(left) + self._frozen.sweep()

    def destroy(self) -> None:
        """Delete the table's folder and everything in it: the table was dropped."""
        with store_errors(f"delete {self.root}"):
            remove_folder(self.root)

    # --- helpers --------------------------------------------------------------------------------------------------------

    def _remember(self, part: str, manifest: PartManifest) -> None:
        with self._lock:
            self._manifests[part] = manifest
            self._manifests.move_to_end(part)
            while len(self._manifests) > MANIFESTS_CACHED_MAX:
                self._manifests.popitem(last=False)
