"""The folders of one table on one disk: their names, what is in them, and how a part gets a name or loses it.

Everything that stages, fetches, publishes or removes parts is built on these few steps: `replitree.storage.disk.staging`,
`replitree.storage.disk.fetch`, `replitree.storage.disk.store`.

Guarantees: no name leaves the root, and symbolic links are not followed; a folder that is to go is renamed first, so nothing
half-deleted is ever found under a part's name.

Absent on purpose: what the folders are for; see the table at the head of `replitree.storage.disk.store`.
"""

from __future__ import annotations

import os
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from replitree import private
from replitree.errors import BadInput, CorruptPart, InvalidName
from replitree.storage.disk.detached import BROKEN, DetachedFolder, attachable_parts, free_name
from replitree.storage.disk.shared import SharedFolders, link_as_local, write_manifest
from replitree.storage.files.durable import (
    file_bytes,
    is_folder,
    make_folder,
    rename,
    store_errors,
    sync_folder,
    write_file,
)
from replitree.storage.parts.manifest import PartManifest, read_manifest
from replitree.storage.parts.part_folder import (
    FETCH_PREFIX,
    FOLDER_NAME,
    PART_NAME,
    STAGING_ID,
    check_file_name,
    check_part_name,
    check_staging_id,
    folders,
    is_staged_name,
    remove_folder,
    whole_manifest,
)

MANIFESTS_CACHED_MAX = 65_536
"""Manifests kept in memory, 1 to 2 kB each.  A read of all parts goes through them in order, so a cache that is smaller than
the table would have none of them when they are needed."""

PART_PATHS_CACHED = 4_096
"""Paths of parts kept in memory, about 0.5 kB each: those of the parts that are being inserted, fetched and merged now."""

_PARTITION_MARK = "@"
STAGED_NAME = re.compile(rf"{STAGING_ID.pattern}{_PARTITION_MARK}[^/@]+")
"""Names that the folder of a staged part may have."""


class PartFolders:
    """The folders of one table.  May be used by several threads.

    Parameters
    ----------
    root
        The table's folder; made, with its parents, if missing.

    Attributes
    ----------
    shared
        The copies of objects of shares, and the folders of shares that leave.
    staging, removing
        Folders: of inserts that are staged (`stage_table` is given it, with a `staging_prefix`), and of what is deleted.
    """

    def __init__(self, root: Path) -> None:
        self._lock = threading.Lock()
        self._sweeping = threading.Lock()
        self._naming = threading.Lock()
        self._names_given, self._names_durable = 1, 0
        """How many names parts were given, and how many of these are durable; an earlier process may have left one."""
        self._manifests: OrderedDict[str, PartManifest] = OrderedDict()
        self._expected: dict[str, str] = {}
        """The content hash with which a published part is registered, by name."""
        self._expecting: dict[int, set[str]] = {}
        """For each use of `expecting` that has not ended: the parts of which this has changed since it began."""
        with store_errors(f"make the table's folder {root}"):
            private.make_folder(root, parents=True, exist_ok=True)
            self.root = root.resolve()
            self.shared = SharedFolders(self.root)
            self._parts = self.root / "parts"
            # Each part's path is asked for a dozen times until the part is merged, and pathlib takes 15 calls to make it.
            self._part_paths = lru_cache(PART_PATHS_CACHED)(lambda part: self._parts / check_part_name(part))
            self.staging = self.root / "staging"
            self._detached = self.root / "detached"
            self.removing = self.root / "removing"
            # All of them on the table's own disk: what moves between them is renamed.
            for folder in (self._parts, self.staging, self._detached, self.removing, self.root / "frozen"):
                make_own_folder(folder)
            sync_folder(self.root)
            # The folder of the table may be new, and so may its name in its parent.
            sync_folder(self.root.parent)

    # --- names to paths -------------------------------------------------------------------------------------------------

    def part_path(self, part: str) -> Path:
        """Folder of a published part, whether it is there or not.  Raises `BadInput` for what can't be a part's name."""
        return self._part_paths(part)

    def file_path(self, part: str, file: str) -> Path:
        """Path of a file of a published part: its manifest or a data file.  Raises `BadInput` for any other name."""
        return self.part_path(part) / check_file_name(file)

    def staging_prefix(self, staging: str) -> str:
        """Begin of the names of what is staged under an id.  Raises `InvalidName` for what can't be an id."""
        return f"{check_staging_id(staging)}{_PARTITION_MARK}"

    def staged_path(self, staging: str, name: str) -> Path:
        """Folder of a staged part, whether it is there or not; `name`: its partition, or of a result its source."""
        if not is_staged_name(name):
            raise InvalidName(f"{name!r} can't be a partition's id, nor a part's name")
        return self.staging / f"{self.staging_prefix(staging)}{name}"

    def fetch_path(self, part: str) -> Path:
        """Folder into which a part is fetched, whether it is there or not."""
        return self.staging / f"{FETCH_PREFIX}{check_part_name(part)}"

    # --- what is there --------------------------------------------------------------------------------------------------

    def parts(self) -> tuple[str, ...]:
        """Names of the published parts, ascending."""
        return folders(self._parts, PART_NAME)

    def stagings(self) -> tuple[str, ...]:
        """Staging ids on disk, ascending."""
        return tuple(sorted({n.partition(_PARTITION_MARK)[0] for n in folders(self.staging, STAGED_NAME)}))

    def fetches(self) -> tuple[str, ...]:
        """Names of the parts whose fetch was begun and not finished, ascending."""
        names = folders(self.staging, FOLDER_NAME)
        return tuple(n.removeprefix(FETCH_PREFIX) for n in names if n.startswith(FETCH_PREFIX))

    def detached(self) -> tuple[str, ...]:
        """Names of the folders that were taken out, ascending."""
        return folders(self._detached, FOLDER_NAME)

    def detached_path(self, name: str) -> Path:
        """Folder of something that was taken out, by its name in `detached`."""
        return self._detached / name

    def attachable(self) -> tuple[DetachedFolder, ...]:
        """Give the detached parts that are whole and were not taken out as wrong, by name."""
        with store_errors("list what is detached"):
            return tuple(attachable_parts(self._detached))

    def has_part(self, part: str) -> bool:
        """Whether a published part is there with every file in its full size."""
        return whole_manifest(self.part_path(part)) is not None

    def content(self, part: str) -> str | None:
        """Content hash that a published part on the disk says it has, whatever it should be; None if it is not there whole."""
        manifest = whole_manifest(self.part_path(part))
        return None if manifest is None else manifest.content

    @contextmanager
    def expecting(self) -> Iterator[Callable[[Mapping[str, str]], None]]:
        """Give a function that notes with which content hash parts are registered: `manifest` refuses any other.

        The context is entered before the registrations are read or committed.  Where another thread has noted or forgotten
        something else of a part since then, it is not known which of the two is newer: nothing is expected of the part then.
        """
        changed: set[str] = set()

        def expect(contents: Mapping[str, str]) -> None:
            with self._lock:
                for part, content in contents.items():
                    before = self._expected.get(part)
                    if before == content:
                        continue
                    # Another thread has noted something since, and neither knows
                    # which is newer: nothing is expected until one asks again.
                    if part in changed:
                        self._expect_nothing(part)
                        continue
                    self._expected[part] = content
                    self._note_change(part)
                    # The manifest in memory is that of the replaced part.
                    if part in self._manifests and self._manifests[part].content != content:
                        del self._manifests[part]

        # Registered before the caller reads coordination: a change that another thread notes meanwhile is seen.
        with self._lock:
            self._expecting[id(changed)] = changed
        try:
            yield expect
        finally:
            with self._lock:
                del self._expecting[id(changed)]

    def _expect_nothing(self, part: str) -> None:
        """Forget with which content a part is registered, under the lock."""
        if self._expected.pop(part, None) is not None:
            self._note_change(part)

    def _note_change(self, part: str) -> None:
        for changed in self._expecting.values():
            changed.add(part)

    def unexpected(self, parts: Iterable[str]) -> tuple[str, ...]:
        """Return those of some parts of which `expecting` has not said what they are registered with."""
        with self._lock:
            return tuple(part for part in parts if part not in self._expected)

    def manifest(self, part: str) -> PartManifest:
        """Manifest of a published part, from memory if it was read lately.

        Raises
        ------
        CorruptPart
            The part is not there, its manifest is damaged, or it is that of another part: see `expecting`.
        """
        with self._lock:
            if part in self._manifests:
                self._manifests.move_to_end(part)
                return self._manifests[part]
        with store_errors(f"read the manifest of {part}"):
            manifest = read_manifest(self.part_path(part))
        with self._lock:
            # Under the lock and after the read: the registration may have changed while the file was read.
            expected = self._expected.get(part, manifest.content)
        if manifest.content != expected:
            raise CorruptPart(f"{part} has content {manifest.content}, and is registered with {expected}")
        self.remember(part, manifest)
        return manifest

    def manifest_bytes(self, part: str) -> bytes:
        """Manifest of a published part as it is on disk.  Raises as `manifest`."""
        return self.manifest(part).encode()

    def free_bytes(self) -> int:
        """Bytes that may still be written on this disk."""
        with store_errors(f"ask for the room in {self.root}"):
            # `f_bavail`, not `f_bfree`: the reserve of the file system is for root only.
            found = os.statvfs(self.root)
        return found.f_bavail * found.f_frsize

    def probe(self) -> None:
        """Write and sync a few bytes.  Raises `StoreError` while the disk is full or failing."""
        path = self.staging / ".probe"
        with store_errors(f"write in {self.staging}"):
            # Of a probe that a crash cut short.
            path.unlink(missing_ok=True)
            write_file(path, b"probe")
            path.unlink()

    def remember(self, part: str, manifest: PartManifest) -> None:
        """Note the manifest of a part that was published."""
        self.shared.note_copies(part, manifest)
        with self._lock:
            self._manifests[part] = manifest
            self._manifests.move_to_end(part)
            # The least recently used one goes.
            while len(self._manifests) > MANIFESTS_CACHED_MAX:
                self._manifests.popitem(last=False)

    def present(self, part: str, content_hash: str | None) -> PartManifest | None:
        """Manifest of a published part that is whole and has this content (None: any); None: it is not there."""
        manifest = whole_manifest(self.part_path(part))
        if manifest is None or content_hash not in (None, manifest.content):
            return None
        return manifest

    def replace_manifest(self, part: str, before: PartManifest, after: PartManifest) -> bool:
        """Put a part's manifest in the place of another one; False unless that one is there, and all files are here."""
        folder = self.part_path(part)
        with (
            self._sweeping,
            self._lock,
            self.shared.lock_of(folder),
            store_errors(f"note where the rows of {part} are"),
        ):
            try:
                # Compared under the locks of sweeps, readers and copies: nothing moves between the look and the rename.
                found = read_manifest(folder)
            except CorruptPart:
                return False
            if found != before or any(file_bytes(folder / file.name) != file.bytes for file in found.files):
                return False
            # Also when the removal fails half-way.
            self._manifests.pop(part, None)
            write_manifest(folder, after)
            self._manifests[part] = after
        self.shared.note_copies(part, after)
        return True

    # --- what gets a name -----------------------------------------------------------------------------------------------

    def give_name(self, folder: Path, part: str) -> None:
        """Rename a folder to a part's name; `sync_names` makes that durable."""
        rename(folder, self.part_path(part))
        with self._lock:
            # After the rename: a thread that reads the count from now on syncs this name, too.
            self._names_given += 1

    def sync_names(self) -> None:
        """Make the names of the published parts durable; when they are already, nothing is left to do."""
        # One thread syncs for all that wait: one that comes during a sync waits for its end, and may find its name durable.
        with self._naming, store_errors("sync the folder of parts"):
            given = self._names_given
            # `given` was read before the sync: names that come while it runs are left to the next one.
            if self._names_durable < given:
                sync_folder(self._parts)
                self._names_durable = given

    # --- what loses it --------------------------------------------------------------------------------------------------

    def quarantine(self, part: str, reason: str) -> Path | None:
        """Take a damaged part out, for people to look at.  None when it is not there.

        Parameters
        ----------
        reason
            Kept in the folder as ``reason.txt``.
        """
        folder = self._take_out(part, BROKEN)
        if folder is not None:
            with store_errors(f"note why {part} was taken out"):
                private.write_file(folder / "reason.txt", f"{reason}\n".encode())
        return folder

    def _take_out(self, part: str, why: str) -> Path | None:
        """Take a part out; where its rows are is looked at while they can't move, and what takes long is done before."""
        source, is_kept = self.part_path(part), why != BROKEN
        with self.shared.pinning((source.name,)):
            if is_kept and self.shared.has_share(source):
                # Before the lock of sweeps, and without a complaint: the second look at the part says what is wrong with it.
                with suppress(CorruptPart):
                    self.shared.bring_files(source, read_manifest(source))
            with self._sweeping, store_errors(f"take out {part}"):
                copied: Path | None = None
                if is_kept and self.shared.has_share(source):
                    # The rows are kept aside because the part's share is released, and may be deleted.  Its objects may be gone
                    # already: a process may end between the publication of a part and its registration, and the other
                    # owners may release it meanwhile.
                    with suppress(CorruptPart):
                        # Read again under the lock of sweeps: the rows may have moved since the first look.
                        manifest = read_manifest(source)
                        self.shared.bring_files(source, manifest)
                        target = free_name(self._detached, f"{why}_{source.name}")
                        link_as_local(source, manifest, target)
                        # The copy is durable before the share can go.
                        sync_folder(self._detached)
                        copied = target
                with self._lock:
                    # Before the folder moves: a reader that asks from now on finds it gone, and not a manifest without files.
                    self._manifests.pop(source.name, None)
                    self._expect_nothing(source.name)
                    # A folder with a share's manifest never just vanishes: it goes into ``leaving``.
                    is_moved = is_folder(source) and not self.shared.leave(source, source.name)
                    moved = self._move_out(source, self._detached, f"{why}_{source.name}") if is_moved else None
                    sync_folder(self._detached)  # also for what an earlier try has moved already
                    sync_folder(self._parts)
                return moved or copied

    def _delete(self, doomed: Sequence[tuple[Path, str]]) -> tuple[str, ...]:
        """Delete folders; each is first moved to where no reader looks for it."""
        with self._sweeping, store_errors(f"delete {', '.join(name for _, name in doomed[:5])}"):
            there = [(path, name) for path, name in doomed if is_folder(path)]
            moved = [
                (path, self._move_out(path, self.removing, name))
                for path, name in there
                if not self.shared.leave(path, name)
            ]
            # The new names first: a crash between the two syncs leaves a
            # folder under both names, or the new one, never under none.
            sync_folder(self.removing)
            for parent in sorted({path.parent for path, _ in doomed}):  # also for what an earlier try has moved already
                sync_folder(parent)
            for _, target in moved:
                # Last, when the folder is durably out of the readers'
                # sight: a crash in the middle leaves a rest that is swept.
                remove_folder(target)
        return tuple(name for _, name in there)

    def _move_out(self, source: Path, folder: Path, stem: str) -> Path:
        target = free_name(folder, stem)
        rename(source, target)
        return target


def make_own_folder(folder: Path) -> None:
    """Make a folder, unless it is there.  Raises `BadInput` for a link."""
    make_folder(folder)
    if not is_folder(folder):
        raise BadInput(f"{folder} is not a folder of its own: links out of the table's folder are not followed")
