"""Old parts: parts that have left the table, and that readers may still need.

A part that left the table stays on disk for its lifetime, for as long as a client has a *lease* on a snapshot with it, and for
as long as a tag names it (`replitree.protocol.upkeep.tags`), the change feed needs it (`replitree.replica.kit.feed_journal`),
or a consumer of the feed has not read it (`replitree.protocol.upkeep.consumers`).
An empty file ``retired/<part>`` marks it, so that a process that starts again knows it, and since when it is old: the mark's
time.  Small ones that stay for long are packed (`replitree.replica.kit.packed_parts`): then the pack says that they are old.

A lease is memory only: after a restart every lease is lost, and its holder hears so at the next renewal.  Until then the
lifetime protects it.  What may be removed is chosen and removed in two steps, with a look at the tags and consumers in between.
Whatever gets a lease meanwhile is not chosen any more: so no lease is given on a part that goes.  A reader of old parts takes
its lease first, and then has packed ones unpacked (`unpack`): what has a lease is not packed again.  A *hold* on the feed,
while a consumer is made, is of an index instead of parts, and from then on nothing is chosen any more.

Absent on purpose: which parts are old (the fold knows; `replitree.replica.perform.progress` hears it).
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple, Protocol

from replitree import private
from replitree.errors import CorruptPart, LeaseLost, Unavailable
from replitree.protocol.core.effects import LogIndex
from replitree.protocol.core.parts import parse_part
from replitree.protocol.upkeep.consumers import NO_CONSUMERS, NO_FLOOR, Consumers, ConsumerValue
from replitree.protocol.upkeep.tags import NO_TAGS, Tags
from replitree.replica.kit.packed_parts import Needs, Pack, PackedParts
from replitree.storage.disk.packs import PackedPart
from replitree.storage.disk.store import PartStore

LEASES_MAX = 1000
LEASE_S_MAX = 3600.0
REMOVE_AT_ONCE = 256
"""Parts removed in one go."""

SIZES_AT_ONCE = 1_000
"""Parts whose sizes are read in one round of maintenance."""

PACK_PARTS_MIN, PACK_PARTS_MAX = 100, 1_000
"""Parts of a pack; so many at least are worth one."""

PACK_BYTES_MAX, PACKED_BYTES_MAX = 64 << 20, 1 << 20
"""Bytes of a pack, which bounds what is written when a part leaves it, and of a part that is packed."""

PACKS_AT_ONCE = 2
"""Packs that one round of maintenance writes."""

LOOK_S, LOOKS_AT_ONCE = 600.0, 256
"""How often each pack is looked at as a whole, in seconds, and how many packs one round looks at."""

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


class _Holders(NamedTuple):
    """The parts that leases and tags keep, and from which index on the feed is held."""

    parts: frozenset[str]
    floor: LogIndex


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
            times = {mark.name: mark.stat().st_mtime for mark in marks}
        self.packed = PackedParts(store, self._marks)
        """The parts that are packed, and their copies in folders."""
        copies, there = self.packed.settle(times.keys()), frozenset(store.parts())
        for name in sorted(times.keys() - copies - there):
            # Of a removal that was cut short between the folder and its mark.
            (self._marks / name).unlink(missing_ok=True)
        # Ascending by their times, as `retire` adds them.
        self._old = {
            name: _Old(times[name])
            for name in sorted(times.keys() & there - copies, key=lambda name: (times[name], name))
        }
        self._unpackable = set[str]()
        """Parts that were not whole, or whose rows are objects."""
        self._chosen: frozenset[str] = frozenset()
        self._may_forget = False
        self.feed: FeedNeeds = _NoFeed()
        """What the change feed needs."""
        self.tags = NO_TAGS
        self.consumers: Consumers = NO_CONSUMERS
        self.may_be_consumed = True
        """Whether a consumer may hold the feed although it is off: one does, or they are to be read again first."""
        self._unread = list(self._old)
        """Parts whose bytes are not known yet: after a start there may be as many as the table has parts."""

    @property
    def tags(self) -> Tags:
        """The tags of the table, as they were read last."""
        return self._tags

    @tags.setter
    def tags(self, tags: Tags) -> None:
        # Their parts may be as many as the table's: they are put together once.
        self._tags, self._tagged = tags, tags.parts

    @property
    def consumers(self) -> Consumers:
        """The consumers of the change feed, as they were read last."""
        return self._consumers

    @consumers.setter
    def consumers(self, consumers: Consumers) -> None:
        self._consumers, self.may_be_consumed = consumers, bool(consumers.holding)

    def retire(self, parts: Iterable[str]) -> None:
        """Mark parts that left the table; those that are not on disk, and those that are marked, are left out."""
        with self._lock:
            for part in parts:
                if part not in self._old and self._store.part_path(part).is_dir():
                    private.touch(self._marks / part)
                    if not self.packed.retire(part):
                        self._old[part] = _Old(self._clock(), self._bytes(part))

    def revive(self, parts: Iterable[str]) -> None:
        """Take marks away: the table has these parts.  Those that are packed get folders again."""
        parts = tuple(parts)
        with self._lock:
            self._chosen -= frozenset(parts)
            for part in parts:
                if self._old.pop(part, None) is not None:
                    (self._marks / part).unlink(missing_ok=True)
        self.packed.revive(parts)

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
        """Whether a part has left the table and is still on disk, in a folder or in a pack."""
        return part in self._old or self.packed.pack_of(part) is not None

    @property
    def kept_s(self) -> float:
        """For how many seconds a part stays after it has left the table."""
        keep_s = self._keep_s()
        return self._lifetime_s if keep_s is None else keep_s

    def choose_due(self) -> tuple[str, ...]:
        """Choose the old parts whose time is over and on which no client has a lease, and return them.

        Of the packed ones, those of some packs: one after the other, and first where what kept a part of it is over.
        """
        with self._lock:
            before, leased = self._clock() - self.kept_s, self._leased()
            over = [part for part, old in self._old.items() if old.since <= before and part not in leased]
        over += [part for pack in self._look(before) for part in self.packed.names_of(pack) if part not in leased]
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
            leased = self._leased()
            due = tuple(part for part in free if part not in leased and part not in held)
            self._chosen, self._may_forget = frozenset(due), True
        return due

    def _look(self, before: float) -> list[Pack]:
        """Find out what keeps the parts of packs; return the packs that were looked at and are old since a time or longer."""
        packs, now, holders = self.packed.packs, time.monotonic(), self._holders()
        kept = self._kept([pack.kept_by for pack in packs if pack.kept_by], holders)
        looked = [
            pack
            for pack in packs
            if pack.looked_at + LOOK_S <= now or (pack.since <= before and pack.kept_by not in kept)
        ]
        for pack in looked[:LOOKS_AT_ONCE]:
            names = self.packed.names_of(pack)
            pack.needs = self._needs(names)
            kept, held = self._kept(names, holders), self._held(names, holders)
            # What the feed alone keeps tells first when the feed is turned off.
            pack.kept_by = next((part for part in names if part in kept and part not in held), "")
            pack.kept_by = pack.kept_by or next((part for part in names if part in kept), "")
            # Until what nothing keeps has left the pack, each round looks at it.
            pack.looked_at = now if len(kept) == len(names) or pack.since > before else float("-inf")
        return [pack for pack in looked[:LOOKS_AT_ONCE] if pack.since <= before]

    def _holders(self) -> _Holders:
        with self._lock:
            return _Holders(self._tagged | self._leased(), self._held_from())

    def _kept(self, parts: Collection[str], holders: _Holders) -> frozenset[str]:
        """Return those of some parts that something keeps, as far as is known here."""
        unneeded = frozenset(self.feed.unneeded(tuple(parts)))
        return self._held(parts, holders).union(part for part in parts if part not in unneeded)

    def _held(self, parts: Collection[str], holders: _Holders) -> frozenset[str]:
        """Return those of some parts that a lease, a tag, a consumer or a hold keeps, whether or not the feed does."""
        names = tuple(parts)
        held = self.kept_for(self.consumers, names).union(holders.parts.intersection(names))
        return held if holders.floor >= NO_FLOOR else held | self.feed.needed_from(names, holders.floor)

    def _leased(self) -> frozenset[str]:
        """Return the parts with a lease, under the lock."""
        self._expire()
        return frozenset[str]().union(*(lease.parts for lease in self._leases.values()))

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
            kept = tags.parts | self.kept_for(consumers, parts)
            free = [part for part in parts if part not in kept]
            planned = self.packed.plan(
                (part for part in free if part not in self._old),
                lambda rest: len(self.feed.unneeded(rest)) < len(rest),
            )
            with self._lock:
                if tags != self.tags:
                    self.packed.look_again()
                self.tags, self.consumers = tags, consumers
                due = [part for part in free if part in self._old and part in self._chosen][:REMOVE_AT_ONCE]
                # A part that has got a lease meanwhile stays, and with it its pack until the next choice.
                leaving = [each for each in planned if self._chosen.issuperset(each.parts)]
                self._chosen, may_forget = frozenset(), self._may_forget
                for part in due:
                    del self._old[part]
                self.packed.forget(leaving)
                floor = min(consumers.floor, self._held_from())
            if may_forget:
                forget(floor)
        if due:
            self._store.remove_parts(due)
            for part in due:
                (self._marks / part).unlink(missing_ok=True)
        self.packed.remove(leaving)
        return len(due) + sum(len(each.parts) for each in leaving)

    def kept_for(self, consumers: Consumers, parts: Sequence[str]) -> frozenset[str]:
        """Return those of some parts that consumers keep.  Raises OSError when the disk refuses."""
        needed = self.feed.needed_from(parts, consumers.floor) if parts and consumers.floor < NO_FLOOR else ()
        return consumers.parts.intersection(parts).union(needed)

    def _bytes(self, part: str) -> int:
        try:
            return self._store.manifest(part).bytes
        except CorruptPart:
            return 0

    # --- packs ---

    def pack(self, after_s: float) -> int:
        """Pack small old parts that something keeps, in the order of their blocks; return how many.

        A pack is written when it is full, or when its parts have waited twice as long as they have to.

        Parameters
        ----------
        after_s
            How long a part is old before it is packed, in seconds.

        Raises
        ------
        OSError
            The disk refuses.
        """
        now, packed = self._clock(), 0
        with self._lock:
            leased = self._leased()
            aged = takewhile(lambda each: each[1].since <= now - after_s, self._old.items())
            small = {
                part: old
                for part, old in aged
                if part not in leased and part not in self._unpackable and 0 < (old.bytes or 0) <= PACKED_BYTES_MAX
            }
        if len(small) < PACK_PARTS_MIN:
            return 0
        kept = self._kept(small, self._holders())
        due = sorted((parse_part(part).block_min, part) for part, old in small.items() if part in kept)
        for run in list(_runs([PackedPart(part, small[part].bytes or 0) for _, part in due]))[:PACKS_AT_ONCE]:
            since = [small[part.name].since for part in run]
            is_full = len(run) == PACK_PARTS_MAX or sum(part.bytes for part in run) > PACK_BYTES_MAX - PACKED_BYTES_MAX
            if not (is_full or (len(run) >= PACK_PARTS_MIN and min(since) <= now - 2 * after_s)):
                continue
            whole = [part for part in run if self._store.packs.can_pack(part.name)]
            self._unpackable.update({part.name for part in run}.difference(part.name for part in whole))
            if len(whole) == len(run):
                self.packed.pack(whole, max(since), self._needs(dict(whole)), self._take)
                packed += len(whole)
        return packed

    def _take(self, parts: Sequence[str]) -> Collection[str]:
        """Take parts out of those that have folders of their own: they are packed.  Return those that were among them."""
        with self._lock:
            return [part for part in parts if self._old.pop(part, None) is not None]

    def lies_packed(self, part: str) -> bool:
        """Whether a part has to be unpacked for a reader."""
        return self.packed.pack_of(part) is not None and not self.packed.is_copied(part)

    def unpack(self, parts: Iterable[str]) -> None:
        """Give those of some parts that are packed folders again; the caller has a lease on them, or reads them at once.

        The caller checks afterwards that the parts are old still (`is_old`): what can't be unpacked is not.

        Raises
        ------
        StoreError
            The disk refuses.
        """
        self.packed.unpack(parts)

    def remove_copies(self) -> int:
        """Remove the folders of packed parts that no reader needs any more; return how many.  Raises `StoreError`."""

        def leased() -> Collection[str]:
            with self._lock:
                return self._leased()

        return self.packed.remove_copies(leased)

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
            before, tagged = self._clock() - self.kept_s, self._tagged
            sizes = {part: old.bytes or 0 for part, old in self._old.items() if old.since <= before}
        for pack in self.packed.packs:
            # Elsewhere, no part is kept for consumers alone.
            sizes |= self.packed.names_of(pack) if pack.needs.consumed and pack.since <= before else {}
        over = self.feed.unneeded([part for part in sizes if part not in tagged])
        needed = frozenset(self.feed.needed_from(over, LogIndex(consumer.index))).union(consumer.parts)
        return sum(sizes[part] for part in over if part in needed)

    # --- looking ---

    def names(self) -> frozenset[str]:
        """Return the names of the old parts that have folders of their own: those that are packed are left out."""
        with self._lock:
            return frozenset(self._old)

    def oldest_s(self) -> float | None:
        """Return for how many seconds the oldest of them has been old; None when there is none."""
        with self._lock:
            loose = [old.since for old in self._old.values()]
        since = min((*loose, *(pack.since for pack in self.packed.packs)), default=None)
        return None if since is None else max(0.0, self._clock() - since)

    def sizes(self) -> dict[str, int]:
        """Return how many old parts there are and how many bytes they have, the same of those in tags, and the leases held.

        Of those that only the feed keeps, `feed_parts` and `feed_bytes` say the same, and of those that it keeps for consumers
        alone, `consumer_parts` and `consumer_bytes`; they are left out when the disk refuses.  `packed_parts` and `packs` say
        how many of all are packed, and in how many files; of them the rest is as it was at the last look (`LOOK_S`).
        """
        with self._lock:
            self._expire()
            sizes, leases = {part: old.bytes or 0 for part, old in self._old.items()}, len(self._leases)
        packs, (packed, packed_bytes) = self.packed.packs, self.packed.count()
        found = {
            "old_parts": len(sizes) + packed,
            "old_bytes": sum(sizes.values()) + packed_bytes,
            "leases": leases,
            "packed_parts": packed,
            "packs": len(packs),
        }
        try:
            # Outside of the lock: the journal may have to be read first.
            each = [self._needs(sizes), *(pack.needs for pack in packs)]
        except OSError:
            tagged = self._tagged.intersection(sizes)
            return found | {"tagged_parts": len(tagged), "tagged_bytes": sum(sizes[part] for part in tagged)}
        return found | {
            "tagged_parts": sum(needs.tagged for needs in each),
            "tagged_bytes": sum(needs.tagged_bytes for needs in each),
            "feed_parts": sum(needs.fed for needs in each),
            "feed_bytes": sum(needs.fed_bytes for needs in each),
            "consumer_parts": sum(needs.consumed for needs in each),
            "consumer_bytes": sum(needs.consumed_bytes for needs in each),
        }

    def _needs(self, sizes: Mapping[str, int]) -> Needs:
        """Return what keeps some parts, each given with its bytes.  Raises OSError when the disk refuses."""
        tagged = self._tagged.intersection(sizes)
        untagged = [part for part in sizes if part not in tagged]
        unneeded = self.feed.unneeded(untagged)
        consumed = self.kept_for(self.consumers, unneeded)
        fed = set(untagged).difference(unneeded)
        return Needs(
            len(tagged),
            sum(sizes[part] for part in tagged),
            len(fed),
            sum(sizes[part] for part in fed),
            len(consumed),
            sum(sizes[part] for part in consumed),
        )


def _runs(parts: Sequence[PackedPart]) -> Iterator[list[PackedPart]]:
    """Cut parts into what fits into a pack."""
    run, size = list[PackedPart](), 0
    for part in parts:
        if len(run) == PACK_PARTS_MAX or size + part.bytes > PACK_BYTES_MAX:
            yield run
            run, size = [], 0
        run.append(part)
        size += part.bytes
    yield run
