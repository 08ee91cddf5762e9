"""Parts that can't be had: after a while the registration says so, and a part that no replica has is declared lost.

Two kinds of parts are looked at, once they have been missing for `lost_part_after_s`:

* registered ones whose files are broken or gone here, and that no other replica could send: first the mender notes in their
  registration that they are *broken*, but not as long as a copy on this disk (`replitree.replica.parts.salvage`) or the object
  store (`replitree.replica.parts.own_shares`) may still have them, or data files that have no manifest
  (`replitree.replica.parts.bare_files`);
* those of inserts that wait in the queue because no replica could send them, and of which this disk has no copy.

`protocol.upkeep.lost` decides, by what all replicas have registered; here is only the patience.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from replitree.protocol.core.effects import Epoch
from replitree.protocol.core.entries import GetEntry, inserted_parts
from replitree.protocol.program import mender
from replitree.protocol.program.mender_effects import AwaitLoss, Loss
from replitree.protocol.program.stages import AskReload, MemoryEffect, Then
from replitree.protocol.upkeep.lost import Declared, NotLost, Unnoticed
from replitree.replica.parts.bare_files import BareFiles
from replitree.replica.parts.followed_storage import FollowedStorage
from replitree.replica.parts.own_shares import OwnShares
from replitree.replica.parts.salvage import Salvage
from replitree.replica.perform.context import LocalParts, TableContext
from replitree.replica.perform.driver import Driver
from replitree.replica.perform.exchange import Exchange
from replitree.storage.disk.copies import SEARCHED_FOLDERS


class PartSources:
    """Where the rows of one table replica's parts may be, in the order in which they are asked.

    Attributes
    ----------
    exchange
        The other replicas.
    salvage
        Copies on this disk.
    own_shares, bare_files
        The table's object store, `storage`; and data files without a manifest.
    """

    def __init__(self, context: TableContext, parts: LocalParts, exchange: Exchange, storage: FollowedStorage) -> None:
        self.exchange, self.storage = exchange, storage
        self.salvage = Salvage(context, parts, storage)
        self.own_shares = OwnShares(parts.store, storage, self.salvage, context.log)
        self.bare_files = BareFiles(context, parts.store, storage)

    def why_undecided(self, part: str) -> str | None:
        """Say why disk or store may still have a registered part; None: they were asked, and do not have it."""
        why = self.salvage.why_undecided(part) or self.own_shares.why_undecided(part)
        return why or self.bare_files.why_undecided(part)


class LostParts:
    """Watches the parts that one table replica can't get.

    Parameters
    ----------
    sources
        Where the rows of parts may be.
    clock
        Monotonic seconds.
    """

    def __init__(
        self,
        context: TableContext,
        parts: LocalParts,
        sources: PartSources,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._context = context
        self._parts = parts
        self._sources = sources
        self._clock = clock
        self._since: dict[str, float] = {}
        self.reasons: dict[str, str] = {}
        self.declared: dict[str, int] = {}
        self.insert_parts: dict[str, int] = {}
        """Of parts that were declared lost: how many parts their insert had; 0 where that is not known."""

    def given_up(self) -> frozenset[str]:
        """Return the registered parts that have been missing for long enough, and that neither disk nor store may have."""
        lacking = frozenset(self._parts.lacking)
        due = lacking.intersection(self._due(lacking | self.waiting().keys()))
        return frozenset(name for name in due if not self._may_be_somewhere(name, is_registered=True))

    def look(self, epoch: Epoch) -> tuple[str, ...]:
        """Look once; return the parts that were declared lost."""
        lacking, waiting = frozenset(self._parts.lacking), self.waiting()
        due = self._due(lacking | waiting.keys())
        back = self._sources.salvage.put_back(tuple((name, waiting[name]) for name in due if name in waiting))
        if back:
            self._context.progress.retry_now()
        due = tuple(name for name in due if name not in back and not self._may_be_somewhere(name, name in lacking))
        return tuple(name for name in due if self._declare(epoch, name))

    def _due(self, missing: frozenset[str]) -> tuple[str, ...]:
        """Return what has been missing for long enough."""
        now = self._clock()
        self._since = {name: self._since.get(name, now) for name in missing}
        self.reasons = {name: reason for name, reason in self.reasons.items() if name in missing}
        patience = self._context.config.lost_part_after_s
        return tuple(sorted(name for name, since in self._since.items() if now - since >= patience))

    def _may_be_somewhere(self, name: str, is_registered: bool) -> bool:
        """Whether it is not decided yet that this disk and the object store do not have a part; the reason is noted."""
        asked = self._sources if is_registered else self._sources.salvage
        why = asked.why_undecided(name)
        if why is not None:
            self.reasons[name] = why
        return why is not None

    def waiting(self) -> dict[str, str]:
        """Return the parts of inserts that wait in the queue and that this replica has in no form, with their contents."""
        progress = self._context.progress
        with progress.changed:
            held, place, queue = progress.held, progress.place, progress.queue()
        if place is None:
            return {}
        return {
            part.name: staged.content_hash
            for item in queue
            if isinstance(item.entry, GetEntry) and progress.waited_s(item.index) > 0
            for part, staged in zip(inserted_parts(item.entry, item.index), item.entry.parts, strict=True)
            if held.covering(part) is None and place.parts.covering(part) is not None
            if not self._parts.store.has_part(part.name)
        }

    def _declare(self, epoch: Epoch, name: str) -> bool:
        from replitree.storage.rewrite.empty import empty_content

        context, definition = self._context, self._context.definitions.current
        parent = context.replica.table.parent
        loss = Loss(epoch, parent, empty_content(definition), definition.schema_version)

        def remember(effect: MemoryEffect) -> Loss | None:
            if isinstance(effect, AwaitLoss):
                return loss
            assert isinstance(effect, AskReload), effect
            context.pull_signal.reload()
            return None

        following = Driver(context.performer, remember).run(Then(mender.declare, (context.replica, name)))
        assert isinstance(following, Then), "a mender goes on"
        match following.outcome:
            case Declared(index, searched, insert_parts):
                context.metrics.lost.labels(definition.name).inc()
                looked_at = [f"{folder}/" for folder in SEARCHED_FOLDERS]
                if definition.is_shared:
                    looked_at.append(definition.store_url)
                context.log.error("part lost", part=name, index=index, searched_by=list(searched), searched=looked_at)
                self.declared[name], self.insert_parts[name] = index, insert_parts
                self._since.pop(name, None)
                context.pull_signal.hurry()
                return True
            case NotLost(reason):
                self.reasons[name] = reason
            case Unnoticed():
                self.reasons[name] = "this replica has registered its rows as whole, and loads its state again"
        return False
