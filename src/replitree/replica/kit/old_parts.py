"""Old parts: parts that have left the table, and that readers may still need.

A part that left the table stays on disk for its lifetime, for as long as a client has a *lease* on a snapshot with it, and for
as long as a tag names it (`replitree.protocol.upkeep.tags`), the change feed needs it (`replitree.replica.kit.feed_journal`),
or a consumer of the feed has not read it (`replitree.protocol.upkeep.consumers`).
An empty file ``retired/<part>`` marks it, so that a process that starts again knows it, and since when it is old: the mark's
time.

A lease is memory only: after a restart every lease is lost, and its holder hears so at the next renewal.  Until then the
lifetime protects it.  What may be removed is chosen and removed in two steps, with a look at the tags and consumers in between.
Whatever gets a lease meanwhile is not chosen any more: so no lease is given on a part that goes.  A *hold* on the feed, while a
consumer is made, is of an index instead of parts, and from then on nothing is chosen any more.

Absent on purpose: which parts are old (the fold knows; `replitree.replica.perform.progress` hears it).
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from replitree import private
from replitree.errors import CorruptPart, LeaseLost, Unavailable
from replitree.protocol.core.effects import LogIndex
from replitree.protocol.upkeep.consumers import NO_CONSUMERS, NO_FLOOR, Consumers, ConsumerValue
from replitree.protocol.upkeep.tags import NO_TAGS, Tags
from replitree.storage.disk.store import PartStore

LEASES_MAX = 1000
LEASE_S_MAX = 3600.0
REMOVE_AT_ONCE = 256
"""Parts removed in one go."""

SIZES_AT_ONCE = 1_000
"""Parts whose sizes are read in one round of maintenance."""

RETIRED = "retired"
"""Folder of the marks, one empty file for each old part, below the table's."""


@dataclass(slots=True)
class _Lease:
    """Parts that a client reads, and until when (monotonic seconds)."""

    parts: frozenset[str]
    until: float


@dataclass(frozen=True, slots=True)
class _Hold:
    """From which index on the feed is held, and until when at most (monotonic seconds)."""

    index: LogIndex
    until: float


@dataclass(slots=True)
class _Old:
    """Since when a part is old (seconds since the epoch), and its bytes; None until its manifest is read."""

    since: float
    bytes: int | None = None


class FeedNeeds(Protocol):
    """What the change feed of a table needs.  Both raise OSError when the disk refuses."""

    def unneeded(self, parts: Sequence[str]) -> tuple[str, ...]:
        """Return those of some parts that the feed does not need for its own time."""

    def needed_from(self, parts: Sequence[str], index: LogIndex) -> frozenset[str]:
        """Return those of some parts that the feed of entries at or above an index needs."""


class _NoFeed:
    """A feed that needs nothing."""

    def unneeded(self, parts: Sequence[str]) -> tuple[str, ...]:
        return tuple(parts)

    def needed_from(self, _parts: Sequence[str], _index: LogIndex) -> frozenset[str]:
        return frozenset()


class OldParts:
    """The old parts of one table on one disk, and the leases on its snapshots.

    Parameters
    ----------
    store
        Where the parts are.
    lifetime_s
        Seconds for which an old part stays.
    clock
        Seconds since the epoch.
    keep_s
        Returns the seconds that the table's definition says instead of `lifetime_s`, or None.
    """

    def __init__(
        self,
        store: PartStore,
        lifetime_s: float,
        clock: Callable[[], float] = time.time,
        keep_s: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._store = store
        self._lifetime_s, self._keep_s = lifetime_s, keep_s
        self._clock = clock
        # A hold begins before a removal or after it; it is taken before `_lock`.
        self._removal, self._lock = threading.Lock(), threading.Lock()
        self._holds: dict[str, _Hold] = {}
        self._leases: dict[str, _Lease] = {}
        self._marks = store.root / RETIRED
        private.make_folder(self._marks, exist_ok=True)
        with os.scandir(self._marks) as marks:
            self._old = {mark.name: _Old(mark.stat().st_mtime) for mark in marks}
        self._chosen: frozenset[str] = frozenset()
        self._may_forget = False
        self.feed: FeedNeeds = _NoFeed()
        """What the change feed needs."""
        self.tags: Tags = NO_TAGS
        """The tags of the table, as they were read last."""
        self.consumers: Consumers = NO_CONSUMERS
        """The consumers of the change feed, as they were read last."""
        self._unread = list(self._old)
        """Parts whose bytes are not known yet: after a start there may be as many as the table has parts."""

    def retire(self, parts: Iterable[str]) -> None:
        """Mark parts that left the table; those that are not on disk, and those that are marked, are left out."""
        with self._lock:
            for part in parts:
                if part not in self._old and self._store.part_path(part).is_dir():
                    private.touch(self._marks / part)
                    self._old[part] = _Old(self._clock(), self._bytes(part))

    def revive(self, parts: Iterable[str]) -> None:
        """Take marks away: the table has these parts."""
        with self._lock:
            for part in parts:
                if self._old.pop(part, None) is not None:
                    self._chosen -= {part}
                    (self._marks / part).unlink(missing_ok=True)

    def read_sizes(self) -> None:
        """Read the sizes of some parts that are old since before this process began."""
        with self._lock:
            some, self._unread = self._unread[-SIZES_AT_ONCE:], self._unread[:-SIZES_AT_ONCE]
        for part in some:
            size = self._bytes(part)
            with self._lock:
                if part in self._old:
                    self._old[part].bytes = size

    def is_old(self, part: str) -> bool:
        """Whether a part is marked, and so still on disk."""
        return part in self._old

    @property
    def kept_s(self) -> float:
        """For how many seconds a part stays after it has left the table."""
        keep_s = self._keep_s()
        return self._lifetime_s if keep_s is None else keep_s

    def choose_due(self) -> tuple[str, ...]:
        """Choose the old parts whose time is over and on which no client has a lease, and return them."""
        with self._lock:
            self._expire()
            before = self._clock() - self.kept_s
            leased = frozenset[str]().union(*(lease.parts for lease in self._leases.values()))
            over = [part for part, old in self._old.items() if old.since <= before and part not in leased]
        # Outside of the lock: the journal may have to be read first.  A part that gets a lease meanwhile is seen below.
        free = self.feed.unneeded(over)
        with self._lock:
            held_from = self._held_from()
        held = frozenset(self.feed.needed_from(free, held_from)) if held_from < NO_FLOOR else frozenset()
        with self._lock:
            if self._held_from() < held_from:
                # The feed is held since a moment ago: the next choice knows what that is.
                self._chosen, self._may_forget = frozenset(), False
                return ()
            leased = frozenset[str]().union(*(lease.parts for lease in self._leases.values()))
            due = tuple(part for part in free if part in self._old and part not in leased and part not in held)
            self._chosen, self._may_forget = frozenset(due), True
        return due

    def remove_chosen(
        self,
        parts: Sequence[str],
        tags: Tags,
        consumers: Consumers,
        forget: Callable[[LogIndex], object] = lambda _floor: None,
    ) -> int:
        """Delete what `choose_due` returned, still is chosen, and nothing keeps; return how many parts.

        Parameters
        ----------
        parts
            What was returned.
        tags, consumers
            The tags and the consumers, read after the choice.
        forget
            Forgets what is known of the entries below an index, where it is old; called unless the feed is held meanwhile.

        Raises
        ------
        OSError
            The disk refuses.
        """
        with self._removal:
            needed = self.kept_for(consumers, parts)
            kept = tags.parts
            with self._lock:
                self.tags, self.consumers = tags, consumers
                due = [part for part in parts if part in self._chosen and part not in kept and part not in needed]
                due = due[:REMOVE_AT_ONCE]
                self._chosen, may_forget = frozenset(), self._may_forget
                for part in due:
                    del self._old[part]
                floor = min(consumers.floor, self._held_from())
            if may_forget:
                forget(floor)
        if due:
            self._store.remove_parts(due)
            for part in due:
                (self._marks / part).unlink(missing_ok=True)
        return len(due)

    def kept_for(self, consumers: Consumers, parts: Sequence[str]) -> frozenset[str]:
        """Return those of some parts that consumers keep.  Raises OSError when the disk refuses."""
        needed = self.feed.needed_from(parts, consumers.floor) if parts and consumers.floor < NO_FLOOR else ()
        return consumers.parts.intersection(parts).union(needed)

    def _bytes(self, part: str) -> int:
        try:
            return self._store.manifest(part).bytes
        except CorruptPart:
            return 0

    # --- leases ---

    def lease(self, parts: Iterable[str], lease_s: float) -> str:
        """Keep parts for some seconds; return the lease's id.

        The caller checks after this call that the parts are still there (visible, or old).

        Raises
        ------
        Unavailable
            There are too many leases.
        """
        with self._lock:
            self._expire()
            if len(self._leases) >= LEASES_MAX:
                raise Unavailable(f"{LEASES_MAX} leases are held on this replica; release some, or ask another replica")
            lease, kept = secrets.token_hex(16), frozenset(parts)
            self._leases[lease] = _Lease(kept, time.monotonic() + min(lease_s, LEASE_S_MAX))
            self._chosen -= kept
            return lease

    def renew(self, lease: str, lease_s: float) -> None:
        """Keep a lease's parts for some more seconds, counted from now.

        Raises
        ------
        LeaseLost
            It was released, has expired, or was given by an earlier process.
        """
        with self._lock:
            self._expire()
            if lease not in self._leases:
                raise LeaseLost("the lease has expired, or the replica was started anew; take a new snapshot")
            self._leases[lease].until = time.monotonic() + min(lease_s, LEASE_S_MAX)

    def release(self, lease: str) -> None:
        """Let go of a lease.  Idempotent."""
        with self._lock:
            self._leases.pop(lease, None)

    def is_leased(self, lease: str) -> bool:
        """Whether a lease is held."""
        with self._lock:
            self._expire()
            return lease in self._leases

    def leases_on(self, part: str) -> frozenset[str]:
        """Return the leases that keep a part."""
        with self._lock:
            self._expire()
            return frozenset(lease for lease, held in self._leases.items() if part in held.parts)

    def _expire(self) -> None:
        now = time.monotonic()
        for lease in [lease for lease, held in self._leases.items() if held.until < now]:
            del self._leases[lease]
        for each in [each for each, hold in self._holds.items() if hold.until < now]:
            del self._holds[each]

    def _held_from(self) -> LogIndex:
        return min((hold.index for hold in self._holds.values()), default=NO_FLOOR)

    # --- holds ---

    def hold_feed(self, index: LogIndex) -> str:
        """Keep what the feed needs from an index on until the hold is released; return the hold's id.

        The caller checks after this call that everything is there.
        """
        with self._removal, self._lock:
            hold = secrets.token_hex(16)
            # After that long it is certain whether the consumer was made.
            self._holds[hold] = _Hold(index, time.monotonic() + LEASE_S_MAX)
            self._chosen, self._may_forget = frozenset(), False
            return hold

    def release_feed(self, hold: str) -> None:
        """Let go of a hold.  Idempotent."""
        with self._lock:
            self._holds.pop(hold, None)

    @property
    def feed_floor(self) -> LogIndex:
        """The lowest index from which on the feed is kept for consumers, as far as they are known here."""
        with self._lock:
            return min(self.consumers.floor, self._held_from())

    def bytes_for(self, consumer: ConsumerValue) -> int:
        """Return the bytes of the old parts that are kept for one consumer alone.  Raises OSError when the disk refuses."""
        with self._lock:
            before, tagged = self._clock() - self.kept_s, self.tags.parts
            sizes = {
                part: old.bytes or 0 for part, old in self._old.items() if old.since <= before and part not in tagged
            }
        over = self.feed.unneeded(tuple(sizes))
        needed = frozenset(self.feed.needed_from(over, LogIndex(consumer.index))).union(consumer.parts)
        return sum(sizes[part] for part in over if part in needed)

    # --- looking ---

    def names(self) -> frozenset[str]:
        """Return the names of the old parts."""
        with self._lock:
            return frozenset(self._old)

    def oldest_s(self) -> float | None:
        """Return for how many seconds the oldest of them has been old; None when there is none."""
        with self._lock:
            since = min((old.since for old in self._old.values()), default=None)
        return None if since is None else max(0.0, self._clock() - since)

    def sizes(self) -> dict[str, int]:
        """Return how many old parts there are and how many bytes they have, the same of those in tags, and the leases held.

        Of those that only the feed keeps, `feed_parts` and `feed_bytes` say the same, and of those that it keeps for consumers
        alone, `consumer_parts` and `consumer_bytes`; they are left out when the disk refuses.
        """
        with self._lock:
            self._expire()
            sizes = {part: old.bytes or 0 for part, old in self._old.items()}
            leases, tagged = len(self._leases), self.tags.parts.intersection(self._old)
        found = {
            "old_parts": len(sizes),
            "old_bytes": sum(sizes.values()),
            "tagged_parts": len(tagged),
            "tagged_bytes": sum(sizes[part] for part in tagged),
            "leases": leases,
        }
        untagged = [part for part in sizes if part not in tagged]
        try:
            # Outside of the lock: the journal may have to be read first.
            unneeded = self.feed.unneeded(untagged)
            consumed = self.kept_for(self.consumers, unneeded)
        except OSError:
            return found
        fed = set(untagged).difference(unneeded)
        found |= {"feed_parts": len(fed), "feed_bytes": sum(sizes[part] for part in fed)}
        return found | {"consumer_parts": len(consumed), "consumer_bytes": sum(sizes[part] for part in consumed)}
