"""What the page knows of one log: a state to begin with, every entry since, and the sizes of the parts that are there now.

The browser folds the entries by itself (``static/fold.js``), so this side sends each of them once and computes nothing.

Guarantees:

* Base and entries are consistent: the parts of the table at any position n from `base.index` on are the base, and all the
  entries from there to below n applied to it.  The base is the beginning of the log, as long as the log has all of it.
  Otherwise it is the oldest position among the entries that are kept of which a replica still shows the parts.
* Entries come from coordination.  A replica is asked for parts only: once for the base, and for sizes at most once in
  `REST` times the duration of the last answer, so the page takes at most one per cent of a replica's time by that.  The
  search for the base asks for at most `SEARCH_S`.

* Which replicas have the parts of an insert whose quorum is open comes from coordination, too, each time that the log is read.

Absent on purpose: a copy of the rows, of the manifests, and of entries that the cleaner has removed (see `Table.history`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from replitree.client.read.table_log import Logged, search_back, words_of
from replitree.errors import ReplicaBehind, SnapshotExpired
from replitree.protocol.core import layout
from replitree.protocol.core.effects import GetMany, LogIndex, Many, Procedure, StagingId
from replitree.protocol.core.entries import (
    DropEntry,
    Entry,
    FailEntry,
    GetEntry,
    LostEntry,
    MergeEntry,
    MutateEntry,
    RewriteEntry,
    SettleEntry,
    dropped_partitions,
    quorum_of,
)
from replitree.protocol.core.parts import parse_part
from replitree.protocol.state.counted import decode_quorum
from replitree.ui.merge_waits import WANTED, FoldedLog, merge_waits
from replitree.wire.remembered import summary_of

if TYPE_CHECKING:
    from replitree.client.connection import Connection
    from replitree.client.read.snapshot import SnapshotPart
    from replitree.protocol.core.layout import TablePlace

ENTRIES_MAX = 100_000
"""Entries that the page has of one log at most; older ones are in the history only."""

REST = 100.0
"""A replica is asked for all parts again after so many times the duration of its last answer."""

SEARCH_S = 3.0
"""How long a base is looked for, in seconds; what was found by then is taken."""

WAITS_S = 5.0
"""The selector is asked again after so long at least, in seconds."""

FRESH_S = 1.0
"""The log is read again for the next browser after so long, in seconds."""

TEXT_MAX = 500
"""Characters of a command that the page shows."""


class TableView:
    """One log, for all viewers.  Any thread may use it.

    Parameters
    ----------
    connection
        The cluster.
    name
        A table with one log, or a shard, as in ``events~0``.
    """

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self._name = name
        self._lock = threading.Lock()
        # Of its own: an answer with all parts of a large table takes seconds, and the log does not wait for it.
        self._parts_lock, self._waits_lock = threading.Lock(), threading.Lock()
        self._base: dict[str, Any] | None = None
        self._entries: list[dict[str, Any]] = []
        self._open: dict[LogIndex, StagingId] = {}
        self._quorums: list[dict[str, Any]] = []
        self._first = self._tail = 0
        self._read_at = float("-inf")
        self._known: dict[str, Any] | None = None
        self._asked_at = self._took_s = 0.0
        self._waits: dict[str, Any] | None = None
        self._folded: FoldedLog | None = None
        self._unfolded: list[Logged] = []
        self._waits_next = 0.0

    def log(self, after: int, base: int | None) -> dict[str, Any]:
        """Return the base, and the entries that a browser does not have yet.

        Parameters
        ----------
        after
            The browser has the entries below this index.
        base
            Index of the base that it has them for; None, or another one than this view's: it gets everything.

        Raises
        ------
        TableNotFound, CoordinationUnavailable, Unavailable
            As of `Table.snapshot` and `Table.history`.
        """
        with self._lock:
            if time.monotonic() - self._read_at > FRESH_S:
                self._read()
                self._read_at = time.monotonic()
            assert self._base is not None
            is_known = base == self._base["index"]
            return {
                "table": self._name,
                "first": self._first,
                "tail": self._tail,
                "base": {"index": base} if is_known else self._base,
                "is_whole": not is_known,
                "entries": [each for each in self._entries if each["i"] >= after] if is_known else self._entries,
                "quorums": self._quorums,
            }

    def parts(self) -> dict[str, Any]:
        """Return the parts that a replica shows, with rows and bytes; the answer of a while ago if the replica is to rest.

        Raises
        ------
        TableNotFound, CoordinationUnavailable, Unavailable
            As of `Table.snapshot`.
        """
        with self._parts_lock:
            if self._known is None or time.monotonic() - self._asked_at > REST * self._took_s:
                began = time.monotonic()
                with self._connection.hosted(self._name).snapshot(min_index=-1) as snapshot:
                    self._known = {**columns_of(snapshot.parts, snapshot.index), "replica": snapshot.replica}
                self._asked_at = time.monotonic()
                self._took_s = self._asked_at - began
            return self._known

    def waits(self) -> dict[str, Any]:
        """Return why the parts of partitions are not merged yet (`merge_waits`); the answer of a while ago if it took long.

        Raises
        ------
        TableNotFound, CoordinationUnavailable, Unavailable
            As of `log`.
        """
        with self._waits_lock:
            if self._waits is None or time.monotonic() >= self._waits_next:
                if self._base is None:
                    self.log(0, None)
                began = time.monotonic()
                with self._lock:
                    assert self._base is not None
                    self._folded = self._folded or FoldedLog(self._base)
                    entries, self._unfolded = self._unfolded, []
                    index, folded = self._tail, self._folded
                # A browser that reads the log does not wait for the selector.
                folded.take(entries)
                found = merge_waits(folded.candidates(int(time.time() * 1000)))
                self._waits = {"index": index, "waits": found, **WANTED}
                ended = time.monotonic()
                self._waits_next = ended + max(WAITS_S, REST * (ended - began))
            return self._waits

    def _read(self) -> None:
        """Read what is new in the log."""
        catalog = self._connection.catalog
        state = catalog.log_state(self._name)
        if self._base is not None and (self._tail < state.first or state.tail - self._base["index"] > ENTRIES_MAX):
            # The page slept while the log was cleaned, or has more than it keeps.
            self._base = None
        if self._base is None:
            self._begin(state.first, state.tail)
        if state.tail > self._tail:
            found = catalog.run(entries_after(catalog.place(self._name), LogIndex(state.tail), self._tail))
            self._entries += [page_entry(each, self._name) for each in found]
            self._unfolded += found
            self._tail = state.tail
            for each in found:
                if isinstance(each.entry, GetEntry) and quorum_of(each.entry):
                    self._open[each.index] = each.entry.insert
                elif isinstance(each.entry, SettleEntry | FailEntry):
                    self._open.pop(LogIndex(each.entry.index), None)
        self._first = state.first
        # Replicas join an open quorum without an entry of the log.
        self._quorums = list(catalog.run(read_quorums(catalog.place(self._name), self._open))) if self._open else []

    def _begin(self, first: int, tail: int) -> None:
        """Find the oldest state to begin with: the beginning of the log, or the oldest one that a replica still shows."""
        first = max(first, tail - ENTRIES_MAX)
        self._entries, self._open = [], {}
        self._folded, self._unfolded = None, []
        if first == 0:
            self._base = columns_of((), 0)
        else:
            table = self._connection.hosted(self._name)
            began = time.monotonic()
            # What a replica shows of an index it also shows of every later one, so the oldest is found by halving.
            low, high, wanted = first, tail, first
            while low < high and time.monotonic() - began < SEARCH_S:
                try:
                    with table.snapshot(as_of=wanted) as snapshot:
                        self._base = columns_of(snapshot.parts, wanted)
                    high = wanted
                except (SnapshotExpired, ReplicaBehind):
                    # Parts that have left the table stay for some minutes, or as long as the table's `keep` says.
                    low = wanted + 1
                wanted = (low + high) // 2
            if self._base is None:
                with table.snapshot(level="sequential") as snapshot:
                    self._base = columns_of(snapshot.parts, snapshot.index)
        self._tail = self._base["index"]


def entries_after(table: TablePlace, end: LogIndex, after: int) -> Procedure[tuple[Logged, ...]]:
    """Read the entries from an index on to below `end`, ascending, as far as the log still has them."""
    newest: list[Logged] = []

    def take(logged: Logged) -> bool | None:
        if logged.index < after:
            return True
        newest.append(logged)
        return None

    yield from search_back(table, end, take)
    return tuple(reversed(newest))


def read_quorums(table: TablePlace, opened: Mapping[LogIndex, StagingId]) -> Procedure[tuple[dict[str, Any], ...]]:
    """Read which replicas have the parts of the inserts whose quorum is open; an insert that was settled since is left out."""
    paths = tuple(layout.quorum_status(table, insert) for insert in opened.values())
    many: Many = yield GetMany(paths)
    found = list[dict[str, Any]]()
    for index, path, node in zip(opened, paths, many.nodes, strict=True):
        if node is not None:
            value = decode_quorum(node.value, path)
            found.append({"index": index, "quorum": value.quorum, "holders": value.replicas})
    return tuple(found)


def columns_of(parts: Iterable[SnapshotPart], index: int) -> dict[str, Any]:
    """Return parts column by column, as the browser reads a hundred thousand of them.

    Parameters
    ----------
    parts
        Of one snapshot.
    index
        Where the snapshot is on the number line.
    """
    numbers: dict[str, int] = {}
    columns: dict[str, list[int]] = {
        name: [] for name in ("partition", "min", "max", "level", "mutation", "rows", "bytes")
    }
    lacking: list[str] = []
    for each in parts:
        part = parse_part(each.part)
        row = (
            numbers.setdefault(part.partition, len(numbers)),
            *part[1:],
            each.manifest.rows,
            each.manifest.bytes,
        )
        for column, value in zip(columns.values(), row, strict=True):
            column.append(value)
        if each.lacking:
            lacking.append(each.part)
    return {"index": index, "partitions": list(numbers), **columns, "lacking": lacking}


def page_entry(logged: Logged, table: str) -> dict[str, Any]:
    """Return an entry as the page has it: what the fold needs, and what a person reads.

    Parameters
    ----------
    logged
        An entry of the log.
    table
        The table's name, with which statements are shown.
    """
    summary = summary_of(logged.entry)
    text = words_of(summary, table)
    found = {
        "i": logged.index,
        "t": logged.written_ms,
        "kind": summary.kind,
        "replica": summary.replica,
        "text": text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}…",
    }
    return {**found, **_folded(logged.entry)}


def _folded(entry: Entry) -> dict[str, Any]:
    """Return what the fold looks at in an entry; nothing for an entry that changes no parts."""
    match entry:
        case GetEntry():
            found = {"parts": [(each.partition, each.rows, each.bytes) for each in entry.parts]}
            return {**found, "drops": dropped_partitions(entry), "quorum": quorum_of(entry)}
        case SettleEntry():
            return {"of": entry.index, "holders": entry.holders}
        case FailEntry():
            return {"of": entry.index, "partitions": entry.partitions}
        case MergeEntry():
            return {"sources": entry.sources}
        case MutateEntry():
            scope = entry.partitions is not UNSET and entry.since is not UNSET
            listed = {"partitions": entry.partitions, "since": entry.since} if scope else {}
            return {"partition": entry.partition, **listed}
        case RewriteEntry():
            relies = None if entry.unchanged is UNSET else entry.unchanged
            return {
                "results": [(each.source, each.rows, each.bytes) for each in entry.results],
                "inserts": [(each.partition, each.rows, each.bytes) for each in entry.inserts],
                "unchanged": relies,
            }
        case DropEntry():
            return {"partition": entry.partition, "min": entry.block_min, "max": entry.block_max}
        case LostEntry():
            return {"part": entry.part}
        case _:
            return {}
