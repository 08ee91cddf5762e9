"""What an active replica does again and again, beside its entries: mend, let go, and clear away.

One round, in this order: fetch again what is broken; declare lost what nobody has; take back the registration of parts that
others cover, and remove old parts whose time is over; let go of shares; remove prepared merges and uploads that are not wanted;
read the definition if it is newer, and follow its storage policy.  A round that fails is begun again.
"""

from __future__ import annotations

import time
from typing import Protocol

from replitree.errors import ReplitreeError, StoreError, Unavailable
from replitree.protocol.core.effects import Epoch
from replitree.protocol.core.layout import Replica
from replitree.protocol.program.keeper import forget_next
from replitree.protocol.program.stages import Then
from replitree.replica.kit.definitions import Definitions
from replitree.replica.kit.evidence import Evidence, Hindrance
from replitree.replica.kit.logs import Log
from replitree.replica.kit.old_parts import OldParts
from replitree.replica.parts.followed_storage import FollowedStorage
from replitree.replica.parts.orphans import Orphans
from replitree.replica.parts.prepared import PreparedMerges
from replitree.replica.parts.sharing import Sharing
from replitree.replica.perform.context import LocalParts
from replitree.replica.perform.driver import Driver
from replitree.replica.perform.progress import Progress
from replitree.replica.perform.runner import Performer
from replitree.replica.table.lost_parts import LostParts
from replitree.replica.table.mending import Mending
from replitree.replica.uploads.uploads import Uploads
from replitree.storage.disk.store import PartStore

ORPHANS_S = 30.0
"""How often the disk is looked through for parts that nobody will register."""

SETTLE_S = 60.0
"""How often at most rounds that fail may cost an epoch, in seconds."""


class Host(Protocol):
    """What maintenance needs of the replica."""

    replica: Replica
    performer: Performer
    progress: Progress
    store: PartStore
    old_parts: OldParts
    local_parts: LocalParts
    mending: Mending
    lost_parts: LostParts
    prepared: PreparedMerges
    uploads: Uploads
    definitions: Definitions
    followed_storage: FollowedStorage
    log: Log

    @property
    def sharing(self) -> Sharing | None:
        """The table's shares; None for a table that has no store."""

    def check_disk(self) -> None:
        """Do nothing while there is room on the disk; raise `Unavailable` when there is not."""

    def disk_failed(self, reason: str) -> None:
        """Report that the disk took no more."""

    def hinder(self, hindrance: Hindrance, reason: str) -> None:
        """Be read-only until this is over."""

    def trouble(self, evidence: Evidence, reason: str) -> None:
        """Report that the replica must activate again."""

    def active_epoch(self) -> Epoch | None:
        """Return the epoch while the replica is active, else None."""


def check_room(store: PartStore, reserve_bytes: int) -> None:
    """Do nothing while the disk has more free bytes than are kept in reserve.

    Raises
    ------
    Unavailable
        It has not.
    """
    free = store.free_bytes()
    if free < reserve_bytes:
        raise Unavailable(
            f"disk full: {free >> 20} MiB are free, {reserve_bytes >> 20} MiB are kept in reserve; "
            "make room, the replica goes on by itself"
        )


class Maintenance:
    """Keeps one table replica in order."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._orphans, self._looked_at = Orphans(host.local_parts), time.monotonic()
        self._settled_at = 0.0

    def round(self) -> None:
        """Do one round; one that fails is begun again with the next, and proves nothing about the epoch."""
        host = self._host
        try:
            host.check_disk()
        except (Unavailable, StoreError) as error:
            host.hinder(Hindrance.DISK, str(error))
            return
        try:
            self.work()
        except (ReplitreeError, OSError) as error:
            host.log.warning("maintenance", problem=str(error))
            if isinstance(error, StoreError | OSError):
                host.disk_failed(str(error))
            now = time.monotonic()
            if host.sharing is not None and now - self._settled_at > SETTLE_S:
                self._settled_at = now  # what it had begun in the object store is settled by an activation alone
                host.trouble(Evidence.BEGUN, str(error))

    def work(self) -> None:
        """Do what there is to do.

        Raises
        ------
        ReplitreeError, OSError
            Something is in the way.
        """
        host = self._host
        host.mending.mend()
        epoch = host.active_epoch()
        if epoch is not None:
            host.lost_parts.look(epoch)
        self._let_go()
        sharing = host.sharing
        if sharing is not None:
            sharing.work()
        host.prepared.sweep()
        host.uploads.sweep()
        host.definitions.catch_up()
        epoch = host.active_epoch()
        if epoch is not None:
            host.followed_storage.follow(epoch)

    def _let_go(self) -> None:
        """Take back the registration of parts that others cover, then remove the old parts whose time is over."""
        host = self._host
        epoch = host.active_epoch()
        if host.progress.has_strays and epoch is not None:
            host.progress.has_strays, is_done = False, False
            try:  # the stage asks its memory for one thing: the epoch
                following = Driver(host.performer, lambda _: epoch).run(Then(forget_next, (host.replica,)))
                is_done = isinstance(following, Then) and bool(following.outcome)
            finally:
                host.progress.has_strays |= not is_done
        if time.monotonic() - self._looked_at >= ORPHANS_S:
            self._looked_at = time.monotonic()
            self._orphans.look()
        host.old_parts.read_sizes()
        if not host.progress.has_strays:
            host.old_parts.remove_due()
