"""A table on an object store, on this replica: the store, what it adds to procedures, and the duties that come with it.

The store is opened when it is needed first, and probed at the first activation: a store that could lose rows, or another one
than the table's other replicas use, keeps the replica from becoming active, and the reason says what to do.

Absent on purpose: what is committed when (`replitree.protocol.shares.sharing`), what lies where
(`replitree.storage.disk.shared`, `replitree.storage.shares.shares`).
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from replitree.errors import BadInput, CorruptPart, NotAuthorized, ReplitreeError, StoreError, Unavailable
from replitree.protocol.core.effects import Epoch, Procedure, StagingId, StoreEffect
from replitree.protocol.program import table_drop, upkeep
from replitree.protocol.program.stages import AwaitUpkeep, End, LeftDisk, LetGoEnded, MemoryEffect, Then, UpkeepTurn
from replitree.protocol.shares.moving import LocalMoveEffect
from replitree.protocol.shares.share import (
    DeleteObjects,
    LookAtObjects,
    ObjectsGone,
    ObjectsInDoubt,
    ObjectsThere,
    ShareId,
)
from replitree.protocol.shares.share_effects import (
    ForgetParts,
    HasPart,
    LocalShareEffect,
    NameShares,
    PutShares,
    SharedPart,
    Sharer,
    SharesHere,
    SharesInDoubt,
    SharesOf,
    SharesSettled,
)
from replitree.protocol.shares.sharing import with_shares
from replitree.replica.kit.evidence import Evidence
from replitree.replica.parts.moving import Moves
from replitree.replica.perform.availability import Availability
from replitree.replica.perform.context import LocalParts, TableContext
from replitree.replica.perform.driver import Driver
from replitree.replica.uploads.stored_uploads import StoredUploads
from replitree.replica.uploads.uploads import Uploads
from replitree.storage.disk.shared import shares_in
from replitree.storage.parts.manifest import PartManifest, read_manifest
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.schema.storage_policy import StorageKind

if TYPE_CHECKING:
    from replitree.storage.objects.store import ObjectStore

T = TypeVar("T")

LET_GO_AT_ONCE = 64
"""Parts that are let go of in one round."""

GARBAGE_S = 5.0
"""How often it is looked whether there is garbage to work off, in seconds."""

EVICT_S = 10.0
"""How often copies for readers are counted, in seconds."""

PUTS_AT_ONCE = 8
"""Parts of one insert that are put into the store together."""

LET_GO_AGAIN_S = 10.0
"""How long a part that could not be let go of is left alone, in seconds: mostly it is still registered."""


@dataclass(frozen=True, slots=True)
class _StagedShare:
    """A staged part that is to go into the store, and its share."""

    folder: Path
    manifest: PartManifest
    share: ShareId


class Sharing:
    """The shares of one table replica.

    Parameters
    ----------
    availability
        Whether the replica is active.
    uploads
        What clients have opened here.
    moves
        Moves parts between this disk and the store.
    definition
        The table's definition; its storage is an object store.
    """

    def __init__(
        self,
        context: TableContext,
        parts: LocalParts,
        availability: Availability,
        uploads: Uploads,
        moves: Moves,
        definition: TableDefinition,
    ) -> None:
        from replitree.storage.shares.shares import ShareObjects

        self._context = context
        self._parts, self._store = parts, parts.store
        self._availability = availability
        self.objects = ShareObjects(partial(_open, definition.store_url), definition.table_id)
        self.moves = moves
        self.uploads = StoredUploads(
            context,
            parts.store.root,
            uploads,
            self.objects,
            availability,
            lambda: self.sharer,
        )
        self.letting_go = threading.Lock()
        """Held while a share is let go of, and while missing objects of shares are created again."""
        self._lock = threading.Lock()
        self._sharer: Sharer | None = None
        self._named: dict[StagingId, tuple[_StagedShare, ...]] = {}
        self._new: set[ShareId] = set()
        self._stuck: dict[str, float] = {}
        self._looked_at = self._evicted_at = float("-inf")
        self._is_probed = False
        self._store_id = ""

    # --- activation -----------------------------------------------------------------------------------------------------

    def probe(self) -> str:
        """Make sure that the store may be used; return its id.

        Raises
        ------
        StoreError, NotAuthorized, BadInput
            The store can't be used.
        """
        from replitree.storage.objects.probe import probe, store_id

        store = self.objects.store
        if not self._is_probed:
            probe(store)
            self._is_probed = True
        self._store_id = store_id(store)
        return self._store_id

    def opened(self, incarnation: str) -> None:
        """Note that the store is the table's, and which replica of its name this is."""
        self.objects.store_id = self._store_id
        self._sharer = Sharer(self._context.replica, incarnation)
        self.moves.has_new_epoch()

    @property
    def opened_as(self) -> Sharer | None:
        """The identity of this replica in coordination; None before the store is open."""
        return self._sharer

    @property
    def sharer(self) -> Sharer:
        """The identity of this replica in coordination; known since its first activation."""
        if self._sharer is None:
            raise Unavailable("the object store was not opened yet")
        return self._sharer

    @property
    def is_for_new_parts(self) -> bool:
        """Whether what is written goes into the store at once: inserts, and the results of merges and mutations."""
        # A replica that takes no shares over keeps what it writes on its own disk.
        context = self._context
        return context.definitions.current.placement.kind is StorageKind.SHARED and context.config.zero_copy

    @property
    def store_for_uploads(self) -> str | None:
        """Id of the store into which clients may put what they insert; None while they may not."""
        return self.objects.store_id if self.is_for_new_parts and self.objects.store_id else None

    def wrap(self, procedure: Procedure[T]) -> Procedure[T]:
        """Return what runs a procedure of this replica and keeps its shares."""
        # Without a sharer the store is not open yet, and nothing was staged or registered in it.
        return procedure if self._sharer is None else with_shares(self._sharer, procedure)

    # --- effects --------------------------------------------------------------------------------------------------------

    def perform_beside(self, effect: Any, perform: Callable[[StoreEffect], object]) -> object:
        """Perform an effect on shares, or any other by `perform`."""
        if isinstance(effect, LocalMoveEffect):
            return self.moves.perform(effect)
        is_ours = isinstance(effect, LocalShareEffect | DeleteObjects | LookAtObjects)
        return self.perform(effect) if is_ours else perform(effect)

    def perform(self, effect: LocalShareEffect | DeleteObjects | LookAtObjects) -> object:
        """Perform one effect on shares."""
        match effect:
            case NameShares(staging):
                named = tuple(
                    _StagedShare(folder, manifest, ShareId(uuid.uuid4().hex))
                    for folder, manifest in self._store.staged.parts(staging)
                    if manifest.share_id is None and self.is_for_new_parts
                )
                with self._lock:
                    self._named[staging] = named
                    self._new.update(each.share for each in named)
                return tuple(each.share for each in named)
            case PutShares(staging):
                return self._put(staging)
            case SharesOf(parts):
                # The share of a part comes first among those that it borrows of.
                held = [(part, self._store.manifest(part)) for part in parts if self._store.has_part(part)]
                return tuple(
                    SharedPart(part, ShareId(share), share in self._new)
                    for part, manifest in held
                    for share in manifest.shares
                )
            case SharesSettled(shares):
                self._settled(shares)
                return None
            case ForgetParts(parts):
                self._forget(parts)
                return None
            case SharesHere():
                store = self._store
                folders = [store.part_path(part) for part in store.parts()]
                folders += [folder for staging in store.stagings() for folder, _ in store.staged.parts(staging)]
                on_disk = {ShareId(share) for folder in folders for share in shares_in(folder)}
                on_disk.update(ShareId(share) for each in store.shared.leaving() for share in each.shares)
                return tuple(sorted({*self.uploads.shares(), *self._new, *self.moves.shares(), *on_disk}))
            case HasPart(part):
                return self._store.has_part(part)
            case SharesInDoubt(shares):
                self.moves.doubt(shares)
                self._availability.trouble(Evidence.UNKNOWN, "the answer to a commit about an object store was lost")
                return None
            case DeleteObjects(share):
                try:
                    self.objects.delete(share)
                except (StoreError, NotAuthorized) as error:
                    return ObjectsInDoubt(str(error))
                return ObjectsGone()
            case LookAtObjects(shares):
                return self.uploads.look(shares)

    def take(self, manifests: Sequence[PartManifest]) -> None:
        """Take over the shares that an upload has begun: a part is about to be staged with each."""
        shares = sorted({ShareId(manifest.share_id) for manifest in manifests if manifest.share_id is not None})
        if shares:
            with self._lock:  # before the upload forgets them: a share that neither names would be given up
                self._new.update(shares)
            self.uploads.hand_over(shares)

    def _put(self, staging: StagingId) -> ObjectsThere | ObjectsInDoubt:
        with self._lock:
            named = self._named.pop(staging, ())

        def put(each: _StagedShare) -> None:
            self._store.staged.put(staging, each.folder, each.manifest, each.share)

        try:
            with ThreadPoolExecutor(PUTS_AT_ONCE, thread_name_prefix="put-parts") as pool:
                list(pool.map(put, named))
        except (StoreError, NotAuthorized, BadInput, OSError) as error:
            self._settled([each.share for each in named])
            return ObjectsInDoubt(str(error))
        return ObjectsThere()

    def _settled(self, shares: Sequence[ShareId]) -> None:
        self.moves.settled(tuple(shares))
        with self._lock:
            self._new.difference_update(shares)
            self._named = {
                staging: named
                for staging, named in self._named.items()
                if not any(each.share in shares for each in named)
            }

    def _forget(self, parts: Sequence[str]) -> None:
        for part in parts:
            try:
                content = self._store.manifest(part).content
            except CorruptPart:
                continue
            self._store.quarantine(part, "its objects are gone")
            self._parts.lacks(part, content)
            self._context.log.info("too late to take over", part=part)

    # --- duties ---------------------------------------------------------------------------------------------------------

    def work(self) -> None:
        """Do one round: let go of what has left the disk, give up work marks, work off garbage, take copies away."""
        context, epoch = self._context, self._availability.active_epoch()
        if epoch is None:
            return
        driver = Driver(context.performer, partial(self._remember, epoch, self._left()))
        then: Then | End | None = Then(upkeep.let_go_next, (context.replica,))
        while isinstance(then, Then) and then.stage is upkeep.let_go_next:
            with self.letting_go:
                then = driver.run(then)
        if isinstance(then, Then) and time.monotonic() - self._looked_at >= GARBAGE_S:
            self._looked_at = time.monotonic()
            driver.run(then)
        if time.monotonic() - self._evicted_at >= EVICT_S:
            self._evicted_at = time.monotonic()
            self._store.evict_copies(context.config.shared_cache_bytes, self.moves.is_read)

    def _remember(self, epoch: Epoch, left: Iterator[LeftDisk], effect: MemoryEffect) -> UpkeepTurn | None:
        match effect:
            case AwaitUpkeep():
                return UpkeepTurn(self.sharer, epoch, next(left, None))
            case LetGoEnded(ended, is_gone):
                if not is_gone:
                    self._stuck[ended.name] = time.monotonic() + LET_GO_AGAIN_S
                    return None
                if not self.uploads.given_up(ended.shares):
                    self._store.shared.has_left(ended.name)
                self._settled(ended.shares if not ended.part else ())
                with self._lock:
                    # This includes shares of a part that was published and never registered.
                    self._new.difference_update(ended.shares)
                self._stuck.pop(ended.name, None)
                # There may be garbage now, so the next round looks for it.
                self._looked_at = float("-inf")
                return None
        raise AssertionError(effect)

    def _left(self) -> Iterator[LeftDisk]:
        """Yield the shares to release in this round; each is checked when it is its turn."""
        store, moves, count = self._store, self.moves, 0
        for each in store.shared.leaving():
            shares = tuple(map(ShareId, each.shares))
            # A share must stay for now if it is about to be owned, or if readers may still read its objects.
            if self._is_stuck(each.name) or any(map(moves.is_busy, shares)) or moves.is_read(each.part):
                continue
            is_here = bool(each.part) and store.has_part(each.part)
            if is_here and time.time() - store.shared.left_at(each.name) < self._context.config.old_parts_lifetime_s:
                continue
            yield LeftDisk(each.name, each.part, shares)
            count += 1
            if count == LET_GO_AT_ONCE:
                break
        for share in self.uploads.left():
            if not self._is_stuck(share):
                yield LeftDisk(share, "", (share,))

    def _is_stuck(self, name: str) -> bool:
        return self._stuck.get(name, 0.0) > time.monotonic()

    def leave(self) -> None:
        """Release all shares, because the table is dropped, and delete the garbage as far as that works now."""
        context = self._context
        then = Then(table_drop.release_shares, (context.replica, context.identity.encode()))
        try:
            Driver(context.performer, lambda _: None).run(then)
            self.objects.tidy()
        except ReplitreeError as error:
            context.log.warning("not all objects of the dropped table were deleted", reason=str(error))

    def references(self, lacking: Mapping[str, PartManifest | None]) -> dict[str, object]:
        """Return what this replica has of shares: which, for what, and their files.

        Parameters
        ----------
        lacking
            The manifests of the parts that are not whole here, as far as they are known.
        """
        store = self._store
        staged = [(staging, folder) for staging in store.stagings() for folder, _ in store.staged.parts(staging)]
        found = [each for part in store.parts() for each in _references("parts", part, store.part_path(part))]
        found += [each for staging, folder in staged for each in _references("staging", staging, folder)]
        found += [
            {"share": share, "part": each.part, "place": "leaving", "files": []}
            for each in store.shared.leaving()
            for share in each.shares
        ]
        found += [
            each
            for part, manifest in lacking.items()
            if manifest is not None
            for each in _references_of("lacking", part, manifest)
        ]
        begun = self.uploads.shares()
        with self._lock:
            begun = tuple(sorted({*begun, *self._new}))
        found += [{"share": share, "part": "", "place": "writing", "files": []} for share in begun]
        incarnation = "" if self._sharer is None else self._sharer.incarnation
        return {
            "replica": self._context.replica.name,
            "incarnation": incarnation,
            "shares": found,
            "undescribed": [part for part, manifest in lacking.items() if manifest is None],
        }


def _references(place: str, part: str, folder: Path) -> list[dict[str, object]]:
    """Return the shares that a folder has, each with the files that it has of it."""
    try:
        manifest = read_manifest(folder)
    except CorruptPart:
        return []
    return _references_of(place, part, manifest)


def _references_of(place: str, part: str, manifest: PartManifest) -> list[dict[str, object]]:
    """Return the shares that a manifest names, each with the files that it needs of it."""
    files: dict[str, list[dict[str, object]]] = {share: [] for share in manifest.shares}
    for file in manifest.files:
        share = manifest.share_of(file)
        if share is not None:
            files[share].append({"name": file.name, "bytes": file.bytes, "checksum": file.checksum})
    return [{"share": share, "part": part, "place": place, "files": some} for share, some in files.items()]


def _open(url: str) -> ObjectStore:
    from replitree.storage.objects.opening import open_store

    return open_store(url)


__all__ = ["Sharing"]
