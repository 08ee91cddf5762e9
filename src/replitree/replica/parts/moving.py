"""Rows that move between this disk and the object store: what a replica does for `replitree.protocol.shares.moving`.

What readers began to read before a move stays as it was: a snapshot that was taken earlier names files on this disk, or
objects of the store.  So copies of a part that has moved into the store stay, and the share of one that has moved out of it is
not let go of, until the leases that were held then have ended, and the lifetime of old parts is over.

A part is put into the store only when no active replica has its files there already.  A replica, or the store, that does not
say so is asked again for `fetch_wait_s`.  Then the part is put all the same: a replica that can't be reached from here may stay
so, and this disk may need the room.  The second copy costs space until its owners let go of it, and nothing else.

Absent on purpose: which part moves when (`replitree.replica.table.mover`).
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass

from replitree.errors import BadInput, CorruptPart, NotAuthorized, ReplicaUnavailable, StoreError
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Children, GetMany
from replitree.protocol.core.layout import Replica
from replitree.protocol.shares.moving import (
    BringRows,
    FindShare,
    FoundShare,
    LocalMoveEffect,
    NameMove,
    NoteMove,
    PutPart,
    ShareInDoubt,
    ToDisk,
    ToShare,
)
from replitree.protocol.shares.share import ObjectsInDoubt, ObjectsThere, ShareId
from replitree.replica.perform.context import LocalParts, TableContext
from replitree.replica.perform.exchange import Exchange
from replitree.storage.parts.manifest import PartManifest

PEERS_S = 2.0
"""How long it is taken for granted who is active, in seconds."""


@dataclass(frozen=True, slots=True)
class _Readers:
    """The readers of a part where it was: these leases, and readers without one, until then (monotonic seconds)."""

    leases: frozenset[str]
    until: float


class Moves:
    """The moves of one table replica.  Any thread may use it.

    Parameters
    ----------
    exchange
        Asks other replicas for the manifests of their parts.
    suspect
        Verifies a part in which damage was found; a broken one is set aside and fetched again.
    """

    def __init__(
        self, context: TableContext, parts: LocalParts, exchange: Exchange, suspect: Callable[[str], bool]
    ) -> None:
        self._context = context
        self._store = parts.store
        self._old_parts = parts.old_parts
        self._exchange = exchange
        self._suspect = suspect
        self._lock = threading.Lock()
        self._moving: dict[ShareId, str] = {}
        self._doubtful: set[ShareId] = set()
        self._manifests: dict[ShareId, PartManifest] = {}
        self._readers: dict[str, _Readers] = {}
        self._unanswered: dict[str, float] = {}
        self._peers: tuple[str, ...] = ()
        self._peers_until = float("-inf")

    # --- notes ----------------------------------------------------------------------------------------------------------

    def is_busy(self, share: ShareId) -> bool:
        """Whether the note of a share must stay: a move is under way with it, or has ended in doubt."""
        with self._lock:
            return share in self._moving or share in self._doubtful

    def shares(self) -> set[ShareId]:
        """Return the shares of such moves."""
        with self._lock:
            return self._moving.keys() | self._doubtful

    def settled(self, shares: tuple[ShareId, ...]) -> None:
        """Take note that moves with these shares have ended."""
        with self._lock:
            for share in shares:
                self._moving.pop(share, None)
                self._manifests.pop(share, None)

    def broken_off(self, part: str) -> None:
        """Take note that the move of a part has ended at an unknown step."""
        # The objects that it had begun to put are in doubt, so their notes must stay.
        with self._lock:
            shares = {share for share, moved in self._moving.items() if moved == part}
            self._doubtful |= shares
            self._moving = {share: moved for share, moved in self._moving.items() if share not in shares}

    def doubt(self, shares: tuple[ShareId, ...]) -> None:
        """Take note that an answer about these shares was lost."""
        with self._lock:
            self._doubtful.update(shares)
        self.settled(shares)

    def has_new_epoch(self) -> None:
        """Take note that what earlier epochs had on its way is refused from now on."""
        with self._lock:
            self._doubtful.clear()

    # --- readers --------------------------------------------------------------------------------------------------------

    def is_read(self, part: str) -> bool:
        """Whether a reader may still use a part where it was before its last move."""
        with self._lock:
            readers = self._readers.get(part)
        if readers is None:
            return False
        if time.monotonic() < readers.until or any(map(self._old_parts.is_leased, readers.leases)):
            return True
        with self._lock:
            self._readers.pop(part, None)
        return False

    # --- effects --------------------------------------------------------------------------------------------------------

    def perform(self, effect: LocalMoveEffect) -> object:
        """Perform one effect of a move."""
        store = self._store
        match effect:
            case FindShare(part):
                found = self._look_for(part)
                with self._lock:
                    if not isinstance(found, ShareInDoubt):
                        self._unanswered.pop(part, None)
                        return found
                    # A replica that stays silent must not keep the part from moving for ever.
                    since = self._unanswered.setdefault(part, time.monotonic())
                return found if time.monotonic() - since < self._context.config.fetch_wait_s else None
            case NameMove(part):
                share = ShareId(uuid.uuid4().hex)
                self._begin(part, share)
                return share
            case NoteMove(part, share):
                self._begin(part, share)
                return _is_done(lambda: store.moved.note(part, share))
            case PutPart(part, share):
                return self._whether_there(part, lambda: self._manifests.update({share: store.moved.put(part, share)}))
            case BringRows(part, share):
                return self._whether_there(part, lambda: store.moved.bring(part, share))
            case ToShare(part, share):
                manifest = self._manifests.pop(share, None)
                return manifest is not None and self._say(part, lambda: store.moved.to_share(part, manifest))
            case ToDisk(part, share):
                return self._say(part, lambda: store.moved.to_disk(part, share))

    def _begin(self, part: str, share: ShareId) -> None:
        with self._lock:
            self._moving[share] = part

    def _say(self, part: str, say: Callable[[], bool]) -> bool:
        """Replace a manifest."""
        # Readers of now may still use the files where they were.
        until = time.monotonic() + self._context.config.old_parts_lifetime_s
        with self._lock:
            self._readers[part] = _Readers(self._old_parts.leases_on(part), until)
        return _is_done(say)

    def _whether_there(self, part: str, do: Callable[[], None]) -> ObjectsThere | ObjectsInDoubt:
        try:
            do()
        except CorruptPart as error:
            if self._store.has_part(part):
                self._suspect(part)
            return ObjectsInDoubt(str(error))
        except (StoreError, NotAuthorized, BadInput, OSError) as error:
            return ObjectsInDoubt(str(error))
        return ObjectsThere()

    # --- what others have -----------------------------------------------------------------------------------------------

    def still_to_move(self, parts: Collection[str]) -> None:
        """Forget since when there is no answer for all other parts: they have moved, or left."""
        with self._lock:
            self._unanswered = {part: since for part, since in self._unanswered.items() if part in parts}

    def _look_for(self, part: str) -> FoundShare | ShareInDoubt | None:
        store = self._store
        try:
            here = store.manifest(part)
        except CorruptPart:
            return None
        noted = {share for each in store.shared.leaving() if each.part == part for share in each.shares}
        doubt: ShareInDoubt | None = None
        for peer in self._active_peers():
            try:
                found = self._exchange.find_manifest(peer, part)
                if found is None or len(found.shares) != 1 or found.as_local() != here:
                    # The files of a part that borrows are put once more, into one share.
                    continue
                if store.fetched.has_shares(found):
                    share = ShareId(found.shares[0])
                    self._manifests[share] = found
                    return FoundShare(share, share in noted)
            except (ReplicaUnavailable, StoreError, NotAuthorized) as error:
                doubt = ShareInDoubt(str(error))
        return doubt

    def _active_peers(self) -> tuple[str, ...]:
        with self._lock:
            if time.monotonic() < self._peers_until:
                return self._peers
        replica, performer, table = self._context.replica, self._context.performer, self._context.replica.table
        names: tuple[str, ...] = performer.perform(Children(layout.replicas(table))) or ()
        others = tuple(name for name in names if name != replica.name)
        paths = tuple(layout.is_active(Replica(table, name)) for name in others)
        nodes = performer.perform(GetMany(paths)).nodes if paths else ()
        with self._lock:
            self._peers = tuple(name for name, node in zip(others, nodes, strict=True) if node is not None)
            self._peers_until = time.monotonic() + PEERS_S
            return self._peers


def _is_done(do: Callable[[], bool | None]) -> bool:
    """Do something to a part on the disk; whether the part was there and the disk took it."""
    try:
        return do() is not False
    except (CorruptPart, StoreError):
        return False


__all__ = ["Moves"]
