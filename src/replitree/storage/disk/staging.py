"""The files of an insert, a merge or an attach, until they are a part: staged, then published under its name.

Order of publication (`publish`): staged files are whole (sizes as in the manifest) → rename → sync ``parts``.

Absent on purpose: what is staged when, and for how long (`replitree.protocol.state.start` sweeps what no log entry names).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from replitree.errors import BadInput, CorruptPart
from replitree.protocol.core.parts import parse_part
from replitree.storage.disk.folders import STAGED_NAME, PartFolders
from replitree.storage.disk.shared import write_manifest
from replitree.storage.files.durable import is_folder, make_folder, rename, store_errors, sync_folder, write_file
from replitree.storage.parts.manifest import MANIFEST_FILE, PartManifest, manifest_problem, read_manifest
from replitree.storage.parts.part_folder import (
    folders,
    link_part_folder,
    remove_folder,
    staged_in,
    verify_files,
    whole_manifest,
)
from replitree.storage.parts.part_sync import sync_parts

STAGED = "staged"
"""The name of a staged part of a share in `leaving`, until its share is released."""


class StagedParts:
    """Stages parts and publishes them.  May be used by several threads.

    Parameters
    ----------
    folders
        The table's.
    """

    def __init__(self, folders: PartFolders) -> None:
        self._folders = folders
        self._shared = folders.shared
        self._lock = threading.Lock()
        self._noted: dict[Path, PartManifest] = {}
        self._borrowed: dict[Path, dict[str, str]] = {}
        """For each staged part, the shares of the files that need not be put, by name."""

    # --- uploads --------------------------------------------------------------------------------------------------------

    def seal_upload(self, folder: Path, manifests: Sequence[PartManifest]) -> None:
        """Turn files in a folder of this disk into parts, one for each partition.  Raises as `seal_named`."""
        self.seal_named(folder, {manifest.partition: manifest for manifest in manifests})

    def seal_named(self, folder: Path, manifests: Mapping[str, PartManifest]) -> None:
        """Turn files in a folder of this disk into parts: verify them against their manifests, write these, sync everything.

        Parameters
        ----------
        manifests
            By the names of the parts' folders.

        Raises
        ------
        BadInput
            A manifest contradicts itself.
        CorruptPart
            A file is missing or is not what its manifest says.
        """
        with store_errors(f"seal the upload in {folder.name}"):
            for name, manifest in manifests.items():
                problem = "it names a share" if manifest.share_id is not None else manifest_problem(manifest)
                if problem is not None:
                    raise BadInput(f"the manifest of an uploaded part contradicts itself: {problem}")
                place = folder / name
                verify_files(place, manifest, keep_sums=True)
                # An earlier try may have stopped after it wrote the manifest; `write_file` replaces nothing.
                (place / MANIFEST_FILE).unlink(missing_ok=True)
                write_file(place / MANIFEST_FILE, manifest.encode(), sync=False)
            sync_parts([(folder / name, manifest) for name, manifest in manifests.items()], (folder,))

    def adopt(self, folder: Path, staging: str) -> None:
        """Make the parts in a sealed folder of this disk the staged parts of an insert.  Idempotent."""
        with store_errors(f"adopt {folder.name} as {staging}"):
            # Again after a crash: what was renamed already is not in the folder any more.
            for name in staged_in(folder) if is_folder(folder) else ():
                rename(folder / name, self._folders.staged_path(staging, name))
            sync_folder(self._folders.staging)
            # After the sync: the staged names are durable before the folder that they came from goes.
            remove_folder(folder)

    def give_back(self, staging: str, folder: Path, shares: Collection[str]) -> None:
        """Put what is staged back into the folder that it was adopted from, so that it can be adopted again.  Idempotent.

        Parameters
        ----------
        shares
            Those that the folder's parts had before.  What was put into the store since is let go of: its rows stay here.
        """
        with store_errors(f"give back {staging} to {folder.name}"):
            make_folder(folder)
            prefix = self._folders.staging_prefix(staging)
            for staged, manifest in self.parts(staging):
                back = folder / staged.name.removeprefix(prefix)
                # What was put into the store since is released: a folder of its own, with links, keeps the rows here.
                if manifest.share_id is None or manifest.share_id in shares:
                    rename(staged, back)
                else:
                    link_part_folder(staged, manifest.as_local(), back)
            sync_folder(folder)
        self.remove(staging)

    # --- publication ----------------------------------------------------------------------------------------------------

    def publish(self, staging: str, names: Mapping[str, str], *, sync_names: bool = True) -> tuple[str, ...]:
        """Give the staged parts their names.

        Parameters
        ----------
        staging
            The staging id; nothing may be staged under it any more when this was done before.
        names
            Part name by partition; of the result of a rewrite by its source.
        sync_names
            Whether the names are durable on return; with False the caller says `sync_names`, or `publish` again, before it
            relies on them.  The files are durable in any case, under one name or the other.

        Returns
        -------
        tuple
            Names of the parts that are neither staged nor published as a whole: they must be fetched.
        """
        missing: list[str] = []
        with store_errors(f"publish the insert {staging}"):
            for name, part in sorted(names.items()):
                staged, target = self._folders.staged_path(staging, name), self._folders.part_path(part)
                with self._lock:
                    # What this process has staged and synced itself needs no look at the disk: an insert would wait for it.
                    noted = self._noted.pop(staged, None)
                if noted is not None and not os.path.lexists(target):
                    self._folders.give_name(staged, part)
                    self._folders.remember(part, noted)
                    continue
                # An earlier try has renamed it, and stopped before its sync.
                if whole_manifest(target) is not None:
                    continue
                manifest = whole_manifest(staged)
                if manifest is None or manifest.partition != parse_part(part).partition:
                    missing.append(part)
                    continue
                if is_folder(target):
                    self._folders.quarantine(part, "found damaged when it was to be published")
                self._folders.give_name(staged, part)
                self._folders.remember(part, manifest)
        if sync_names:
            self._folders.sync_names()
        return tuple(missing)

    def note(self, staging: str, manifests: Sequence[PartManifest]) -> None:
        """Remember what this process has just staged and synced: `publish` need not look at it again."""
        with self._lock:
            self._noted.update({self._folders.staged_path(staging, each.partition): each for each in manifests})

    @property
    def is_waiting(self) -> bool:
        """Whether parts that this process has staged are to be published still."""
        return bool(self._noted)

    def remove(self, staging: str) -> None:
        """Delete whatever is staged under an id.  Idempotent."""
        prefix = self._folders.staging_prefix(staging)
        with self._lock:
            self._noted = {path: noted for path, noted in self._noted.items() if not path.name.startswith(prefix)}
            self._borrowed = {path: files for path, files in self._borrowed.items() if not path.name.startswith(prefix)}
        with store_errors(f"remove what is staged as {staging}"):
            for name in folders(self._folders.staging, STAGED_NAME):
                if name.startswith(prefix) and not self._shared.leave(self._folders.staging / name, STAGED):
                    remove_folder(self._folders.staging / name)

    # --- shares ---------------------------------------------------------------------------------------------------------

    def note_borrowed(self, staging: str, made: PartManifest, source: PartManifest) -> None:
        """Remember which files of a staged part are objects already: those that a part in the store has, the very same.

        The staged part has all its files, and is one of this disk in any case: a caller that forgets this puts all of them.
        """
        theirs = {file.placed(None): share for file in source.files if (share := source.share_of(file)) is not None}
        borrowed = {file.name: theirs[file] for file in made.files if file in theirs}
        with self._lock:
            self._borrowed[self._folders.staged_path(staging, made.partition)] = borrowed

    def parts(self, staging: str) -> tuple[tuple[Path, PartManifest], ...]:
        """Folders and manifests of the parts that are staged under an id, ascending; they are whole."""
        prefix = self._folders.staging_prefix(staging)
        with store_errors(f"list what is staged as {staging}"):
            names = [name for name in folders(self._folders.staging, STAGED_NAME) if name.startswith(prefix)]
            found = [(self._folders.staging / name, whole_manifest(self._folders.staging / name)) for name in names]
        return tuple((folder, manifest) for folder, manifest in found if manifest is not None)

    def put(self, staging: str, folder: Path, manifest: PartManifest, share: str) -> None:
        """Put the data files of a staged part into the object store, and note in its manifest where they are.

        Those that it borrows (`note_borrowed`) are there already.

        Raises
        ------
        StoreError, NotAuthorized
            They may be there in part, or come to be there later; the staged part is as it was.
        """
        assert folder.name.startswith(self._folders.staging_prefix(staging)), "it is staged under this id"
        with self._lock:
            # A restart forgets what is borrowed: then all files are put, which costs a copy and nothing else.
            borrowed = self._borrowed.pop(folder, {})
        shared = manifest.shared_as(share, borrowed)
        self._shared.known_objects().put(share, folder, shared)
        with store_errors(f"note the share of {folder.name}"):
            write_manifest(folder, shared)
        with self._lock:
            self._noted[folder] = shared

    # --- links ----------------------------------------------------------------------------------------------------------

    def link(self, part: str, staging: str, partition: str) -> PartManifest:
        """Stage a published part as it is, by hard links, so that `publish` can give it a second name.  Idempotent.

        Raises
        ------
        BadInput
            The part is of another partition.
        CorruptPart
            The part is not there as a whole.
        """
        manifest = whole_manifest(self._folders.part_path(part))
        if manifest is None:
            raise CorruptPart(f"{part} is not there as a whole, so it can't be linked; fetch it again")
        if manifest.partition != partition:
            raise BadInput(f"{part} is of partition {manifest.partition}, not {partition}")
        self._link(self._folders.part_path(part), manifest, staging)
        return manifest

    def attach(self, name: str, staging: str) -> PartManifest:
        """Verify a detached part and stage it, by hard links, so that an insert can publish it.  Idempotent.

        Whether its rows fit the table is for the caller to ask.

        Raises
        ------
        BadInput
            Nothing of this name is detached; names what can be attached.
        CorruptPart
            A file is missing or has changed.
        """
        if name not in self._folders.detached():
            known = ", ".join(each.name for each in self._folders.attachable()) or "none"
            raise BadInput(f"nothing is detached as {name!r}; what can be attached: {known}")
        folder = self._folders.detached_path(name)
        with store_errors(f"verify {name}"):
            manifest = read_manifest(folder)
            verify_files(folder, manifest)
        self._link(folder, manifest, staging)
        return manifest

    def _link(self, source: Path, manifest: PartManifest, staging: str) -> None:
        target = self._folders.staged_path(staging, manifest.partition)
        with store_errors(f"link {source.name} as {target.name}"):
            # A link that an earlier try has finished stays.
            if whole_manifest(target) != manifest:
                link_part_folder(source, manifest, target)
            sync_folder(self._folders.staging)
        self.note(staging, (manifest,))
