"""The feed's journal in memory: from which index on the feed is known here, and which parts it still needs.

The journal itself is the version log on the disk (`replitree.replica.kit.version_log`): what each entry changed, its kind and
its timestamp.  This is the part of it that is asked for all the time, taken from there at the first question, and followed from
then on.

Guarantee: every entry from `first` to `end` is known, without a gap.

Memory: about 17 bytes for each part of an insert that is needed (`replitree.replica.kit.needed_parts` has more).  Any thread
may use it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from replitree.errors import ReplicaUnavailable
from replitree.protocol.core.effects import LogIndex
from replitree.protocol.core.parts import Part, parse_part
from replitree.protocol.core.stamps import BEFORE_ALL, Zxid
from replitree.protocol.feed.definition import EntryFeed, OpenInserts, is_damaged_by
from replitree.protocol.sharded.feed import advance_shard
from replitree.protocol.upkeep.consumers import NO_FLOOR
from replitree.replica.kit.needed_parts import Need, NeededParts
from replitree.replica.kit.version_log import NotedEntry, Segment, VersionLog

_NO_OPENS, _NOWHERE = OpenInserts(), LogIndex(-1)

RECENT_S = 10.0
"""For so many seconds what an entry needs may still be on its way from another replica."""

TRIM_S = 60.0
"""How often what is needed no more is forgotten, in seconds."""


@dataclass(frozen=True, slots=True)
class FedEntry:
    """An entry, its timestamp in microseconds since 1970, what it feeds, and its transaction as of `EntryChange`."""

    index: LogIndex
    next: LogIndex
    timestamp_us: int
    feed: EntryFeed
    zxid: Zxid = BEFORE_ALL


@dataclass(slots=True)
class _Known:
    """What entries without a gap say, from `first` up to `end`.

    `needed` may lack parts of entries up to `forgotten`.  `losses` has the lost parts.
    """

    first: LogIndex = _NOWHERE
    end: LogIndex = _NOWHERE
    opens: OpenInserts = _NO_OPENS
    needed: NeededParts = field(default_factory=NeededParts)
    forgotten: LogIndex = _NOWHERE
    losses: list[tuple[LogIndex, Part]] = field(default_factory=list)

    def follow(self, segments: Iterable[Segment]) -> None:
        """Take in what segments say, ascending, which begin at `end` or before."""
        for segment in segments:
            if not segment.index <= self.end <= segment.end:
                # The entries in between are not known.
                self._begin(segment.index, segment.opens)
            for noted in segment.entries:
                if noted.index >= self.end:
                    self.take(noted)

    def _begin(self, index: LogIndex, opens: OpenInserts) -> None:
        self.first = self.end = index
        self.opens, self.needed, self.losses = opens, NeededParts(), []

    def take(self, noted: NotedEntry) -> None:
        """Take in the entry at `end`."""
        step = noted.changed.step
        if not noted.changed.is_told:
            # Written by an older version, or its time is not known: the feed begins after it.
            self._begin(noted.changed.next, self.opens.after(step))
            return
        self.opens, feed = advance_shard(self.opens, step, of_move=noted.changed.of_move)
        for unit in feed.units:
            for part in unit.parts:
                self.needed.add(part, (noted.timestamp_us, noted.index))
        if step.lost and not step.change.is_empty:
            self.losses.append((noted.index, parse_part(step.lost)))
        self.end = noted.changed.next


class FeedJournal:
    """What the version log of one table says of its feed.

    Parameters
    ----------
    log
        The version log.
    feed_s
        Returns for how many seconds the feed is kept; None: it is off.
    clock
        Seconds since the epoch.
    """

    def __init__(
        self, log: VersionLog, feed_s: Callable[[], float | None], clock: Callable[[], float] = time.time
    ) -> None:
        self._log, self._feed_s, self._clock = log, feed_s, clock
        # The version log may be long: a thread that appends to it does not wait until it is read.
        self._reading, self._lock = threading.Lock(), threading.Lock()
        self._is_read, self._changes, self._trimmed_at = False, 0, 0.0
        self._known = _Known()

    @property
    def first(self) -> LogIndex:
        """The first index from which on every entry is known; `read` comes first."""
        return self._known.first

    @property
    def end(self) -> LogIndex:
        """The index that follows the last entry that is known; `read` comes first."""
        return self._known.end

    def forget(self) -> None:
        """Read the version log again at the next question: it was begun anew."""
        with self._lock:
            self._is_read, self._changes = False, self._changes + 1

    def appended(self, entries: Sequence[NotedEntry]) -> None:
        """Take in what was appended to the version log."""
        with self._lock:
            self._changes += 1
            for noted in entries if self._is_read else ():
                if noted.index > self.end:
                    self._is_read = False
                    return
                # What is below was read from the disk a moment ago.
                if noted.index == self.end:
                    self._known.take(noted)

    def removed_before(self, first: LogIndex) -> None:
        """Take note that the version log begins here now."""
        with self._lock:
            self._known.first = max(self._known.first, first)

    def read(self) -> None:
        """Read the version log, if that has not been done.  Raises OSError when the disk refuses."""
        with self._reading:
            if self._is_read:
                return
            known = _Known()
            while True:
                changes = self._changes
                known.follow(self._log.segments(known.end))
                with self._lock:
                    # Otherwise more was appended meanwhile: it is read, too.
                    if self._changes == changes:
                        self._known, self._is_read = known, True
                        return

    def _read_from(self, index: LogIndex) -> None:
        """Read the version log, if that has not been done, or if what entries at or above an index need was forgotten."""
        # A consumer may begin before the feed's time, at parts that stay for other reasons: it holds them from then on.
        if index <= self._known.forgotten:
            self.forget()
        self.read()

    def is_long(self) -> bool:
        """Return whether `trim` has something to forget, which it has not done for a while."""
        kept_s, now = self._feed_s(), self._clock()
        if not self._is_read or now < self._trimmed_at + TRIM_S:
            return False
        with self._lock:
            return self._known.needed.has_before(1_000_000 * (now - (kept_s or 0.0)))

    def trim(self, floor: LogIndex) -> None:
        """Forget what is needed no more: neither for the feed's time, nor from an index on, which consumers hold."""
        kept_s, now = self._feed_s() or 0.0, self._clock()
        self._trimmed_at = now
        since_us = 1_000_000 * (now - kept_s)
        with self._lock:
            last = self._known.needed.forget(lambda need: need[0] < since_us and need[1] < floor)
            self._known.forgotten = max(self._known.forgotten, last)

    def is_over(self, entry: FedEntry) -> bool:
        """Return whether the feed does not keep what an entry needs any more, unless a consumer holds it."""
        kept_s = self._feed_s()
        return kept_s is None or entry.timestamp_us < 1_000_000 * (self._clock() - kept_s)

    def needed_recently(self, parts: Sequence[str]) -> frozenset[str]:
        """Return those of some parts that a recent entry needs.  Raises OSError when the disk refuses."""
        self.read()
        since_us = 1_000_000 * (self._clock() - RECENT_S)
        with self._lock:
            needs = self._known.needed.of(parts)
        return frozenset(part for part, (last_us, _) in zip(parts, needs, strict=True) if last_us > since_us)

    def unneeded(self, parts: Sequence[str]) -> tuple[str, ...]:
        """Return those of some parts that the feed does not need.  Raises OSError when the disk refuses."""
        kept_s = self._feed_s()
        if kept_s is None or not parts:
            return tuple(parts)
        self.read()
        since_us = 1_000_000 * (self._clock() - kept_s)
        with self._lock:
            needs = self._known.needed.of(parts)
        return tuple(part for part, (last_us, _) in zip(parts, needs, strict=True) if last_us < since_us)

    def needed_from(self, parts: Sequence[str], index: LogIndex) -> frozenset[str]:
        """Return those of some parts that entries at or above an index need.  Raises OSError when the disk refuses."""
        self._read_from(index)
        with self._lock:
            needs = self._known.needed.of(parts)
        return frozenset(part for part, (_, last) in zip(parts, needs, strict=True) if last >= index)

    def needed(self, floor: LogIndex = NO_FLOOR) -> Iterator[str]:
        """Give the parts that the feed needs, and those of entries at or above an index, about the newest first.

        What comes meanwhile may be left out, and what was needed before is given once or twice.  Raises as `unneeded`.
        """
        kept_s = self._feed_s()
        if kept_s is None and floor >= NO_FLOOR:
            return
        self._read_from(floor)
        since_us = 0 if kept_s is None else 1_000_000 * (self._clock() - kept_s)

        def is_needed(need: Need) -> bool:
            return need[1] >= floor or (kept_s is not None and need[0] >= since_us)

        with self._lock:
            known = self._known.needed
            named, chunks = known.named(), known.chunks()
        yield from (part for part, need in named if is_needed(need))
        # One after the other: there may be millions of rows.
        for chunk in chunks:
            with self._lock:
                some = [part for part, need in known.rows(chunk) if is_needed(need)]
            yield from some

    def entries(self, start: LogIndex, end: LogIndex) -> Iterator[FedEntry]:
        """Give the entries from an index up to another, both of them from `first` to `end`.

        Raises
        ------
        ReplicaUnavailable
            The version log has lost entries of the range meanwhile.
        OSError
            The disk refuses.
        """
        # Where the next entry must stand: of entries that are missing nothing may be given.
        at: LogIndex | None = None
        for segment in self._log.segments(start):
            opens = segment.opens
            if at is None and segment.index > start:
                break
            at = segment.index if at is None else at
            for noted in segment.entries:
                if at >= end:
                    return
                if noted.index != at or (noted.index >= start and not noted.changed.is_told):
                    raise _gone(start, end)
                step, at = noted.changed.step, noted.changed.next
                if noted.index < start:
                    # Only what is open matters.
                    opens = opens.after(step)
                    continue
                opens, feed = advance_shard(opens, step, of_move=noted.changed.of_move)
                yield FedEntry(noted.index, at, noted.timestamp_us, feed, noted.changed.zxid)
        if start < end and (at is None or at < end):
            raise _gone(start, end)

    def position(self, zxid: Zxid) -> LogIndex | None:
        """Return the index of the first entry of a shard whose transaction is above one; None: that is not known here.

        It is known where the entry before it is not above, or there is none.  The caller knows that no entry of a transaction
        up to there comes after those that are known here.

        Raises
        ------
        ReplicaUnavailable, OSError
            As `entries`.
        """
        self.read()
        first, end = self.first, self.end
        is_bounded = first == 0
        for entry in self.entries(first, end) if first < end else ():
            if entry.zxid > zxid:
                return entry.index if is_bounded else None
            is_bounded = entry.zxid != BEFORE_ALL
        return end if is_bounded else None

    def lost_after(self, index: LogIndex, entries: Iterable[FedEntry]) -> tuple[LogIndex, Part] | None:
        """Return the first of these entries of which a later loss has damaged a part, and the part; None: there is none.

        Parameters
        ----------
        index
            Losses before it are not looked at.
        """
        with self._lock:
            losses = [loss for loss in self._known.losses if loss[0] > index]
        for entry in entries if losses else ():
            for unit in entry.feed.units:
                for at, lost in losses:
                    if at > entry.index and is_damaged_by(unit, lost):
                        return entry.index, lost
        return None


def _gone(start: int, end: int) -> ReplicaUnavailable:
    return ReplicaUnavailable(
        f"the version log of this replica does not have all entries from {start} up to {end} any more; try again, or ask"
        " another replica"
    )


__all__ = ["FedEntry", "FeedJournal"]
