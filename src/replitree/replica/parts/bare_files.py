"""Data files without a manifest: of parts that no disk and no store describes any more, and whose rows are there.

When no replica can send a part, and no copy of it has a manifest, its data files are looked for: in folders of this disk that
are called after the part, and in shares with this replica's marks.  What is written of them is published only if it is
what the part is registered with (`replitree.storage.disk.bare_files`).  Until that was tried the part is not called broken.

A part is looked for again after `LOOK_AGAIN_S`.  What was tried is remembered until it changes, because all rows are read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from replitree import private
from replitree.errors import NotAuthorized, ReplitreeError, StoreError
from replitree.protocol.core.effects import StagingId
from replitree.protocol.core.parts import parse_part
from replitree.protocol.program.mender_effects import PartContent
from replitree.protocol.shares.share import ShareId
from replitree.replica.parts.followed_storage import FollowedStorage
from replitree.replica.perform.context import TableContext
from replitree.storage.disk.copies import search
from replitree.storage.disk.store import PartStore
from replitree.storage.files.durable import store_errors

LOOK_AGAIN_S = 30.0
"""How long a part that was not found is not looked for again, in seconds."""

NEVER = float("-inf")
NOT_TRIED = "its data files were not looked for yet"
BRINGING = "bare-"
"""Prefix of the staging ids of files that are fetched from the store."""

_Files = tuple[tuple[str, int, int], ...]
"""Path, size and time of change of the data files of one place."""


class BareFiles:
    """Writes parts of one table replica anew whose manifests are gone.

    Parameters
    ----------
    store
        The parts on this disk, and the folders that may have copies of others.
    storage
        The table's object store.
    clock
        Monotonic seconds.
    """

    def __init__(
        self,
        context: TableContext,
        store: PartStore,
        storage: FollowedStorage,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._context = context
        self._store = store
        self._storage = storage
        self._clock = clock
        self._looked_at: dict[str, float] = {}
        self._lock = threading.Lock()
        self._tried: dict[str, set[tuple[str, _Files]]] = {}
        self._undecided: dict[str, str] = {}

    def due(self, lacking: tuple[PartContent, ...]) -> tuple[PartContent, ...]:
        """Return the parts to look for now; those that were looked for a moment ago wait.

        Parameters
        ----------
        lacking
            All parts that no replica and no store could send, and that nothing here describes.
        """
        now, names = self._clock(), {name for name, _ in lacking}
        with self._lock:
            self._looked_at = {name: at for name, at in self._looked_at.items() if name in names}
            self._tried = {name: found for name, found in self._tried.items() if name in names}
            self._undecided = {name: why for name, why in self._undecided.items() if name in names}
            due = tuple(each for each in lacking if now - self._looked_at.get(each[0], NEVER) >= LOOK_AGAIN_S)
            self._looked_at |= {name: now for name, _ in due}
        return due

    def write_anew(self, parts: tuple[PartContent, ...], marked: Mapping[str, Sequence[ShareId]]) -> tuple[str, ...]:
        """Publish the parts of which data files are here or in the store; return their names.

        Parameters
        ----------
        parts
            Those that were due.
        marked
            The shares with this replica's marks for each.
        """
        try:
            copies = search(self._store)
        except (StoreError, NotAuthorized) as error:
            self._decide({name for name, _ in parts}, f"its data files can't be looked for: {error}")
            return ()
        done: list[str] = []
        for name, content in parts:
            try:
                if any(self._is_made_of(name, content, folder, files) for folder, files in copies.bare(name)) or any(
                    self._is_written_of(share, name, content) for share in marked.get(name, ())
                ):
                    done.append(name)
                self._decide({name}, "")
            except (ReplitreeError, OSError) as error:
                self._decide({name}, f"its data files could not be read: {error}")
        return tuple(done)

    def forget(self) -> None:
        """Forget what was tried: nothing is lacking any more."""
        with self._lock:
            for known in (self._looked_at, self._tried, self._undecided):
                known.clear()

    def look_again(self, part: str) -> None:
        """Let the next `write_anew` look for a part: an operator has asked."""
        with self._lock:
            self._looked_at.pop(part, None)

    def why_undecided(self, part: str) -> str | None:
        """Say why data files may still have the rows of a part that is lacking; None: that was tried, and they do not."""
        with self._lock:
            return self._undecided.get(part, NOT_TRIED) or None

    def _decide(self, names: set[str], why: str) -> None:
        with self._lock:
            self._undecided |= dict.fromkeys(names, why)

    # --- on this disk ---------------------------------------------------------------------------------------------------

    def _is_made_of(self, part: str, content: str, folder: Path, files: Sequence[Path]) -> bool:
        """Publish a part that is written of a folder's files; False: they are not those of the part, or were tried before."""
        # Imported here, because it loads Arrow.
        from replitree.storage.disk.bare_files import write_anew

        fetched, log = self._store.fetched, self._context.log
        found = ((str(path), path.stat()) for path in files)
        seen: _Files = tuple(sorted((path, said.st_size, said.st_mtime_ns) for path, said in found))
        # Reading all rows of the same files again would find the same.
        with self._lock:
            if (str(folder), seen) in self._tried.get(part, ()):
                return False
        fetched.abandon(part)
        target = fetched.begin(part)
        target.rmdir()
        made = write_anew(files, parse_part(part).partition, content, self._context.definitions.current, target)
        if made is None:
            with self._lock:
                self._tried.setdefault(part, set()).add((str(folder), seen))
            log.warning("data files without a manifest do not have the registered rows", part=part, at=str(folder))
            return False
        fetched.finish(part, content)
        log.warning("part written anew of data files whose manifest is gone", part=part, files=str(folder))
        return True

    # --- in the store ---------------------------------------------------------------------------------------------------

    def _is_written_of(self, share: ShareId, part: str, content: str) -> bool:
        """Publish a part that is written of a share's data objects."""
        sharing = self._storage.sharing
        assert sharing is not None
        sizes = sharing.objects.data_in(share)
        objects: _Files = tuple(sorted((name, size, 0) for name, size in sizes.items()))
        with self._lock:
            if not objects or (share, objects) in self._tried.get(part, ()):
                return False
        # The objects are brought into a staging folder: what a crash leaves of it is swept as other staged folders are.
        store, staging = self._store, StagingId(f"{BRINGING}{part}")
        store.staged.remove(staging)
        folder = store.staged_path(staging, parse_part(part).partition)
        try:
            with store_errors(f"make {folder}"):
                private.make_folder(folder)
            files = [sharing.objects.bring_unverified(share, name, size, folder / name) for name, size in sizes.items()]
            if self._is_made_of(part, content, folder, files):
                return True
        finally:
            store.staged.remove(staging)
        with self._lock:
            self._tried.setdefault(part, set()).add((share, objects))
        return False


__all__ = ["BareFiles"]
