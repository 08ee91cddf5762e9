"""Parts whose data files are objects of a share: what of them lies on this disk, and how it comes and goes.

::

    <root>/parts/<part>/manifest.json          says which shares; data files beside it are copies for readers here
    <root>/leaving/<part or staging>_<n>/…     has left the table or was never in it; its mark is still to be let go of

A folder with the manifest of a share never just vanishes: whatever removes it puts it into ``leaving``, durably.  There it
stays until the share was let go of in coordination, so a crash at any moment leaves no mark without a folder that tells of it.
A part whose rows move has such a folder beside it, a note, before anything could own the share (`moving`).

A read fetches the copies that it needs and verifies them.  When the copies exceed their limit of bytes, the least recently used
one is removed first, but none that is being read, or was a moment ago.

Absent on purpose: marks and commits (`replitree.protocol.shares.sharing`), what is in the store
(`replitree.storage.shares.shares`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from replitree import private
from replitree.errors import CorruptPart, StoreError
from replitree.storage.disk.detached import free_name
from replitree.storage.files.durable import (
    file_bytes,
    file_checksum,
    is_folder,
    link_file,
    rename,
    store_errors,
    sync_folder,
    write_file,
)
from replitree.storage.parts.manifest import MANIFEST_FILE, PartManifest, read_manifest
from replitree.storage.parts.part_folder import FOLDER_NAME, PART_NAME, folders, remove_folder
from replitree.storage.parts.sums_files import link_sums

if TYPE_CHECKING:
    from replitree.storage.shares.shares import ShareObjects

LOCKS = 64
"""Locks that parts share while copies are brought."""

UNUSED_S = 60.0
"""A copy that was used in the last so many seconds stays."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """A folder in ``leaving``: its name, the part that it was (empty: it was only staged), and its shares, its own first."""

    name: str
    part: str
    shares: tuple[str, ...]


class SharedFolders:
    """The shares of a part store: copies of their objects, and folders that leave.

    Parameters
    ----------
    root
        The table's folder.

    Attributes
    ----------
    objects
        The table's object store; None: its parts are on disks.
    copied_bytes
        Bytes of the copies, as `evict` has counted them last.
    """

    def __init__(self, root: Path) -> None:
        self.objects: ShareObjects | None = None
        self.copied_bytes = 0
        self._leaving = root / "leaving"
        self._locks = tuple(threading.Lock() for _ in range(LOCKS))
        self._naming_left = threading.Lock()
        self._guard = threading.Lock()
        self._used: dict[str, float] = {}
        self._pinned: dict[str, int] = {}
        self._broken_files: set[tuple[str, str]] = set()
        """Share and name of the objects that were found broken from here and not whole since."""

    # --- what leaves ----------------------------------------------------------------------------------------------------

    def leaving(self) -> tuple[Leaving, ...]:
        """Return what is still to be let go of, by name."""
        if not is_folder(self._leaving):
            return ()
        found = []
        for name in folders(self._leaving, FOLDER_NAME):
            shares, part = shares_in(self._leaving / name), name.rpartition("_")[0]
            if shares:
                found.append(Leaving(name, part if PART_NAME.fullmatch(part) else "", shares))
            else:
                # What a deletion that was cut short has left.
                remove_folder(self._leaving / name)
        return tuple(found)

    def left_at(self, name: str) -> float:
        """Return when a folder came to be in ``leaving``, in seconds since the epoch; now, when it is not there."""
        try:
            return (self._leaving / name).stat().st_mtime
        except OSError:
            return time.time()

    def has_left(self, name: str) -> None:
        """Delete a folder in ``leaving``: all its shares were let go of."""
        with store_errors(f"delete {name}"):
            folder = self._leaving / name
            # The manifest first: a crash in the middle of the deletion
            # leaves a folder without shares, which nothing releases again.
            (folder / MANIFEST_FILE).unlink(missing_ok=True)
            remove_folder(folder)

    def leave(self, folder: Path, stem: str) -> bool:
        """Put a folder into ``leaving`` if it is of a share; the caller syncs the folder that it came from."""
        if not self.has_share(folder):
            return False
        with self._naming_left:
            private.make_folder(self._leaving, exist_ok=True)
            # Under the lock: two threads would find the same name free.
            rename(folder, free_name(self._leaving, stem))
        sync_folder(self._leaving)
        return True

    def note(self, part: str, manifest: PartManifest, drafts: Path) -> None:
        """Note durably that a part may own the shares of a manifest: a folder in ``leaving`` with the manifest alone.

        Parameters
        ----------
        drafts
            A folder that a sweep empties: the note is written there, because a folder in ``leaving`` always has its manifest.
        """
        with self._naming_left, store_errors(f"note that {part} moves"):
            private.make_folder(self._leaving, exist_ok=True)
            # Made aside and renamed: a folder in ``leaving`` without a manifest is taken for the rest of a deletion.
            draft = free_name(drafts, part)
            private.make_folder(draft)
            write_manifest(draft, manifest)
            rename(draft, free_name(self._leaving, part))
            sync_folder(self._leaving)
            sync_folder(self._leaving.parent)

    def has_share(self, folder: Path) -> bool:
        """Whether a folder is of a share; on local disks none is, and nothing is read."""
        return self.objects is not None and bool(shares_in(folder))

    # --- copies ---------------------------------------------------------------------------------------------------------

    def bring_files(self, folder: Path, manifest: PartManifest, names: Sequence[str] | None = None) -> None:
        """Bring the data files of a share's part into its folder, as far as they are not there.

        Parameters
        ----------
        names
            Only these.

        Raises
        ------
        CorruptPart
            An object is missing or not what the manifest says.
        StoreError
            The store gives no answer.
        """
        if manifest.share_id is None:
            return
        with self._guard:
            self._used[folder.name] = time.monotonic()
        with self.lock_of(folder):
            for file in manifest.files:
                share, is_wanted = manifest.share_of(file), names is None or file.name in names
                # The size alone: a copy is written whole or not at all, and readers compare its checksum.
                if share is not None and is_wanted and file_bytes(folder / file.name) != file.bytes:
                    self.known_objects().bring(share, file, folder / file.name)

    def remove_damaged_copies(self, folder: Path, manifest: PartManifest) -> None:
        """Remove the copies of a part's objects that are not what the manifest says: they are brought again when needed."""
        with self.lock_of(folder):
            for file in manifest.files:
                path = folder / file.name
                size = file_bytes(path)
                if size is not None and (size != file.bytes or file_checksum(path) != file.checksum):
                    path.unlink(missing_ok=True)

    def note_copies(self, part: str, manifest: PartManifest) -> None:
        """Note that a part may have copies of its files here."""
        if manifest.share_id is not None:
            with self._guard:
                self._used.setdefault(part, time.monotonic())

    @contextmanager
    def pinning(self, parts: Sequence[str]) -> Iterator[None]:
        """Keep the copies of parts while something reads them."""
        with self._guard:
            for part in parts:
                self._pinned[part] = self._pinned.get(part, 0) + 1
        try:
            yield
        finally:
            with self._guard:
                for part in parts:
                    self._pinned[part] -= 1
                    if not self._pinned[part]:
                        del self._pinned[part]

    def evict(
        self,
        root: Path,
        bytes_max: int,
        unused_s: float = UNUSED_S,
        *,
        is_kept: Callable[[str], bool] = lambda _: False,
    ) -> int:
        """Take copies away until there are no more bytes of them than wanted; return how many bytes went.

        Parameters
        ----------
        root
            The folder of parts.
        bytes_max
            How many bytes may stay.
        unused_s
            What was used in the last so many seconds stays.
        is_kept
            Whether the copies of a part stay for another reason.
        """
        with self._guard:
            # A copy of the dictionary: sizes are read from the disk without the lock.
            used = dict(sorted(self._used.items(), key=lambda item: item[1]))
        sizes = dict[str, int]()
        for part in used:
            # A part that has left, or has its rows here for good, has no copies.
            with suppress(CorruptPart):
                manifest = read_manifest(root / part)
                if manifest.share_id is not None:
                    sizes[part] = sum(file_bytes(root / part / file.name) or 0 for file in manifest.files)
        with self._guard:
            for part in used.keys() - sizes.keys():
                self._used.pop(part, None)
        total, gone, now = sum(sizes.values()), 0, time.monotonic()
        for part, size in sizes.items():
            if total - gone <= bytes_max:
                break
            if now - used[part] >= unused_s and not is_kept(part) and self._take_away(root / part):
                gone += size
        self.copied_bytes = total - gone
        return gone

    def lock_of(self, folder: Path) -> threading.Lock:
        """Return the lock under which copies come into a folder and go."""
        return self._locks[hash(folder.name) % LOCKS]

    def _take_away(self, folder: Path) -> bool:
        lock = self.lock_of(folder)
        # Never waits: a fetch of copies takes as long as the store does.
        if not lock.acquire(blocking=False):
            # Another thread is just bringing copies.
            return False
        try:
            manifest = read_manifest(folder)
            # After the lock: a reader pins first and brings then, so none begins between this look and the deletion.
            if folder.name in self._pinned or manifest.share_id is None:
                return False
            for file in manifest.files:
                (folder / file.name).unlink(missing_ok=True)
        except CorruptPart:
            return False
        finally:
            lock.release()
        with self._guard:
            self._used.pop(folder.name, None)
        return True

    def known_objects(self) -> ShareObjects:
        """Return `objects`.  Raises `StoreError` if there is none."""
        if self.objects is None:
            raise StoreError("the part is in an object store, and this table has none; is its definition damaged?")
        return self.objects

    def verify_objects(self, manifest: PartManifest) -> None:
        """Read every byte of a part's objects, and the manifest in its own share.  Raises as `bring_files`.

        A share of which one is broken is distrusted until that one is found whole: a single answer may have been wrong.
        """
        for file in manifest.files:
            share = str(manifest.share_of(file))
            try:
                self.known_objects().verify(share, file)
            except CorruptPart:
                self.distrust(share, file.name)
                raise
            with self._guard:
                # One good answer ends the distrust, as one bad answer began it.
                self._broken_files.discard((share, file.name))
        self.known_objects().verify_manifest(manifest)

    def distrust(self, share: str, file: str) -> None:
        """Note that an object of a share was found broken from here."""
        with self._guard:
            self._broken_files.add((share, file))

    def distrusts(self, manifest: PartManifest) -> bool:
        """Whether a share of a part was found broken from here: it is not taken over again."""
        with self._guard:
            return any(share in manifest.shares for share, _ in self._broken_files)


def shares_in(folder: Path) -> tuple[str, ...]:
    """Return the shares that a part's folder says it has, its own first; none when it has none, or is no part."""
    try:
        return read_manifest(folder).shares if is_folder(folder) else ()
    except CorruptPart:
        return ()


def write_manifest(folder: Path, manifest: PartManifest) -> None:
    """Put another manifest into a part's folder, durably."""
    draft = folder / f".{MANIFEST_FILE}"
    draft.unlink(missing_ok=True)
    write_file(draft, manifest.encode())
    # By one rename: a reader sees the old manifest or the new one.
    rename(draft, folder / MANIFEST_FILE)
    sync_folder(folder)


def link_as_local(source: Path, manifest: PartManifest, target: Path) -> None:
    """Make a folder of its own with the files of a share's part, which are here; durable on return.

    It owns its rows: the share may go.
    """
    remove_folder(target)
    private.make_folder(target)
    for file in manifest.files:
        link_file(source / file.name, target / file.name)
        link_sums(source / file.name, target / file.name)
    write_file(target / MANIFEST_FILE, manifest.as_local().encode())
    sync_folder(target)


__all__ = ["Leaving", "SharedFolders", "link_as_local", "shares_in", "write_manifest"]
