"""Feeds: what a range of the log feeds, and that the parts which have its rows stay while a client reads them.

Guarantee F5: what can't be given whole is an error, never fewer rows.

======================================  ======================================================================================
what is wrong                            error
======================================  ======================================================================================
the table keeps no feed                  `FeedOff`
entries or parts are not here any more   `OffsetExpired`, with the first index from which this replica has all
a part is still to come from its writer  `ReplicaUnavailable`: ask again, or another replica
rows of an entry were lost               `FeedGap`, with the entry
a part is broken here                    `ReplicaUnavailable`: ask another replica
======================================  ======================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace

from replitree.errors import BadInput, ReplicaUnavailable
from replitree.protocol.core.effects import LogIndex
from replitree.protocol.core.stamps import BEFORE_ALL, Zxid
from replitree.protocol.sharded.places import is_shard_name
from replitree.replica.kit.feed_journal import FedEntry
from replitree.replica.perform.context import LocalParts
from replitree.wire.feed_errors import FeedGap, FeedOff, OffsetExpired

FEED_PARTS_MAX = 4_096
"""Parts of one answer, but for those of a single entry, which is never split."""

FEED_UNPACKED_MAX = 1_000
"""Parts that are unpacked for one answer, as above: the reader waits for them, about a millisecond or more for each."""


@dataclass(frozen=True, slots=True)
class TakenFeed:
    """The entries from `start` up to `reached` that feed anything, of those up to `end`; `lease` keeps `parts`, their rows."""

    start: LogIndex
    reached: LogIndex
    end: LogIndex
    entries: tuple[FedEntry, ...]
    parts: tuple[str, ...]
    lease: str | None


class Feeds:
    """Takes ranges of the feed of one table replica.  Any thread may use it.

    Parameters
    ----------
    name
        The replica's.
    parts
        Where the rows are.
    feed
        The table's `feed`: for how long it is kept, "" when it is off.
    why_unreadable
        Returns why what is here is no state of the table, or None.
    is_held
        Returns whether a consumer holds the feed; it may ask coordination.
    """

    def __init__(
        self,
        name: str,
        parts: LocalParts,
        feed: str,
        why_unreadable: Callable[[], str | None],
        is_held: Callable[[], bool] = lambda: False,
    ) -> None:
        self._name, self._feed, self._why_unreadable, self._is_held = name, feed, why_unreadable, is_held
        self._progress, self._old_parts, self._journal = parts.progress, parts.old_parts, parts.versions.journal
        self._is_shard = is_shard_name(parts.progress.replica.table.name)

    @property
    def end(self) -> LogIndex | None:
        """The first index that this replica can't give yet: everything below is executed; None while that is not known."""
        executed = self._progress.executed_end
        return None if executed is None else min(executed, self._journal.end)

    def earliest(self) -> LogIndex:
        """Return the first index from which this replica has all entries and all parts.  Raises as `take`."""
        self.check()
        found = self._journal.first
        for entry in self._journal.entries(found, self._journal.end):
            if self._is_unstamped(entry) or self._lacking(entry) is not None:
                found = entry.next
        return found

    def earliest_cut(self) -> Zxid | None:
        """Return the first transaction of a shard from which on this replica has all; None: from now on.  Raises as `take`."""
        self.check()
        first = self._journal.first
        found = BEFORE_ALL if first == 0 else None
        for entry in self._journal.entries(first, self._journal.end):
            if self._is_unstamped(entry):
                found = None
            elif found is None or self._lacking(entry) is not None:
                # The position of this transaction is behind the entry.
                found = entry.zxid
        return found

    def position(self, zxid: Zxid, below: LogIndex) -> LogIndex:
        """Return where a cut lies in a shard's log that the log itself does not tell any more.

        Parameters
        ----------
        zxid
            The transaction of the cut.
        below
            Every entry that is in the cut is below this index.

        Raises
        ------
        OffsetExpired, ReplicaUnavailable
            As `take`.
        """
        self._journal.read()
        if self._journal.end < below:
            raise self._unwritten()
        found = self._journal.position(zxid)
        if found is None:
            raise OffsetExpired(
                f"replica {self._name} can't tell any more where transaction {zxid} lies in the log of the shard: start later"
            )
        return found

    def transaction(self, index: LogIndex) -> Zxid:
        """Return the transaction that has appended an entry of a shard.

        Raises
        ------
        OffsetExpired, ReplicaUnavailable
            As `take`.
        """
        self._journal.read()
        if self._journal.end <= index:
            raise self._unwritten()
        found = next(self._journal.entries(index, self._journal.end), None) if index >= self._journal.first else None
        if found is None or found.index != index or found.zxid == BEFORE_ALL:
            raise OffsetExpired(
                f"replica {self._name} can't tell any more which transaction has appended entry {index}"
            )
        return found.zxid

    def take(self, start: LogIndex, end: LogIndex | None, lease_s: float) -> TakenFeed:
        """Take a range.

        Parameters
        ----------
        start, end
            From the entry at `start` up to the one at `end`, not included, which is not above `end` here; None: up to there.
            With many parts, less is given: whole entries, at least one.
        lease_s
            Seconds for which the parts are kept.

        Raises
        ------
        FeedOff, OffsetExpired, FeedGap, ReplicaUnavailable
            See the module's table.
        BadInput
            The start is above the end of the log.
        """
        self.check()
        here = self.end
        if here is None:
            raise ReplicaUnavailable(f"replica {self._name} is about to read its state again; try again")
        executed = self._progress.executed_end
        if executed is not None and here < start <= executed:
            raise self._unwritten()
        end = here if end is None else min(end, here)
        if start > end:
            raise BadInput(
                f"the feed is asked for from {start}, and the log ends at {end} on replica {self._name}: an index above the end"
                " is of another table, or of a log that was restored"
            )
        if start < self._journal.first:
            raise self._expired(
                start, f"replica {self._name} does not know what the entries before {self._journal.first} changed"
            )
        entries, names, gap = list[FedEntry](), dict[str, None](), None
        reached, packed = start, 0
        for entry in self._journal.entries(start, end):
            if self._is_unstamped(entry):
                raise self._expired(
                    start, f"replica {self._name} does not know which transaction has appended entry {entry.index}"
                )
            wanted = [part.name for unit in entry.feed.units for part in unit.parts]
            packed += sum(map(self._old_parts.lies_packed, wanted))
            if entries and (len(names) + len(wanted) > FEED_PARTS_MAX or packed > FEED_UNPACKED_MAX):
                break
            if entry.feed.gap is not None:
                gap = entry.index, entry.feed.gap
                break
            if wanted or entry.feed.schema_version:
                entries.append(entry)
                names |= dict.fromkeys(wanted)
            reached = entry.next
        else:
            reached = end
        # The lowest index that is damaged: up to there the feed can be read.
        gap = self._journal.lost_after(start, entries) or gap
        if gap is not None:
            at, part = gap[0], gap[1].name
            raise FeedGap(
                f"the feed has a gap at {at}: part {part} was lost, and no replica can list its rows. Read up to {at}, and then"
                f" from {at + 1} on, or from a new snapshot",
                at,
            )
        lease = self._old_parts.lease(names, lease_s) if lease_s and names else None
        with ExitStack() as leased:
            if lease is not None:
                leased.callback(self._old_parts.release, lease)
            self._old_parts.unpack(names)
            self._check_parts(start, entries)
            leased.pop_all()
        return TakenFeed(start, reached, end, tuple(entries), tuple(names), lease)

    def take_some(self, start: LogIndex, end: LogIndex | None, lease_s: float) -> TakenFeed:
        """Take a range, or the entries of it before the first one whose parts are not here: another replica may have those.

        After inserts at several replicas and a drop no replica has all parts until it has fetched those of the others.  All
        else as `take`.
        """
        try:
            return self.take(start, end, lease_s)
        except (OffsetExpired, ReplicaUnavailable):
            here = self.end
            known = () if start < self._journal.first else self._journal.entries(start, self._journal.end)
            there = next((each.index for each in known if self._lacking(each) is not None), start)
            if here is None or there <= start:
                raise
        # The reader asks for the rest of the range next.
        return replace(self.take(start, there, lease_s), end=here if end is None else min(end, here))

    def check(self) -> None:
        """Raise what `take` would raise whatever the range: `ReplicaUnavailable`, `FeedOff`."""
        unreadable = self._why_unreadable()
        if unreadable is not None:
            raise ReplicaUnavailable(f"{unreadable}; ask another replica")
        # What a consumer holds is there also when the feed was turned off since.
        if not self._feed and not self._is_held():
            raise FeedOff(
                "the table keeps no change feed: turn it on with `replitree table feed` or table.set_feed('24h'), for what"
                " comes from then on"
            )
        self._journal.read()

    def check_from(self, start: LogIndex) -> None:
        """Check that everything from an index on is here, or is still to come.  Raises as `take`."""
        self.check()
        here = self.end
        if here is None:
            raise ReplicaUnavailable(f"replica {self._name} is about to read its state again; try again")
        if start < self._journal.first:
            raise self._expired(
                start, f"replica {self._name} does not know what the entries before {self._journal.first} changed"
            )
        if self._journal.end < self._progress.pointer:
            # These entries may be gone from the log before they are written down: then a consumer would never get them.
            raise self._unwritten()
        # Of later entries the parts may still be on their way.
        executed = max(start, here)
        self._check_parts(start, self._journal.entries(start, executed))
        # An old one may be executed in part, and what it took out be gone.
        for entry in self._journal.entries(executed, max(executed, self._journal.end)):
            if self._journal.is_over(entry):
                raise ReplicaUnavailable(
                    f"replica {self._name} has not executed entry {entry.index} yet, which is older than the feed's time; try"
                    " again, or ask another replica"
                )

    def _unwritten(self) -> ReplicaUnavailable:
        # After a pull whose process died, or while the disk refuses.
        return ReplicaUnavailable(
            f"replica {self._name} has not written down yet what the entries from {max(self._journal.end, 0)} on changed; try"
            " again, or ask another replica"
        )

    def _check_parts(self, start: LogIndex, entries: Iterable[FedEntry]) -> None:
        """Check that all parts are here and whole; the lease, if there is one, was given before."""
        broken = frozenset(self._progress.hidden())
        for entry in entries:
            lacking = self._lacking(entry)
            if lacking is not None and self._is_on_its_way(lacking):
                raise ReplicaUnavailable(
                    f"replica {self._name} has not fetched part {lacking} yet, which entry {entry.index} needs; try again, or"
                    " ask another replica"
                )
            if lacking is not None:
                raise self._expired(
                    start, f"replica {self._name} has no part {lacking} any more, which entry {entry.index} needs"
                )
            for unit in entry.feed.units:
                name = next((part.name for part in unit.parts if part.name in broken), None)
                if name is not None:
                    raise ReplicaUnavailable(
                        f"part {name} is broken on replica {self._name} and is being made whole again; ask another replica"
                    )

    def _is_on_its_way(self, part: str) -> bool:
        """Whether another replica may still have to publish a part: its rows were taken a moment ago, and the feed keeps it."""
        return bool(self._journal.needed_recently([part])) and not self._journal.unneeded([part])

    def _is_unstamped(self, entry: FedEntry) -> bool:
        """Whether an entry of a shard has no known place among those of the other shards."""
        return self._is_shard and entry.zxid == BEFORE_ALL

    def _lacking(self, entry: FedEntry) -> str | None:
        """Return a part of an entry that is not here; None: all are."""
        held = self._progress.held
        return next(
            (
                part.name
                for unit in entry.feed.units
                for part in unit.parts
                if part not in held and not self._old_parts.is_old(part.name)
            ),
            None,
        )

    def _expired(self, start: LogIndex, why: str) -> OffsetExpired:
        earliest = self.earliest()
        return OffsetExpired(
            f"the feed is asked for from {start}, and here it starts at {earliest}, kept for"
            f" {self._feed or 'consumers'} ({why}): read table.snapshot(level='linearizable') and go on from its index, or"
            f" start at {earliest}; table.set_feed keeps it longer",
            earliest,
        )


__all__ = ["FEED_PARTS_MAX", "Feeds", "TakenFeed"]
