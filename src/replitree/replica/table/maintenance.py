"""What an active replica does again and again, beside its entries: mend, let go, and clear away.

One round, in this order: fetch again what is broken; declare lost what no replica has; take back the registration of parts that
others cover; fetch what the change feed lacks, mark consumers whose hold is over, remove old parts whose time is over, and pack
small ones that stay; let go of shares; remove prepared merges, rows and uploads that are not wanted; read the definition if it
is newer, and follow its storage policy.  A round that fails is begun again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from replitree.errors import CoordinationUnavailable, ReplitreeError, StoreError, Unavailable, UnsupportedFormat
from replitree.protocol.core.parts import parse_part
from replitree.protocol.program.keeper import forget_next
from replitree.protocol.program.stages import MemoryEffect, Then
from replitree.protocol.program.tagger import AwaitOld, OldTurn, RemoveOld, remove_next
from replitree.replica.insert.prepared_rows import PreparedRows
from replitree.replica.kit.evidence import Evidence, Hindrance
from replitree.replica.parts.feed_parts import FeedParts
from replitree.replica.parts.followed_storage import FollowedStorage
from replitree.replica.parts.orphans import Orphans
from replitree.replica.parts.prepared import PreparedMerges
from replitree.replica.perform.availability import Availability
from replitree.replica.perform.context import LocalParts, TableContext
from replitree.replica.perform.driver import Driver
from replitree.replica.perform.exchange import Exchange
from replitree.replica.table.consuming import Consuming
from replitree.replica.table.lost_parts import LostParts
from replitree.replica.table.mending import Mending
from replitree.replica.uploads.uploads import Uploads

ORPHANS_S = 30.0
"""How often the disk is looked through for parts that will never be registered."""

TAGS_S = 10.0
"""How often it is looked whether tags and consumers have changed while they keep all parts that are due, in seconds."""

SETTLE_S = 60.0
"""How often at most rounds that fail may cost an epoch, in seconds."""


@dataclass(frozen=True, slots=True)
class Keepers:
    """What keeps a table replica in order, in the order in which a round asks them."""

    mending: Mending
    lost_parts: LostParts
    prepared: PreparedMerges
    prepared_rows: PreparedRows
    uploads: Uploads
    storage: FollowedStorage


class Maintenance:
    """Keeps one table replica in order.

    Parameters
    ----------
    availability
        Whether the replica is active, and where a round that fails is reported.
    keepers
        What a round asks.
    exchange
        Fetches what the change feed lacks.
    consuming
        Marks consumers of the feed whose hold is over.
    """

    def __init__(
        self,
        context: TableContext,
        parts: LocalParts,
        availability: Availability,
        keepers: Keepers,
        exchange: Exchange,
        consuming: Consuming,
    ) -> None:
        self._context = context
        self._progress, self._old_parts, self._versions = parts.progress, parts.old_parts, parts.versions
        self._availability = availability
        self._keepers, self._consuming = keepers, consuming
        self.feed_parts = FeedParts(context, parts, exchange)
        self._orphans, self._looked_at = Orphans(parts), time.monotonic()
        self._settled_at, self._tags_read_at, self._tags_problem = 0.0, float("-inf"), ""

    def round(self) -> None:
        """Do one round; one that fails is begun again with the next, and proves nothing about the epoch."""
        availability = self._availability
        try:
            availability.check_disk()
        except (Unavailable, StoreError) as error:
            availability.hinder(Hindrance.DISK, str(error))
            return
        try:
            self.work()
        except (ReplitreeError, OSError) as error:
            self._context.log.warning("maintenance", problem=str(error))
            if isinstance(error, StoreError | OSError):
                availability.disk_failed(str(error))
            now = time.monotonic()
            if self._keepers.storage.sharing is not None and now - self._settled_at > SETTLE_S:
                # Only an activation settles what was begun in the object store.
                self._settled_at = now
                availability.trouble(Evidence.BEGUN, str(error))

    def work(self) -> None:
        """Do what there is to do.

        Raises
        ------
        ReplitreeError, OSError
            Something is in the way.
        """
        keepers = self._keepers
        keepers.mending.mend()
        epoch = self._availability.active_epoch()
        if epoch is not None:
            keepers.lost_parts.look(epoch)
        # The registration of parts that others cover is taken back, then the old parts whose time is over are removed.
        progress, epoch = self._progress, self._availability.active_epoch()
        if progress.has_strays and epoch is not None:
            progress.has_strays, is_done = False, False
            # The only thing that this stage asks for is the epoch.
            try:
                following = Driver(self._context.performer, lambda _: epoch).run(
                    Then(forget_next, (self._context.replica,))
                )
                is_done = isinstance(following, Then) and bool(following.outcome)
            finally:
                progress.has_strays |= not is_done
        if time.monotonic() - self._looked_at >= ORPHANS_S:
            self._looked_at = time.monotonic()
            self._orphans.look()
        self._old_parts.read_sizes()
        self._versions.catch_up()
        if epoch is not None:
            self.feed_parts.look()
            self._consuming.look()
        if not progress.has_strays and self._availability.active_epoch() is not None:
            self._remove_old()
            self._pack_old()
        sharing = keepers.storage.sharing
        if sharing is not None:
            sharing.work()
        keepers.prepared.sweep()
        keepers.prepared_rows.look()
        keepers.uploads.sweep()
        self._context.definitions.catch_up()
        epoch = self._availability.active_epoch()
        if epoch is not None:
            keepers.storage.follow(epoch)

    def _pack_old(self) -> None:
        """Pack small old parts that stay, and remove the copies of packed ones that no reader needs."""
        old, context, packed, begun = self._old_parts, self._context, 0, time.monotonic()
        # The rows of a part in an object store are no files here.
        if not context.definitions.current.is_shared:
            packed = old.pack(context.config.pack_old_parts_after_s)
        old.remove_copies()
        if packed:
            context.log.info("packed old parts", parts=packed, seconds=round(time.monotonic() - begun, 3))
        for problem in old.packed.problems():
            context.log.error("a pack of old parts is damaged and was set aside", problem=problem)

    def _remove_old(self) -> None:
        """Remove the old parts whose time is over and that nothing keeps; without an answer of coordination, none."""
        old, held = self._old_parts, self._progress.held
        due = tuple(part for part in old.choose_due() if parse_part(part) not in held)
        # This is asked after the choice: a part that left after a change of the retention was chosen after that was noted.
        if self._context.definitions.is_behind:
            return
        versions = self._versions
        if not due and not versions.has_full and not versions.journal.is_long():
            return
        # What tags and consumers keep is always due: without news there is nothing to read.
        if time.monotonic() - self._tags_read_at < TAGS_S:
            kept = old.tags.parts | old.kept_for(old.consumers, due)
            if kept.issuperset(due):
                return

        def remember(effect: MemoryEffect) -> OldTurn | None:
            match effect:
                case AwaitOld():
                    return OldTurn(due, old.tags, old.consumers)
                case RemoveOld(parts, tags, consumers):
                    old.remove_chosen(parts, tags, consumers, versions.forget_old)
                    self._tags_read_at = time.monotonic()
            return None

        # They are removed when it answers again.  What can't be read keeps all of them, and holds up nothing else.
        try:
            Driver(self._context.performer, remember).run(Then(remove_next, (self._context.replica,)))
            self._tags_problem = ""
        except CoordinationUnavailable:
            pass
        except UnsupportedFormat as error:
            if str(error) != self._tags_problem:
                self._context.log.warning("old parts stay: a tag or a consumer can't be read", reason=str(error))
            self._tags_problem = str(error)
