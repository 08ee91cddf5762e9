"""Parts that can't be had: after a while the others are told, and a part that nobody has is declared lost.

Two kinds of parts are looked at, once they have been missing for `lost_part_after_s`:

* registered ones whose files are broken or gone here, and that nobody could send: first their registration says *broken*, but
  not as long as the object store may still have them (`replitree.replica.own_shares`);
* those of inserts that wait in the queue because nobody could send them.

`protocol.lost` decides, by what all replicas have registered; here is only the patience.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from replitree.protocol.effects import Epoch
from replitree.protocol.entries import GetEntry, inserted_parts
from replitree.protocol.layout import Replica
from replitree.protocol.lost import Declared, NotLost, declare_lost, note_broken, note_whole, noted_broken
from replitree.protocol.parts import Part, parse_part
from replitree.replica.config import ServerConfig
from replitree.replica.logs import Log
from replitree.replica.mending import Mending
from replitree.replica.metrics import Metrics
from replitree.replica.progress import Progress
from replitree.replica.runner import Performer
from replitree.storage.definition import TableDefinition
from replitree.storage.disk import PartStore


class Host(Protocol):
    """What the search needs of the replica."""

    replica: Replica
    config: ServerConfig
    performer: Performer
    progress: Progress
    store: PartStore
    metrics: Metrics
    log: Log
    lacking: dict[str, str]
    mending: Mending

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
        self._broken: set[str] | None = None
        self.reasons: dict[str, str] = {}
        self.declared: dict[str, int] = {}

    def look(self, epoch: Epoch) -> tuple[str, ...]:
        """Look once; return the parts that were declared lost."""
        host = self._host
        lacking = frozenset(host.lacking)
        if self._broken is None:  # what an earlier process has noted may be whole by now
            self._broken = set(host.performer.run(noted_broken(host.replica)))
        for name in sorted(self._broken - lacking):
            if host.performer.run(note_whole(host.replica, epoch, parse_part(name))):
                self._broken.discard(name)
        due = self._due(lacking | frozenset(part.name for part in self._waiting()))
        due = tuple(name for name in due if name not in lacking or not self._may_be_in_store(name))
        for name in due:
            if name in lacking and host.performer.run(note_broken(host.replica, epoch, parse_part(name))):
                self._broken.add(name)
        return tuple(name for name in due if self._declare(epoch, name))

    def _due(self, missing: frozenset[str]) -> tuple[str, ...]:
        """Return what has been missing for long enough."""
        now = self._clock()
        self._since = {name: self._since.get(name, now) for name in missing}
        self.reasons = {name: reason for name, reason in self.reasons.items() if name in missing}
        patience = self._host.config.lost_part_after_s
        return tuple(sorted(name for name, since in self._since.items() if now - since >= patience))

    def _may_be_in_store(self, name: str) -> bool:
        """Whether it is not decided yet that the object store does not have a part; the reason is noted."""
        why = self._host.mending.own_shares.why_undecided(name)
        if why is not None:
            self.reasons[name] = why
        return why is not None

    def _waiting(self) -> tuple[Part, ...]:
        """Return the parts of inserts that wait in the queue and that this replica has in no form."""
        progress = self._host.progress
        with progress.changed:
            held, place, queue = progress.held, progress.place, progress.queue()
        if place is None:
            return ()
        return tuple(
            part
            for item in queue
            if isinstance(item.entry, GetEntry) and progress.waited_s(item.index) > 0
            for part in inserted_parts(item.entry, item.index)
            if held.covering(part) is None and place.parts.covering(part) is not None
            if not self._host.store.has_part(part.name)
        )

    def _declare(self, epoch: Epoch, name: str) -> bool:
        from replitree.storage.empty import empty_content

        host, definition = self._host, self._host.definition
        outcome = host.performer.run(
            declare_lost(host.replica, epoch, parse_part(name), empty_content(definition), definition.schema_version)
        )
        match outcome:
            case Declared(index):
                host.metrics.lost.labels(definition.name).inc()
                host.log.error("part lost", part=name, index=index)
                self.declared[name] = index
                self._since.pop(name, None)
                host.pull_now()
                return True
            case NotLost(reason):
                self.reasons[name] = reason
        return False
