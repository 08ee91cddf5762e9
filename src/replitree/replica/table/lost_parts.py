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
from typing import Protocol

from replitree.protocol.core.effects import Epoch
from replitree.protocol.core.entries import GetEntry, inserted_parts
from replitree.protocol.core.layout import Replica
from replitree.protocol.program import mender
from replitree.protocol.program.mender_effects import Loss
from replitree.protocol.program.stages import Then
from replitree.protocol.upkeep.lost import Declared, NotLost
from replitree.replica.kit.config import ServerConfig
from replitree.replica.kit.logs import Log
from replitree.replica.kit.metrics import Metrics
from replitree.replica.parts.salvage import Salvage
from replitree.replica.parts.sharing import Sharing
from replitree.replica.perform.context import TableContext
from replitree.replica.perform.driver import Driver
from replitree.replica.perform.progress import Progress
from replitree.replica.perform.runner import Performer
from replitree.replica.table.mending import Mending
from replitree.storage.disk.copies import SEARCHED_FOLDERS
from replitree.storage.disk.store import PartStore
from replitree.storage.schema.definition import TableDefinition


class Host(Protocol):
    """What the search needs of the replica."""

    context: TableContext
    performer: Performer
    store: PartStore
    log: Log
    replica: Replica
    config: ServerConfig
    progress: Progress
    metrics: Metrics
    lacking: dict[str, str]
    mending: Mending

    @property
    def sharing(self) -> Sharing | None:
        """The table's shares; None for a table that has no store."""

    @property
    def definition(self) -> TableDefinition:
        """The table's definition, as new as this replica knows it."""

    def pull_now(self) -> None:
        """Look at the log at once."""


class LostParts:
    """Watches the parts that one table replica can't get.

    Parameters
    ----------
    host
        The replica.
    clock
        Monotonic seconds.
    """

    def __init__(self, host: Host, clock: Callable[[], float] = time.monotonic) -> None:
        self._host = host
        self._clock = clock
        self._since: dict[str, float] = {}
        self._salvage = Salvage(host.context, host.store, lambda: host.sharing)
        self.reasons: dict[str, str] = {}
        self.declared: dict[str, int] = {}
        self.insert_parts: dict[str, int] = {}
        """Of parts that were declared lost: how many parts their insert had; 0 where that is not known."""

    def given_up(self) -> frozenset[str]:
        """Return the registered parts that have been missing for long enough, and that neither disk nor store may have."""
        lacking = frozenset(self._host.lacking)
        due = lacking.intersection(self._due(lacking | self._waiting().keys()))
        return frozenset(name for name in due if not self._may_be_somewhere(name, is_registered=True))

    def look(self, epoch: Epoch) -> tuple[str, ...]:
        """Look once; return the parts that were declared lost."""
        host = self._host
        lacking, waiting = frozenset(host.lacking), self._waiting()
        due = self._due(lacking | waiting.keys())
        back = self._salvage.put_back(tuple((name, waiting[name]) for name in due if name in waiting))
        if back:
            host.progress.retry_now()
        due = tuple(name for name in due if name not in back and not self._may_be_somewhere(name, name in lacking))
        return tuple(name for name in due if self._declare(epoch, name))

    def _due(self, missing: frozenset[str]) -> tuple[str, ...]:
        """Return what has been missing for long enough."""
        now = self._clock()
        self._since = {name: self._since.get(name, now) for name in missing}
        self.reasons = {name: reason for name, reason in self.reasons.items() if name in missing}
        patience = self._host.config.lost_part_after_s
        return tuple(sorted(name for name, since in self._since.items() if now - since >= patience))

    def _may_be_somewhere(self, name: str, is_registered: bool) -> bool:
        """Whether it is not decided yet that this disk and the object store do not have a part; the reason is noted."""
        mending = self._host.mending
        if is_registered:
            why = mending.salvage.why_undecided(name) or mending.own_shares.why_undecided(name)
            why = why or mending.bare_files.why_undecided(name)
        else:
            why = self._salvage.why_undecided(name)
        if why is not None:
            self.reasons[name] = why
        return why is not None

    def _waiting(self) -> dict[str, str]:
        """Return the parts of inserts that wait in the queue and that this replica has in no form, with their contents."""
        progress = self._host.progress
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
            if not self._host.store.has_part(part.name)
        }

    def _declare(self, epoch: Epoch, name: str) -> bool:
        from replitree.storage.rewrite.empty import empty_content

        host, definition = self._host, self._host.definition
        loss = Loss(epoch, empty_content(definition), definition.schema_version)
        following = Driver(host.performer, lambda _: loss).run(Then(mender.declare, (host.replica, name)))
        assert isinstance(following, Then), "a mender goes on"
        match following.outcome:
            case Declared(index, searched, insert_parts):
                host.metrics.lost.labels(definition.name).inc()
                looked_at = [f"{folder}/" for folder in SEARCHED_FOLDERS]
                if definition.is_shared:
                    looked_at.append(definition.store_url)
                host.log.error("part lost", part=name, index=index, searched_by=list(searched), searched=looked_at)
                self.declared[name], self.insert_parts[name] = index, insert_parts
                self._since.pop(name, None)
                host.pull_now()
                return True
            case NotLost(reason):
                self.reasons[name] = reason
        return False
