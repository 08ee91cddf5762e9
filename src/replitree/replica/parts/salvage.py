"""Salvage: parts that are broken or gone here are put back from copies that this disk still has.

A part of a share lacks an object: the replica creates the object again, under the same name, from a verified copy.  So the part
is whole for every owner.  That is done only while the replica's own marks keep the shares: nothing is let go of meanwhile, so
no object comes back of a share that is garbage.  An object with other bytes is never replaced: the part gets files
of its own here, by hard links, and moves into a new share later, as every part that is not where it should be.

A part on a disk gets its files by hard links, or from a pack of old parts that has it as a whole.  Every byte of a copy is
verified before it is used, and of an object after it was created.

A search that found nothing is done again after `LOOK_AGAIN_S`.  Until the first one has ended, a part is not called broken: a
folder that can't be read may have a copy.

Absent on purpose: copies of other replicas.  Each replica puts its own copies back, and the others fetch the part then.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from replitree.errors import BadInput, CorruptPart, NotAuthorized, StoreError, UnsupportedFormat
from replitree.protocol.core.effects import GetMany, Many
from replitree.protocol.shares.share import ShareId
from replitree.protocol.shares.share_effects import SharedPart
from replitree.replica.parts.followed_storage import FollowedStorage
from replitree.replica.parts.sharing import Sharing
from replitree.replica.perform.context import LocalParts, TableContext
from replitree.storage.disk.copies import FoundCopies, put_back, put_back_packed, search
from replitree.storage.parts.manifest import FileEntry, PartManifest

LOOK_AGAIN_S = 30.0
"""How long a part of which no copy was found is not searched again, in seconds."""

REMEMBERED_S = 2.0
"""How long what a search has found serves those who ask for single files, in seconds."""

RENEWED_S = 0.1
"""The same for those who did not find there what they look for."""

NEVER = float("-inf")
NOT_SEARCHED = "this replica's disk was not searched for copies yet"
_STORE_ERRORS = (StoreError, NotAuthorized, BadInput)


class Salvage:
    """Puts parts of one table replica back from copies.  Any thread may use it.

    Parameters
    ----------
    parts
        The parts on this disk, and the folders that may have copies of others.
    storage
        The table's object store.
    clock
        Monotonic seconds.
    """

    def __init__(
        self,
        context: TableContext,
        parts: LocalParts,
        storage: FollowedStorage,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._context = context
        self._store, self._lacking = parts.store, parts.lacking
        self._storage = storage
        self._clock = clock
        self._lock = threading.Lock()
        self._searched_at: dict[str, float] = {}
        self._undecided: dict[str, str] = {}
        self._known: dict[str, PartManifest] = {}
        self._unusable: dict[str, dict[str, str]] = {}
        self._found: tuple[float, FoundCopies] | None = None

    # --- parts that are lacking -----------------------------------------------------------------------------------------

    def know(self, part: str, manifest: PartManifest) -> None:
        """Remember the manifest of a part that is lacking; its own folder may be gone."""
        with self._lock:
            if self._known.get(part) == manifest:
                return
            self._known[part] = manifest
            # With this manifest other files may count as copies, so the disk is searched again.
            self._searched_at.pop(part, None)

    def forget(self, part: str) -> None:
        """Forget what was searched for a part: it was here meanwhile."""
        with self._lock:
            for known in (self._searched_at, self._undecided, self._known, self._unusable):
                known.pop(part, None)

    def keep(self, missing: Collection[str]) -> None:
        """Forget what was searched for other parts than these."""
        with self._lock:
            for known in (self._searched_at, self._undecided, self._known, self._unusable):
                for part in [part for part in known if part not in missing]:
                    del known[part]

    def put_back(self, missing: Sequence[tuple[str, str]]) -> tuple[str, ...]:
        """Publish the parts of which this disk has a copy; return their names.

        Parameters
        ----------
        missing
            Name and content hash of parts that are not whole here.
        """
        now = self._clock()
        with self._lock:
            due = [each for each in missing if now - self._searched_at.get(each[0], NEVER) >= LOOK_AGAIN_S]
        if not due:
            return ()
        try:
            copies = search(self._store)
        except StoreError as error:
            self._decide({name: f"its folders can't be searched for copies: {error}" for name, _ in due}, now)
            return ()
        reasons = {name: self._put_back(copies, name, content) for name, content in due}
        self._decide(reasons, now)
        unusable = {name: copies.unusable(name, content) for name, content in due if reasons[name] is not None}
        told = {name: {self._told(path / "_"): why for path, why in found.items()} for name, found in unusable.items()}
        with self._lock:
            self._unusable |= told
        return tuple(name for name, reason in reasons.items() if reason is None)

    def _decide(self, reasons: dict[str, str | None], now: float) -> None:
        with self._lock:
            for name, reason in reasons.items():
                self._undecided.pop(name, None)
                if reason is None:
                    self._searched_at.pop(name, None)
                    continue
                self._searched_at[name] = now
                if reason:
                    self._undecided[name] = reason

    def look_again(self, part: str) -> None:
        """Let the next `put_back` search for a part, unless that was done a moment ago."""
        with self._lock:
            if self._clock() - self._searched_at.get(part, NEVER) >= REMEMBERED_S:
                self._searched_at.pop(part, None)

    def why_undecided(self, part: str) -> str | None:
        """Say why this disk may still have a copy of a part that is lacking; None: it was searched, and has none."""
        with self._lock:
            return self._undecided.get(part, None if part in self._searched_at else NOT_SEARCHED)

    def unusable(self) -> dict[str, dict[str, str]]:
        """Return, for parts that are lacking, the folders here that look like copies of them, and why each was not used."""
        with self._lock:
            return {name: dict(found) for name, found in sorted(self._unusable.items()) if found}

    def _put_back(self, copies: FoundCopies, part: str, content: str) -> str | None:
        """Publish one part; None: it is here.  Otherwise why it may have a copy all the same; empty: it has none."""
        undecided = f"a folder of {part} has a manifest of a newer format" if copies.may_be_unreadable(part) else ""
        for manifest in self._manifests(copies, part, content):
            try:
                if self._healed(copies, part, manifest):
                    received = self._store.fetched.receive_shared(part, manifest, manifest.encode(), manifest.content)
                    self._store.fetched.publish((received,))
                    told = "part put back: its objects were created again from copies on this disk"
                    self._context.log.warning(told, part=part)
                    return None
                files = copies.files_of(manifest)
                if files is not None:
                    put_back(self._store, part, manifest, files)
                    places = ", ".join(sorted({self._told(path) for path in files.values()}))
                    self._context.log.warning("part put back from copies on this disk", part=part, copies=places)
                    return None
            except CorruptPart:
                continue
            except _STORE_ERRORS as error:
                undecided = f"it may have a copy of {part}: {error}"
        try:
            pack = put_back_packed(self._store, copies.packs, part, content)
        except (*_STORE_ERRORS, UnsupportedFormat) as error:
            return f"it may have a copy of {part} in a pack: {error}"
        if pack is None:
            return undecided
        self._context.log.warning("part put back from copies on this disk", part=part, copies=f"packs/{pack}")
        return None

    def _manifests(self, copies: FoundCopies, part: str, content: str) -> tuple[PartManifest, ...]:
        with self._lock:
            known = self._known.get(part)
        found = list(copies.manifests_of(part, content))
        if known is not None and known.content == content and known not in found:
            found.append(known)
        # A part in shares comes before one with files of its own.
        return tuple(sorted(found, key=lambda each: each.share_id is None))

    def _healed(self, copies: FoundCopies | None, part: str, manifest: PartManifest) -> bool:
        """Whether the part's objects are whole by now; those with other bytes stay as they are.

        `copies`: those of a search; None: search when that is needed.
        """
        sharing = self._storage.sharing
        if manifest.share_id is None or sharing is None:
            return False
        created = []
        try:
            # While this lock is taken, this replica's marks stay, so the shares can't become garbage.
            with sharing.letting_go:
                if not self._is_owned(sharing, part, manifest):
                    return False
                missing = sharing.objects.missing(manifest)
                for entry in missing.files:
                    path = self._copy(entry) if copies is None else copies.file(entry)
                    if path is None:
                        return False
                    created.append((entry, path))
                for entry, path in created:
                    sharing.objects.put_again(str(manifest.share_of(entry)), entry, path)
                if missing.manifest:
                    sharing.objects.put_manifest(manifest)
            self._store.shared.verify_objects(manifest)
        except CorruptPart:
            return False
        for entry, path in created:
            share = str(manifest.share_of(entry))
            told = {"part": part, "share": share, "object": entry.name, "copy": self._told(path)}
            self._context.log.warning("missing object created again", **told)
        return True

    def _told(self, path: Path) -> str:
        """Return a folder for messages, below the table's."""
        return str(path.parent.relative_to(self._store.root))

    # --- objects of shares ----------------------------------------------------------------------------------------------

    def heal(self, part: str, manifest: PartManifest) -> bool:
        """Create the missing objects of a registered part from copies on this disk; True: all its objects are whole now.

        Raises
        ------
        StoreError, NotAuthorized, BadInput
            The object store, or a folder here, gives no answer.
        """
        if manifest.share_id is None or self._storage.sharing is None:
            return False
        return self._healed(None, part, manifest)

    def put_sums(self, part: str, manifest: PartManifest) -> None:
        """Put the sums objects that a registered, verified part of a share lacks.

        Raises
        ------
        CorruptPart, FileNotFoundError
            An object has just changed, or is gone.
        StoreError, NotAuthorized
            The store gives no answer, or takes no more.
        """
        sharing = self._storage.sharing
        if sharing is None or manifest.share_id is None:
            return
        unsummed = sharing.objects.unsummed(manifest)
        if not unsummed:
            return
        # While this lock is taken, this replica's marks stay, so the share can't become garbage.
        with sharing.letting_go:
            if not self._is_owned(sharing, part, manifest):
                return
            for key, sums in unsummed.items():
                sharing.objects.put_sums_again(key, sums)
        self._context.log.info("block checksums put", part=part, objects=len(unsummed))

    def _is_owned(self, sharing: Sharing, part: str, manifest: PartManifest) -> bool:
        """Whether this replica's part has a mark on each of its shares."""
        marks = tuple(sharing.sharer.mark(SharedPart(part, ShareId(share), is_new=False)) for share in manifest.shares)
        many: Many = self._context.performer.perform(GetMany(marks))
        return all(node is not None for node in many.nodes)

    # --- single files, for others ---------------------------------------------------------------------------------------

    def manifest_of(self, part: str) -> PartManifest | None:
        """Return the manifest of a part that is lacking; None when it is not lacking, or its manifest is not known here.

        Files of it may be missing.
        """
        content = self._lacking.get(part)
        if content is None:
            return None
        with self._lock:
            known = self._known.get(part)
        if known is not None and known.content == content:
            return known
        try:
            # The part may be newer than the search that is remembered.
            for age_s in (REMEMBERED_S, RENEWED_S):
                found = self._manifests(self._search(age_s), part, content)
                if found:
                    return found[0]
        except StoreError:
            return None
        return None

    def manifests(self) -> dict[str, PartManifest | None]:
        """Return the manifests of all parts that are lacking; None where it is not known here, not even another replica's."""
        return {part: self.manifest_of(part) for part in sorted(self._lacking)}

    def copy_of(self, part: str, file: str) -> Path | None:
        """Return a verified copy of a data file of a part that is lacking; None when this disk has none."""
        manifest = self.manifest_of(part)
        entry = None if manifest is None else next((each for each in manifest.files if each.name == file), None)
        try:
            return None if entry is None else self._copy(entry)
        except StoreError:
            return None

    def _copy(self, entry: FileEntry) -> Path | None:
        """Return a verified copy of a file."""
        # A copy that an earlier search has found may have moved since, so the disk is searched again.
        return self._search().file(entry) or self._search(RENEWED_S).file(entry)

    def _search(self, remembered_s: float = REMEMBERED_S) -> FoundCopies:
        """Search the disk, unless that was done a moment ago.  Raises `StoreError`."""
        now = self._clock()
        with self._lock:
            if self._found is not None and now - self._found[0] < remembered_s:
                return self._found[1]
        found = search(self._store)
        with self._lock:
            self._found = (now, found)
        return found


__all__ = ["Salvage"]
