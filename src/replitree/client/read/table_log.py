"""The log of a table as people read it: what happened to the table, when, and which index a time has.

Guarantees:

* The log is read in coordination: no replica is asked, and nothing is changed.
* Entries come newest first, and the kept log is read only as far back as the caller asks.
* The time of an entry is the time at which coordination created its node, by the clock of the ZooKeeper server that led
  then.  A new leader's clock may be behind the old one's: times need not ascend with indexes.

Absent on purpose: entries that the cleaner has removed; what an entry has become on a replica (`table.status`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar, assert_never

import msgspec
from msgspec import UNSET

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import (
    EVERY_PARTITION,
    AlterEntry,
    DropEntry,
    Entry,
    FailEntry,
    GetEntry,
    LostEntry,
    MergeEntry,
    MutateEntry,
    RewriteEntry,
    RollEntry,
    SettleEntry,
    StorageEntry,
    decode_entry,
    dropped_partitions,
)
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.core.log import SEARCH_WINDOW, next_index, read_start
from replitree.storage.schema.retention import read_retention
from replitree.wire.block_ids import restored_version
from replitree.wire.reached import Reached

T = TypeVar("T")

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
        When coordination created it, in UTC, to the millisecond.
    kind
        What it is, as in ``docs/log.md``: ``get`` (an insert), ``merge``, ``mutate``, ``rewrite``, ``drop``, ``alter``, ….
    replica
        The replica that appended it.
    rows, bytes
        What an insert or a rewrite has written: rows, and bytes of part files.  None for other kinds.
    ids
        The deduplication ids of an insert, each made of a token (`replitree.wire.block_ids.token_block`) or of the rows; or the
        id of a command.
    command
        What it does, as text; empty when the kind says it all.
    duration_s
        Of the end of a quorum: seconds since the insert was appended.  None for other kinds, and when the insert's entry is
        gone.
    """

    index: int
    time: datetime
    kind: str
    replica: str
    rows: int | None = None
    bytes: int | None = None
    ids: tuple[str, ...] = ()
    command: str = ""
    duration_s: float | None = None


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
    return tuple(_described(each, name, begun) for each in newest)


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


def _described(logged: Logged, name: str, begun: dict[int, int]) -> HistoryEntry:
    entry, rows, size, ids, duration = logged.entry, None, None, tuple[str, ...](), None
    if isinstance(entry, GetEntry | RewriteEntry):
        parts = entry.parts if isinstance(entry, GetEntry) else entry.inserts
        results = () if isinstance(entry, GetEntry) else entry.results
        rows = sum(part.rows for part in parts) + sum(part.rows for part in results)
        size = sum(part.bytes for part in parts) + sum(part.bytes for part in results)
    if isinstance(entry, GetEntry):
        ids = tuple(entry.blocks)
    elif isinstance(entry, MutateEntry | RewriteEntry | DropEntry | AlterEntry | StorageEntry):
        ids = (entry.id,)
    elif isinstance(entry, SettleEntry | FailEntry) and entry.index in begun:
        duration = (logged.written_ms - begun[entry.index]) / 1000
    return HistoryEntry(
        index=logged.index,
        time=as_time(logged.written_ms),
        kind=str(type(entry).__struct_config__.tag),
        replica=entry.replica,
        rows=rows,
        bytes=size,
        ids=ids,
        command=_command(entry, name),
        duration_s=duration,
    )


def _command(entry: Entry, name: str) -> str:
    """Return what an entry does, as text."""
    from replitree.storage.sql.mutation import as_statement

    match entry:
        case GetEntry():
            version, dropped = restored_version(entry.blocks), dropped_partitions(entry)
            overwrites = f"overwrites {_partitions(dropped)}" if dropped else ""
            return overwrites if version is None else f"restore_to {version}"
        case SettleEntry() | FailEntry():
            return f"insert {entry.index}"
        case MergeEntry():
            return ", ".join(entry.sources)
        case MutateEntry():
            return as_statement(entry.command, name)
        case RewriteEntry():
            return ", ".join(each.source for each in entry.results)
        case DropEntry(block_min=None):
            return f"{'detaches' if entry.detach else 'drops'} {_partitions((entry.partition,))}"
        case DropEntry():
            return f"drops blocks {entry.block_min} to {entry.block_max} of {_partitions((entry.partition,))}"
        case AlterEntry():
            return entry.command
        case StorageEntry():
            return entry.storage if entry.keep is UNSET else f"keeps old parts {_retention(entry.keep)}"
        case LostEntry():
            return entry.part
        case RollEntry():
            return ""
        case _:
            assert_never(entry)


def _retention(text: str) -> str:
    keep, feed = read_retention(text)
    return f"{keep or 'by default'}, the change feed {feed}" if feed else keep or "by default"


def _partitions(names: tuple[str, ...]) -> str:
    return "every partition" if EVERY_PARTITION in names else f"partition {', '.join(names)}"
