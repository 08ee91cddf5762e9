"""One table's parts on one local disk.

::

    <root>/parts/<part>/{data-0.parquet, …, manifest.json}        published: what a replica shows and serves
    <root>/staging/<staging id>/<partition>/…                      written by an insert, not (known to be) in the log yet
    <root>/staging/fetch-<part>/…                                  on its way from another replica
    <root>/detached/{removed,broken}_<part>_<n>/…                  taken out; kept for people

Guarantees:

* A folder under ``parts`` appears by one rename of a folder whose files were synced before, and is durable when `publish` or
  `finish_fetch` returns.  So a part is there as a whole or not at all, after any crash.
* Every operation may be repeated after a crash at any of its steps, and ends as if it had run once.
* No name leaves the root: names are checked against what they may be, and symbolic links are not followed.
* A full or failing disk raises `StoreError`; what was there before is still there.

Order of publication (`publish`): staged files are whole (sizes as in the manifest) → rename → sync ``parts`` → remove
the staging folder when empty.  Order of a fetch (`finish_fetch`): verify every checksum → sync files → sync folder →
rename → sync ``parts``.

Absent on purpose: what a part means (the log knows), deletion of published parts, locks between processes (a replica's name has
one live process; the epoch sees to that).
"""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path

from replitree.errors import BadInput, CorruptPart, InvalidName
from replitree.protocol.parts import parse_part
from replitree.storage.durable import (
    file_bytes,
    file_checksum,
    is_folder,
    make_folder,
    rename,
    store_errors,
    sync_file,
    sync_folder,
    write_file,
)
from replitree.storage.manifest import (
    MANIFEST_FILE,
    PartManifest,
    is_data_file,
    is_partition_id,
    manifest_problem,
    read_manifest,
)

MANIFESTS_CACHED_MAX = 4096
"""Manifests kept in memory, about 2 kB each."""

NAME_CHARACTERS_MAX = 200
FETCH_PREFIX = "fetch-"
_STAGING_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~=+-]*")
_PART_NAME = re.compile(r"[A-Za-z0-9~=+-][A-Za-z0-9.~=+-]*(?:_[0-9]+){3,4}")
_FOLDER_NAME = re.compile(r"[A-Za-z0-9_.~=+-]+")


class PartStore:
    """The parts of one table on one local disk.  May be used by several threads.

    Parameters
    ----------
    root
        The table's folder; made, with its parents, if missing.
    """

    def __init__(self, root: Path) -> None:
        self._lock = threading.Lock()
        self._manifests: OrderedDict[str, PartManifest] = OrderedDict()
        with store_errors(f"make the table's folder {root}"):
            root.mkdir(parents=True, exist_ok=True)
            self.root = root.resolve()
            self._parts = self.root / "parts"
            self._staging = self.root / "staging"
            self._detached = self.root / "detached"
            for folder in (self._parts, self._staging, self._detached):
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

    def staging_path(self, staging: str) -> Path:
        """Folder of a staging id, whether it is there or not; `stage_table` makes it."""
        return self._staging / check_staging_id(staging)

    def staged_file_path(self, staging: str, partition: str, file: str) -> Path:
        """Path of a file of a staged part; its folders are not made."""
        if not is_partition_id(partition):
            raise InvalidName(f"{partition!r} can't be a partition's id")
        return self.staging_path(staging) / partition / check_file_name(file)

    # --- what is there --------------------------------------------------------------------------------------------------

    def parts(self) -> tuple[str, ...]:
        """Names of the published parts, ascending."""
        return _folders(self._parts, _PART_NAME)

    def stagings(self) -> tuple[str, ...]:
        """Staging ids on disk, ascending."""
        return tuple(n for n in _folders(self._staging, _STAGING_ID) if not n.startswith(FETCH_PREFIX))

    def fetches(self) -> tuple[str, ...]:
        """Names of the parts whose fetch was begun and not finished, ascending."""
        names = _folders(self._staging, _FOLDER_NAME)
        return tuple(n.removeprefix(FETCH_PREFIX) for n in names if n.startswith(FETCH_PREFIX))

    def detached(self) -> tuple[str, ...]:
        """Names of the folders that were taken out, ascending."""
        return _folders(self._detached, _FOLDER_NAME)

    def has_part(self, part: str) -> bool:
        """Whether a published part is there with every file in its full size."""
        return self._whole(self.part_path(part)) is not None

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

    def seal_staging(self, staging: str, manifests: Sequence[PartManifest]) -> None:
        """Turn uploaded files into staged parts: verify them against their manifests, write these, sync everything.

        Raises
        ------
        BadInput
            A manifest contradicts itself.
        CorruptPart
            A file is missing or is not what its manifest says.
        """
        self.seal_upload(self.staging_path(staging), manifests)
        with store_errors(f"seal the upload {staging}"):
            sync_folder(self._staging)

    def seal_upload(self, folder: Path, manifests: Sequence[PartManifest]) -> None:
        """Do the same for files that lie in another folder of this disk; `adopt_staging` makes it a staging folder."""
        with store_errors(f"seal the upload in {folder.name}"):
            for manifest in manifests:
                self._seal(folder, manifest)
            sync_folder(folder)

    def adopt_staging(self, folder: Path, staging: str) -> None:
        """Make a sealed folder of this disk the staging folder of an insert.  Idempotent."""
        with store_errors(f"adopt {folder.name} as {staging}"):
            target = self.staging_path(staging)
            if not is_folder(target):
                rename(folder, target)
            sync_folder(self._staging)

    def _seal(self, root: Path, manifest: PartManifest) -> None:
        problem = manifest_problem(manifest)
        if problem is not None:
            raise BadInput(f"the manifest of an uploaded part contradicts itself: {problem}")
        folder = root / manifest.partition
        _verify_files(folder, manifest)
        (folder / MANIFEST_FILE).unlink(missing_ok=True)
        write_file(folder / MANIFEST_FILE, manifest.encode())
        _sync_part(folder, manifest)

    def publish(self, staging: str, names: Mapping[str, str], *, sync_names: bool = True) -> tuple[str, ...]:
        """Give the staged parts their names.

        Parameters
        ----------
        staging
            The staging id; its folder may be gone when this was done before.
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
        source = self.staging_path(staging)
        targets = [(source / partition, self.part_path(part)) for partition, part in sorted(names.items())]
        with store_errors(f"publish the insert {staging}"):
            missing = tuple(target.name for staged, target in targets if not self._publish_part(staged, target))
            if sync_names:
                sync_folder(self._parts)
            if is_folder(source):  # that it is gone need not be durable: an empty folder does no harm
                _remove_if_empty(source)
        return missing

    def _publish_part(self, staged: Path, target: Path) -> bool:
        if self._whole(target) is not None:
            return True
        manifest = self._whole(staged)
        if manifest is None or manifest.partition != staged.name:
            return False
        if is_folder(target):
            self.quarantine(target.name, "found damaged when it was to be published")
        rename(staged, target)
        self._remember(target.name, manifest)
        return True

    def remove_staging(self, staging: str) -> None:
        """Delete a staging folder and whatever it holds.  Idempotent."""
        with store_errors(f"remove the staging folder of {staging}"):
            _remove(self.staging_path(staging))

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
                _remove(folder)
            else:
                manifest = self._verified_fetch(folder, part, content_hash)
                _sync_part(folder, manifest)
                if is_folder(target):
                    self.quarantine(part, "it did not have the content that the log says")
                rename(folder, target)
        if sync_names:  # also for a part that is there: an earlier try may have stopped before its sync
            self.sync_names()
        self._remember(part, manifest)
        return manifest

    def sync_names(self) -> None:
        """Make the names of the published parts durable."""
        with store_errors("sync the folder of parts"):
            sync_folder(self._parts)

    def abandon_fetch(self, part: str) -> None:
        """Delete what was fetched of a part.  Idempotent."""
        with store_errors(f"abandon the fetch of {part}"):
            _remove(self._fetch_path(part))

    def _fetch_path(self, part: str) -> Path:
        return self._staging / f"{FETCH_PREFIX}{check_part_name(part)}"

    def _present(self, target: Path, content_hash: str | None) -> PartManifest | None:
        manifest = self._whole(target)
        if manifest is None or content_hash not in (None, manifest.content_hash):
            return None
        return manifest

    def _verified_fetch(self, folder: Path, part: str, content_hash: str | None) -> PartManifest:
        try:
            manifest = read_manifest(folder)
            _check_expected(manifest, part, content_hash)
        except CorruptPart:
            _remove(folder)
            raise
        try:
            _verify_files(folder, manifest)
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
            _verify_files(folder, manifest)
        return manifest

    def quarantine(self, part: str, reason: str) -> Path | None:
        """Take a damaged part out, for people to look at.  None when it is not there.

        Parameters
        ----------
        reason
            Kept in the folder as ``reason.txt``.
        """
        moved = self._take_out(part, "broken")
        if moved is not None:
            with store_errors(f"note why {part} was taken out"):
                (moved / "reason.txt").write_text(f"{reason}\n", encoding="utf-8")
        return moved

    def detach(self, part: str) -> Path | None:
        """Take a part out because the table no longer has it; it is kept aside.  None when it is not there."""
        return self._take_out(part, "removed")

    def remove_detached(self, name: str) -> None:
        """Delete something that was taken out, by its name in `detached`.  Idempotent."""
        if name not in self.detached():
            return
        with store_errors(f"delete {name}"):
            _remove(self._detached / name)

    def _take_out(self, part: str, why: str) -> Path | None:
        source = self.part_path(part)
        with self._lock:
            self._manifests.pop(part, None)
            if not is_folder(source):
                return None
            with store_errors(f"take out {part}"):
                target = self._free_name(f"{why}_{part}")
                rename(source, target)
                sync_folder(self._detached)
                sync_folder(self._parts)
        return target

    def _free_name(self, stem: str) -> Path:
        number = 0
        while os.path.lexists(target := self._detached / f"{stem}_{number}"):
            number += 1
        return target

    def destroy(self) -> None:
        """Delete the table's folder and everything in it: the table was dropped."""
        with store_errors(f"delete {self.root}"):
            _remove(self.root)

    # --- helpers --------------------------------------------------------------------------------------------------------

    def _remember(self, part: str, manifest: PartManifest) -> None:
        with self._lock:
            self._manifests[part] = manifest
            self._manifests.move_to_end(part)
            while len(self._manifests) > MANIFESTS_CACHED_MAX:
                self._manifests.popitem(last=False)

    def _whole(self, folder: Path) -> PartManifest | None:
        """Manifest of a part whose files are there in their full size, or None.  Reads no data."""
        if not is_folder(folder):
            return None
        try:
            manifest = read_manifest(folder)
        except CorruptPart:
            return None
        whole = all(file_bytes(folder / file.name) == file.bytes for file in manifest.files)
        return manifest if whole else None


class DamagedFile(CorruptPart):
    """One file of a part is missing or has changed."""

    def __init__(self, message: str, path: Path) -> None:
        super().__init__(message)
        self.path = path


def check_part_name(part: str) -> str:
    """Return the name if it can be a part's.  Raises `BadInput` otherwise."""
    if len(part) > NAME_CHARACTERS_MAX or _PART_NAME.fullmatch(part) is None:
        raise InvalidName(f"{part!r} can't be a part's name")
    return part


def check_staging_id(staging: str) -> str:
    """Return the id if it can be a staging id.  Raises `InvalidName` otherwise."""
    fine = len(staging) <= NAME_CHARACTERS_MAX and _STAGING_ID.fullmatch(staging) is not None
    if not fine or staging.startswith(FETCH_PREFIX):
        raise InvalidName(f"{staging!r} can't be a staging id: use letters, digits and . _ ~ = + -")
    return staging


def check_file_name(file: str) -> str:
    """Return the name if a part can have such a file.  Raises `InvalidName` otherwise."""
    if file != MANIFEST_FILE and not is_data_file(file):
        raise InvalidName(f"{file!r} is not the name of a part's file")
    return file


def _check_expected(manifest: PartManifest, part: str, content_hash: str | None) -> None:
    if content_hash not in (None, manifest.content_hash):
        raise CorruptPart(f"the fetched {part} has content {manifest.content_hash}, the log says {content_hash}")
    if manifest.partition != parse_part(part).partition:
        raise CorruptPart(f"the fetched {part} is of partition {manifest.partition}")


def _folders(root: Path, pattern: re.Pattern[str]) -> tuple[str, ...]:
    with store_errors(f"list {root}"), os.scandir(root) as entries:
        return tuple(sorted(e.name for e in entries if pattern.fullmatch(e.name) and e.is_dir(follow_symlinks=False)))


def _verify_files(folder: Path, manifest: PartManifest) -> None:
    for file in manifest.files:
        path = folder / file.name
        size = file_bytes(path)
        if size != file.bytes:
            found = "is missing" if size is None else f"has {size} bytes"
            raise DamagedFile(f"{path} {found}, its manifest says {file.bytes}; fetch the part again", path)
        if file_checksum(path) != file.checksum:
            raise DamagedFile(f"{path} is not what its checksum says; fetch the part again", path)


def _sync_part(folder: Path, manifest: PartManifest) -> None:
    for file in manifest.files:
        sync_file(folder / file.name)
    sync_file(folder / MANIFEST_FILE)
    sync_folder(folder)


def _remove(folder: Path) -> None:
    """Delete a folder of ours; a link is not followed, only what it is called is checked."""
    if is_folder(folder):
        shutil.rmtree(folder)


def _remove_if_empty(folder: Path) -> None:
    with os.scandir(folder) as entries:
        if any(True for _ in entries):
            return
    folder.rmdir()
