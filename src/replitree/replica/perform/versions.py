"""Earlier versions of a table, across restarts: the version log follows the pulls, and catches up from the table's log.

Guarantees: a version that is known is the fold of the log below its index.  Whatever happens to the version log, the replica
goes on: then some earlier versions are unknown here.

===============================  ===============================================================================================
the version log ends             what is done
===============================  ===============================================================================================
where the replica stands         what is pulled is appended
before that                      the entries in between are read from the table's log and folded
before that, and one is gone     the versions in between stay unknown; a segment begins where the replica stands
after that                       a recovery set the pointer back: nothing is written before the replica is there again
===============================  ===============================================================================================

The time of an entry is that of its node in coordination, never this machine's: a pull reads the node, and so does the catching
up.  When the cleaner was faster, the times of the entries that it has removed stay unknown here, and with them what the table
was at any time before the gap ends.  Later entries do not bound them: coordination's clock may go back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from replitree.errors import CoordinationUnavailable, ReplitreeError
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.effects import LogIndex
from replitree.protocol.core.entries import Entry, StorageEntry, decode_entry
from replitree.protocol.core.fold import Change, apply, open_after
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.core.log import SEARCH_WINDOW, next_index
from replitree.protocol.core.stamps import BEFORE_ALL, Zxid
from replitree.protocol.feed.definition import step_of
from replitree.protocol.sharded.feed import is_of_move, read_transactions
from replitree.protocol.sharded.places import is_shard_name
from replitree.protocol.state.pull import Place, Queued
from replitree.replica.kit.feed_journal import FeedJournal
from replitree.replica.kit.logs import Log
from replitree.replica.kit.old_parts import OldParts
from replitree.replica.kit.version_log import FOLDER, SEGMENT_ENTRIES, EntryChange, Version, VersionLog
from replitree.replica.perform.progress import Progress
from replitree.wire.reached import Reached
from replitree.wire.remembered import Remembered, summary_of

Entries: TypeAlias = tuple[tuple[LogIndex, Entry, int], ...]
"""Entries of a log, ascending: index, entry, and when it was written, in milliseconds by coordination's clock."""


class Versions:
    """The earlier versions of one table that this replica knows.  Any thread may use it.

    Parameters
    ----------
    progress
        Where the replica stands.
    old_parts
        Say for how long parts that have left the table stay.
    root
        The table's folder.
    look_up
        Runs a procedure that only reads coordination.
    log
        Where trouble is reported.
    feed_s
        Returns for how many seconds the change feed is kept; None: it is off.
    """

    def __init__(
        self,
        progress: Progress,
        old_parts: OldParts,
        root: Path,
        look_up: Callable[[fx.Procedure[Any]], Any],
        log: Log,
        feed_s: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._progress, self._old_parts, self._look_up, self._log = progress, old_parts, look_up, log
        self._versions = VersionLog(root / FOLDER, progress.replica.table.incarnation)
        self.journal = FeedJournal(self._versions, feed_s)
        """The change feed of these entries."""
        old_parts.feed = self.journal
        self._feed_s = feed_s
        self._lock = threading.Lock()
        self._end: LogIndex | None = None
        self._opened: tuple[LogIndex, ...] = ()
        self._is_refused = False
        self._may_feed = False
        self.has_full = True
        """Whether entries may be old enough to be forgotten: a segment has begun since `forget_old`, or this process."""

    def take_in(self, entries: Sequence[Queued], place: Place, written_ms: Mapping[LogIndex, int]) -> None:
        """Write what a pull has brought, before other threads know it.

        Parameters
        ----------
        entries, place
            What was pulled, and where the replica stands after it.
        written_ms
            When entries were written, in milliseconds since 1970 by coordination's clock.  The time of others is unknown.
        """
        with self._lock, self._reporting():
            if self._end is None and self._is_refused:
                # Maintenance tries again.
                return
            before = self._progress.place
            if self._end is None and before is not None and entries and before.pointer.index == entries[0].index:
                # A log that begins, begins before what was pulled: so a new table's feed has its first entries.
                self._catch_up(before)
            news = [item for item in entries if self._end is None or item.index >= self._end]
            if not news:
                return
            if self._end is None or news[0].index != self._end:
                self._catch_up(place)
                return
            changes = []
            zxids = self._transactions([(item.index, item.entry) for item in news])
            for item, zxid in zip(news, zxids, strict=True):
                self._opened = open_after(self._opened, item.index, item.entry)
                written = written_ms.get(item.index, 0)
                changes.append(self._noted(item.index, item.entry, item.change, self._opened, written, zxid))
            self._append(changes, place)

    def catch_up(self) -> None:
        """Write what the replica has pulled since the last version that is known; do nothing when that is all."""
        with self._progress.changed:
            place = None if self._progress.is_torn else self._progress.place
        with self._lock, self._reporting():
            if place is not None and (self._end is None or self._end < place.pointer.index):
                self._catch_up(place)

    def forget_old(self, floor: LogIndex) -> None:
        """Forget entries that are old, but for those at or above an index, which consumers of the feed hold.

        Raises OSError when the disk refuses.
        """
        self.journal.trim(floor)
        with self._lock:
            self.has_full = False
            kept_s = max(self._old_parts.kept_s, self._feed_s() or 0.0)
            self._versions.remove_old(time.time() - kept_s, floor)
            self.journal.removed_before(self._versions.first() or LogIndex(0))

    def at(self, index: LogIndex) -> Version | None:
        """Return what the table was at an index, or None when that is not known here."""
        try:
            return self._versions.at(index)
        except OSError as error:
            self._report(error)
            return None

    def first(self) -> LogIndex | None:
        """Return the lowest index whose version may be known; None: there is none."""
        try:
            return self._versions.first()
        except OSError as error:
            self._report(error)
            return None

    def written_by(self, time_ms: int, below: LogIndex) -> Reached:
        """Find the last entry below an index that was written at or before a time, as far as entries and times are known here.

        Parameters
        ----------
        time_ms
            Milliseconds since 1970 by coordination's clock.
        below
            The caller knows that every entry from there on was written later.
        """
        try:
            return self._versions.written_by(time_ms, below)
        except OSError as error:
            self._report(error)
            return Reached(below=below)

    def before(self, below: LogIndex, limit: int) -> list[Remembered]:
        """Return entries below an index, the newest first, as far as they are known here without a gap.

        Parameters
        ----------
        below
            The index that comes after the newest of them.
        limit
            Entries at most.
        """
        try:
            return self._versions.before(below, limit)
        except OSError as error:
            self._report(error)
            return []

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Report what is in the way, and go on: the end of the version log is then found anew."""
        try:
            yield
        except CoordinationUnavailable:
            self._end = None
        except (ReplitreeError, OSError) as error:
            self._end = None
            self._report(error)

    def _report(self, error: Exception) -> None:
        # Maintenance tries again every second.
        if not self._is_refused:
            self._is_refused = True
            self._log.warning("earlier versions can't be written or read", problem=str(error))

    def _catch_up(self, place: Place) -> None:
        """Open the end of the version log, and write what comes between it and where the replica stands."""
        self._end, here = None, Version(place.pointer.index, place.parts, place.open)
        last = self._versions.open_end()
        if last is not None and last.index < here.index:
            entries: Entries | None = self._look_up(
                entries_between(self._progress.replica.table, last.index, here.index)
            )
            changes = None
            if entries is not None:
                changes = self._changes(last, entries, here)
            if changes is not None:
                self._append(changes, place)
                return
            if entries is not None:
                # Not a fact of this log: a disk may have been put back from an older copy.
                self._log.warning("the version log is not of this table's log, and is begun anew", index=last.index)
                self._versions.forget()
            last = None
        if last is None:
            self._versions.begin(here)
            self.journal.forget()
        self._end, self._opened = (here.index, here.opened) if last is None else (last.index, last.opened)
        self._is_refused = False

    def _transactions(self, entries: Sequence[tuple[LogIndex, Entry]]) -> tuple[Zxid, ...]:
        """Return which transactions have appended some entries; in a table that has no feed over shards they are not read."""
        if not is_shard_name(self._progress.replica.table.name):
            return (BEFORE_ALL,) * len(entries)
        # The feed begins with the entry that turns it on, which is pulled before the new settings are read.
        self._may_feed = self._may_feed or any(isinstance(entry, StorageEntry) for _, entry in entries)
        if not (self._may_feed or self._feed_s() is not None or self._old_parts.consumers.holding):
            return (BEFORE_ALL,) * len(entries)
        found: tuple[Zxid, ...] = self._look_up(
            read_transactions(self._progress.replica.table, [index for index, _ in entries])
        )
        return found

    def _changes(self, last: Version, entries: Entries, here: Version) -> list[EntryChange] | None:
        """Return what entries changed from one version to another; None when they do not lead there."""
        parts, opened, changes = last.parts, last.opened, list[EntryChange]()
        zxids = self._transactions([(index, entry) for index, entry, _ in entries])
        for (index, entry, written_ms), zxid in zip(entries, zxids, strict=True):
            parts, change = apply(parts, index, entry, opened=opened)
            opened = open_after(opened, index, entry)
            changes.append(self._noted(index, entry, change, opened, written_ms, zxid))
        return changes if (parts, opened, changes[-1].next) == (here.parts, here.opened, here.index) else None

    def _noted(
        self,
        index: LogIndex,
        entry: Entry,
        change: Change,
        opened: tuple[LogIndex, ...],
        written_ms: int,
        zxid: Zxid,
    ) -> EntryChange:
        """Return what the version log says of an entry; `opened` are the inserts that are open after it."""
        step = step_of(entry, change, opened)
        of_feed = (step.kind, step.lost, step.schema_version)
        of_shard = (zxid, is_of_move(self._progress.replica.table, entry))
        return EntryChange(next_index(index, entry), change, opened, written_ms, *of_feed, summary_of(entry), *of_shard)

    def _append(self, changes: Sequence[EntryChange], place: Place) -> None:
        self._end = None
        noted = self._versions.append(changes)
        end, self._opened = changes[-1].next, changes[-1].opened
        if self._versions.entries >= SEGMENT_ENTRIES and end == place.pointer.index:
            self._versions.begin(Version(end, place.parts, place.open))
            self.has_full = True
        self._end, self._is_refused = end, False
        self.journal.appended(noted)


def entries_between(table: TablePlace, start: LogIndex, end: LogIndex) -> fx.Procedure[Entries | None]:
    """Read the entries of a table's log from an index up to another, not included; None when one of them is gone."""
    found, index = list[tuple[LogIndex, Entry, int]](), start
    while index < end:
        paths = tuple(layout.log_entry(table, LogIndex(index + i)) for i in range(min(SEARCH_WINDOW, end - index)))
        many: fx.Many = yield fx.GetMany(paths)
        for path, node in zip(paths, many.nodes, strict=True):
            if node is None:
                return None
            entry, at = decode_entry(node.value, path), index
            found.append((at, entry, node.changed_ms))
            index = next_index(at, entry)
            # A roll ends the log below this parent, and the next index is below the next one.
            if index != at + 1:
                break
    return tuple(found)


__all__ = ["Versions", "entries_between"]
