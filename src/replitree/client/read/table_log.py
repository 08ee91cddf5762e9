"""The log of a table as people read it: what happened to the table, when, and which index a time has.

Guarantees:

* The log is read in coordination, and nothing is changed.  Entries that the cleaner has removed there come from the replicas,
  which remember them (`replitree.client.read.earlier`).
* Entries come newest first, and the kept log is read only as far back as the caller asks.
* The time of an entry is the time at which coordination created its node, by the clock of the ZooKeeper server that led
  then.  A new leader's clock may be behind the old one's: times need not ascend with indexes.

Absent on purpose: what an entry has become on a replica (`table.status`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import msgspec
from msgspec import UNSET

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import (
    AlterEntry,
    DropEntry,
    Entry,
    FailEntry,
    GetEntry,
    MutateEntry,
    RewriteEntry,
    SettleEntry,
    StorageEntry,
    ViewEntry,
    decode_entry,
)
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.core.log import SEARCH_WINDOW, next_index, read_start
from replitree.wire.reached import Reached
from replitree.wire.remembered import Remembered, Summary, summary_of

T = TypeVar("T")

UNKNOWN = "unknown"
"""The kind of an entry of which nothing is kept but its index and its time."""

FORGOTTEN = "not kept any more"
"""What is shown of what such an entry did."""

MUTATE, ALTER = str(MutateEntry.__struct_config__.tag), str(AlterEntry.__struct_config__.tag)

HISTORY_MAX = 100_000
"""Entries that one call returns at most: all of them are in memory at once."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""Where coordination's clock begins."""


@dataclass(frozen=True, slots=True)
class Logged:
    """An entry as it stands in the log; `written_ms` is the creation of its node by coordination's clock."""

    index: fx.LogIndex
    entry: Entry
    written_ms: int


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a table's log.

    Attributes
    ----------
    index
        Where it is in the log.  ``as_of=index`` is the table before it, ``as_of=index + 1`` the table with it.
    time
        When coordination created it, in UTC, to the millisecond; None: that is not known any more.
    kind
        What it is, as in ``docs/log.md``: ``get`` (an insert), ``merge``, ``mutate``, ``rewrite``, ``drop``, ``alter``, ….
        ``unknown``: nothing but its index, and its time, is kept any more.
    replica
        The replica that appended it; empty when that is unknown.
    rows, bytes
        What an insert or a rewrite has written: rows, and bytes of part files.  None for other kinds.
    ids
        The deduplication ids of an insert, each made of a token (`replitree.wire.block_ids.token_block`) or of the rows; or the
        batch of a stream that it is; or the id of a command.  Empty when the entry is gone from coordination.
    command
        What it does, as text; empty when the kind says it all.
    duration_s
        Of the end of a quorum: seconds since the insert was appended.  None for other kinds, and when either entry is gone
        from coordination.
    """

    index: int
    time: datetime | None
    kind: str
    replica: str
    rows: int | None = None
    bytes: int | None = None
    ids: tuple[str, ...] = ()
    command: str = ""
    duration_s: float | None = None

    @property
    def version(self) -> str:
        """Where it is, as people copy it into commands."""
        return f"{self.index}"


def search_back(
    table: TablePlace, end: fx.LogIndex, find: Callable[[Logged], T | None], window: int = SEARCH_WINDOW
) -> fx.Procedure[T | None]:
    """Search the log from the entry before `end` back to the first that is kept; return the first thing that `find` finds.

    Parameters
    ----------
    table
        Whose log.
    end
        The index that comes after the newest entry of interest; it is not above the tail.
    find
        Returns what it makes of an entry, or None to go on.
    window
        Entries that are read at once.
    """
    start = yield from read_start(table)
    if start is None:
        return None
    high, first = end, start.first
    while high > first:
        # A parent that holds nothing below `high` is left for the one before, which ends with a roll.
        below = fx.LogIndex(high - high % layout.PARENT_ENTRIES)
        if high == below:
            below = fx.LogIndex(high - layout.PARENT_ENTRIES)
            # Its entries are dense: 31 reads at most find the end, and only where the log has gone on below another parent.
            low = max(first, below)
            while low < high:
                middle = fx.LogIndex((low + high) // 2)
                if (yield fx.Exists(layout.log_entry(table, middle))):
                    low = fx.LogIndex(middle + 1)
                else:
                    high = middle
            if high == max(first, below):
                # The cleaner has removed what was below this parent since.
                return None
        low = max(first, below, fx.LogIndex(high - window))
        paths = tuple(layout.log_entry(table, index) for index in range(low, high))
        many: fx.Many = yield fx.GetMany(paths)
        for index in reversed(range(low, high)):
            node = many.nodes[index - low]
            if node is None:
                # The cleaner has removed it since, and everything before it.
                return None
            entry = decode_entry(node.value, paths[index - low])
            found = find(Logged(fx.LogIndex(index), entry, node.changed_ms))
            if found is not None:
                return found
        high = low
    return None


def read_history(table: TablePlace, name: str, end: fx.LogIndex, limit: int) -> fx.Procedure[tuple[HistoryEntry, ...]]:
    """Read what the newest entries of a log did, newest first.

    Parameters
    ----------
    table, name
        Whose log, and the name with which statements are shown.
    end
        The log's tail.
    limit
        Entries, at least 1.
    """
    newest: list[Logged] = []

    def take(logged: Logged) -> bool | None:
        newest.append(logged)
        return True if len(newest) == limit else None

    yield from search_back(table, end, take, min(limit, SEARCH_WINDOW))
    ended = {each.entry.index for each in newest if isinstance(each.entry, SettleEntry | FailEntry)}
    inserts = sorted(ended)
    many: fx.Many = yield fx.GetMany(tuple(layout.log_entry(table, index) for index in inserts))
    begun = {index: node.changed_ms for index, node in zip(inserts, many.nodes, strict=True) if node is not None}
    described = list[HistoryEntry]()
    for logged in newest:
        entry, ids, duration = logged.entry, tuple[str, ...](), None
        if isinstance(entry, GetEntry):
            batch = () if entry.stream is UNSET else (f"batch {entry.stream.batch} of stream {entry.stream.stream}",)
            ids = (*entry.blocks, *batch)
        elif isinstance(entry, MutateEntry | RewriteEntry | DropEntry | AlterEntry | StorageEntry | ViewEntry):
            ids = (entry.id,)
        elif isinstance(entry, SettleEntry | FailEntry) and entry.index in begun:
            duration = (logged.written_ms - begun[entry.index]) / 1000
        found = _shown(summary_of(entry), name, index=logged.index, time=as_time(logged.written_ms))
        described.append(msgspec.structs.replace(found, ids=ids, duration_s=duration))
    return tuple(described)


def index_at(table: TablePlace, end: fx.LogIndex, time_ms: int) -> fx.Procedure[Reached]:
    """Find the last entry that was written at or before a time, in the log that is kept.

    Parameters
    ----------
    table
        Whose log.
    end
        The log's tail.
    time_ms
        By coordination's clock.
    """
    reached = Reached(below=end)

    def after(logged: Logged) -> fx.LogIndex | None:
        nonlocal reached
        if logged.written_ms <= time_ms:
            return next_index(logged.index, logged.entry)
        reached = Reached(below=logged.index, written_ms=logged.written_ms)
        return None

    found = yield from search_back(table, end, after)
    return reached if found is None else Reached(index=found, below=reached.below)


def as_time(time_ms: int) -> datetime:
    """Return a time of coordination, milliseconds since 1970, in UTC.

    >>> as_time(1_764_210_600_250).isoformat()
    '2025-11-27T02:30:00.250000+00:00'
    """
    return EPOCH + timedelta(milliseconds=time_ms)


def remembered_entry(each: Remembered, name: str) -> HistoryEntry:
    """Return an entry that only replicas remember, of the table `name`."""
    time = as_time(each.ms) if each.ms else None
    if each.entry is None:
        return HistoryEntry(index=each.index, time=time, kind=UNKNOWN, replica="", command=FORGOTTEN)
    return _shown(each.entry, name, index=each.index, time=time)


def _shown(summary: Summary, name: str, *, index: int, time: datetime | None) -> HistoryEntry:
    return HistoryEntry(
        index=index,
        time=time,
        kind=summary.kind,
        replica=summary.replica,
        rows=summary.rows,
        bytes=summary.bytes,
        command=words_of(summary, name),
    )


def words_of(summary: Summary, name: str) -> str:
    """Return what an entry of the table `name` does, as people would write it."""
    # With the expressions of SQL and their kernels, which most histories do not need.
    if summary.kind == MUTATE:
        from replitree.storage.sql.mutation import as_statement

        return as_statement(summary.text, name)
    if summary.kind == ALTER:
        from replitree.storage.sql.alter_text import alter_words

        return alter_words(summary.text)
    return summary.text
