"""One table's parts on one local disk.

::

    <root>/parts/<part>/{data-0.parquet, …, manifest.json}        published: what a replica shows and serves
    <root>/staging/<staging id>@<partition>/…                      written by an insert, not (known to be) in the log yet
    <root>/staging/fetch-<part>/…                                  on its way from another replica
    <root>/detached/…                                              taken out; kept for people, see `detached`
    <root>/frozen/<name>/…                                         snapshots, by hard links, see `frozen`
    <root>/removing/<part>_<n>/…                                   on its way out; swept
    <root>/leaving/…                                               parts of shares on their way out, see `shared`

Guarantees:

* A folder under ``parts`` appears by one rename of a folder whose files were synced before, and is durable when `publish` or
  `finish_fetch` returns.  So a part is there as a whole or not at all, after any crash.
* Every operation may be repeated after a crash at any of its steps, and ends as if it had run once.
* No name leaves the root: names are checked against what they may be, and symbolic links are not followed.
* A full or failing disk raises `StoreError`; what was there before is still there.

Where to look: names and folders, and the steps by which a part gets a name or loses it, in `folders`; what is staged and
published in `staging`; what comes from other replicas in `fetch`; what moves into an object store and out of it in
`moving`; here what leaves, and frozen snapshots.

Order of a removal (`remove_parts`): rename into ``removing`` → sync ``removing`` and ``parts`` → delete.  A half-deleted part
is never under a part's name, not even when the power fails.

Absent on purpose: what a part means (the log knows), when one may be deleted (readers have leases, and the caller
of `remove_parts` has looked at them), locks between processes (a replica's name has one live process; the epoch sees to that).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from replitree.errors import CorruptPart
from replitree.storage.disk.detached import DETACHED, REMOVED
from replitree.storage.disk.fetch import FetchedParts
from replitree.storage.disk.folders import PartFolders
from replitree.storage.disk.frozen import FrozenFolder, FrozenSnapshot, describe_snapshot
from replitree.storage.disk.moving import MovedParts
from replitree.storage.disk.packs import PartPacks
from replitree.storage.disk.shared import link_as_local
from replitree.storage.disk.staging import StagedParts
from replitree.storage.files.durable import store_errors, sync_folder
from replitree.storage.parts.manifest import PartManifest, read_manifest
from replitree.storage.parts.part_folder import (
    FOLDER_NAME,
    folders,
    link_part_folder,
    remove_folder,
    verify_files,
    whole_manifest,
)
from replitree.storage.schema.definition import TableDefinition


class PartStore(PartFolders):
    """The parts of one table on one local disk.  May be used by several threads.

    Parameters
    ----------
    root
        The table's folder; made, with its parents, if missing.

    Attributes
    ----------
    staged, fetched, moved, packs
        What stages and publishes, what takes parts from other replicas, what moves rows into the object store and back, and
        the packs of old parts.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.staged = StagedParts(self)
        self.fetched = FetchedParts(self)
        self.moved = MovedParts(self)
        self.packs = PartPacks(self)
        self._frozen = FrozenFolder(self.root / "frozen")
        self._copies_noted = False

    # --- health ---------------------------------------------------------------------------------------------------------

    def verify(self, part: str) -> PartManifest:
        """Read every byte of a published part and compare the checksums; damaged copies of objects are removed.

        Raises
        ------
        CorruptPart
            Something is missing or has changed; say `quarantine` and fetch the part again.
        """
        folder = self.part_path(part)
        with store_errors(f"verify {part}"):
            manifest = read_manifest(folder)
            if manifest.share_id is None:
                verify_files(folder, manifest)
            else:
                self.shared.remove_damaged_copies(folder, manifest)
        if manifest.share_id is not None:
            self.shared.verify_objects(manifest)
        return manifest

    # --- data files of shares -------------------------------------------------------------------------------------------

    def bring(self, parts: Sequence[str], files: Sequence[str] | None = None) -> None:
        """Bring the data files of parts here that are objects of shares; `files`: only these.

        Raises
        ------
        CorruptPart
            A part is not there, or an object is not what the manifest says.
        StoreError
            The store gives no answer.
        """
        for part in parts:
            self.shared.bring_files(self.part_path(part), self.manifest(part), files)

    def evict_copies(self, bytes_max: int, is_kept: Callable[[str], bool] = lambda _: False) -> int:
        """Take copies of objects away until there are no more bytes of them than wanted; return how many bytes went.

        Parameters
        ----------
        is_kept
            Whether the copies of a part stay all the same.
        """
        if not self._copies_noted:
            self._copies_noted = True
            for part in self.parts():
                with suppress(CorruptPart):
                    self.manifest(part)
        return self.shared.evict(self._parts, bytes_max, is_kept=is_kept)

    # --- what leaves ----------------------------------------------------------------------------------------------------

    def detach(self, part: str) -> Path | None:
        """Take a part out because the table no longer has it; it is kept aside.  None when it is not there."""
        return self._take_out(part, REMOVED)

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
        # Before the lock of sweeps: bringing takes as long as the store does.
        self.bring([part for part in parts if self.has_part(part)])
        with self._sweeping, store_errors(f"keep {', '.join(parts[:5])} aside"):
            for part, target in zip(parts, targets, strict=True):
                source = self.part_path(part)
                manifest, kept = whole_manifest(source), whole_manifest(target)
                if manifest is None and kept is None:
                    raise CorruptPart(
                        f"{source.name} is not there as a whole, so it can't be kept aside; fetch it again"
                    )
                # Kept already, perhaps by an earlier try that removed the part afterwards.
                if manifest is None or manifest.as_local() == kept:
                    continue
                if kept is not None:  # another part was put here under this name
                    self._move_out(target, self._detached, f"{DETACHED}_{target.name}")
                self._link(source, manifest, target)
            sync_folder(self._detached)
        return tuple(parts)

    def _link(self, source: Path, _seen: PartManifest, target: Path) -> None:
        """Make a folder with the same files that owns them; the files of a share are copies here, brought for it.

        Said while nothing is swept, so that the rows do not move meanwhile; they may have since they were looked at.
        """
        manifest = read_manifest(source)
        if manifest.share_id is None:
            link_part_folder(source, manifest, target)
            return
        with self.shared.pinning((source.name,)):
            self.shared.bring_files(source, manifest)
            link_as_local(source, manifest, target)

    def remove_detached(self, name: str) -> None:
        """Delete something that was taken out, by its name in `detached`.  Idempotent."""
        if name in self.detached():
            self._delete([(self._detached / name, name)])

    def remove_parts(self, parts: Sequence[str]) -> tuple[str, ...]:
        """Delete published parts for good; return those that were there.  Idempotent."""
        paths = [self.part_path(part) for part in parts]
        # Out of memory before the folders go: no reader opens a part by a manifest whose files are being deleted.
        with self._lock:
            for part in parts:
                self._manifests.pop(part, None)
                self._expect_nothing(part)
        return self._delete([(path, path.name) for path in paths])

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
        local = {part: found.as_local() for part, (_, found) in sources.items()}
        snapshot = describe_snapshot(local, definition, index, note)
        with self._sweeping, store_errors(f"freeze {len(sources)} parts as {name}"):
            self._frozen.make(name, snapshot, sources, self._link)
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
        """Delete what removals, freezes and packings that a crash cut short have left; return how many files and folders.

        Said once by a process that has the replica's name for sure: another's freeze may be under way before.
        """
        with self._sweeping, store_errors(f"sweep {self.root}"):
            # Under the lock of sweeps: a removal of this process may be between its rename and its deletion.
            left = folders(self.removing, FOLDER_NAME)
            for name in left:
                remove_folder(self.removing / name)
            return len(left) + self._frozen.sweep() + self.packs.sweep()

    def destroy(self) -> None:
        """Delete the table's folder and everything in it: the table was dropped."""
        with store_errors(f"delete {self.root}"):
            remove_folder(self.root)
