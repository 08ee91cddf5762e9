"""What an active replica does again and again, beside its entries: mend, let go, and clear away.

One round, in this order: is there room on the disk; fetch again what is broken; declare lost what nobody has; take back the
registration of parts that others cover, and remove old parts whose time is over; let go of shares; remove prepared merges and
uploads that nobody wants any more; read the definition if it is newer, and follow its storage policy.  A round that fails is
trouble: the replica activates again.
"""

from __future__ import annotations

import time
from typing import Protocol

from replitree.protocol.effects import Epoch
from replitree.protocol.layout import Replica
from replitree.protocol.pull import load
from replitree.protocol.start import forget_covered
from replitree.replica.definitions import Definitions
from replitree.replica.followed_storage import FollowedStorage
from replitree.replica.lost_parts import LostParts
from replitree.replica.mending import Mending
from replitree.replica.old_parts import OldParts
from replitree.replica.orphans import Orphans
from replitree.replica.prepared import Prepared
from replitree.replica.progress import Progress
from replitree.replica.runner import Performer
from replitree.replica.sharing import Sharing
from replitree.replica.uploads import Uploads
from replitree.storage.disk import PartStore

ORPHANS_S = 30.0
"""How often the disk is looked through for parts that nobody will register."""


class Host(Protocol):
    """What maintenance needs of the replica."""

    replica: Replica
    performer: Performer
    progress: Progress
    store: PartStore
    old_parts: OldParts
    mending: Mending
    lost_parts: LostParts
    prepared: Prepared
    uploads: Uploads
    definitions: Definitions
    sharing: Sharing | None
    followed_storage: FollowedStorage

    def active_epoch(self) -> Epoch | None:
        """Return the epoch while the replica is active, else None."""

    def check_disk(self) -> None:
        """Do nothing while there is room on the disk; raise `Unavailable` when there is not."""


class Maintenance:
    """Keeps one table replica in order."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._orphans, self._looked_at = Orphans(host), time.monotonic()

    def work(self) -> None:
        """Do one round.

        Raises
        ------
        ReplitreeError, OSError
            Something is in the way.
        """
        host = self._host
        host.check_disk()
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
        host.followed_storage.follow()

    def _let_go(self) -> None:
        """Take back the registration of parts that others cover, then remove the old parts whose time is over."""
        host = self._host
        epoch = host.active_epoch()
        if host.progress.has_strays and epoch is not None:
            host.progress.has_strays = False
            if not host.performer.run(forget_covered(host.replica, epoch, host.performer.run(load(host.replica)))):
                host.progress.has_strays = True
        if time.monotonic() - self._looked_at >= ORPHANS_S:
            self._looked_at = time.monotonic()
            self._orphans.look()
        if not host.progress.has_strays:
            host.old_parts.remove_due()
