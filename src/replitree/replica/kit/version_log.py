"""Version log: on disk, what each entry of a table's log has changed, so that earlier versions are known after a start.

The folder ``versions`` has *segments*, files named by the index at which they begin.  The first line of a segment is the
version there, as a list of parts; each further line is one entry: what it changed, when it was written, and what it did in a
few words (for a table's history).  Every line begins with a checksum of all lines up to it.  A version is found in one segment:
the list, with the changes up to the index.

The time of an entry is that of its node, by coordination's clock, which may go back.  So a time is found by reading back from
later entries: the first line of a segment says the lowest time of the segment before it, and whole segments are skipped.

Guarantees:

* What is read here is a fact of the table's log: any replica would say the same.  A segment of another table of this name
  (by its incarnation) is removed.
* A time is answered only by entries that are known without a gap up to where the search began, each with its time.
* Nothing is synced.  What a failing machine has left damaged at the end is cut off when the version log is continued.  These
  entries are then read in the table's log once more, or their versions stay unknown.
* Lines are only appended, by one thread at a time (`replitree.replica.perform.versions` has the lock); any thread may read.

Each line also says what the change feed must know of its entry (`replitree.protocol.feed.definition`): the kind, and the
entry's timestamp in the feed.  So this log is the feed's journal.  Lines that an older version has written do not say that:
the feed begins after them.

A segment goes when its last entry is older than the caller says, at least `RECENT_ENTRIES` entries came after it, and no
consumer of the feed holds one of its entries.

Absent on purpose: whether the parts of a version are still on disk (`replitree.replica.kit.old_parts`).
"""

from __future__ import annotations

import os
import threading
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import msgspec
from msgspec.structs import replace

from replitree import private
from replitree.decoding import json_decoder
from replitree.errors import UnsupportedFormat
from replitree.protocol.core.effects import LogIndex
from replitree.protocol.core.fold import Change
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.parts import parse_part
from replitree.protocol.core.stamps import BEFORE_ALL, Zxid
from replitree.protocol.feed.definition import RULES, OpenInserts, Step, timestamp_us
from replitree.protocol.upkeep.consumers import NO_FLOOR
from replitree.storage.files.durable import is_folder, write_all
from replitree.storage.files.formats import refuse_newer
from replitree.wire.reached import Reached
from replitree.wire.remembered import Remembered, Summary

FOLDER = "versions"
"""Folder of the segments, below the table's."""

VERSIONS_FORMAT = 1

SEGMENT_ENTRIES = 2_048
"""Entries of a segment: a read of an earlier version decodes at most so many lines."""

RECENT_ENTRIES = 50_000
"""The newest entries that stay, however old they are."""

_NAME_SOURCES = frozenset({"merge", "rewrite"})
"""Kinds of entries whose text names the parts that they remove."""

_CHECKSUM_DIGITS = 8


class _Begin(msgspec.Struct, frozen=True, omit_defaults=True):
    """First line of a segment: the version at `index`, and whose it is.

    `previous` is of the segment before: the index at which it begins, and the lowest time of its entries.  That is 0 when there
    are none, when they do not lead here, and when the time of one of them is unknown.  `us` is the feed's timestamp of the
    entry before `index`, in microseconds; 0: unknown.
    """

    format: int
    incarnation: str
    index: int
    parts: tuple[str, ...]
    opened: tuple[int, ...] = ()
    previous: tuple[int, int] = (0, 0)
    us: int = 0


class _Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """Line of one entry: the index that follows it, what it changed, and the inserts that are open after it.

    `ms` is when it was written; 0: unknown.  `us` is its timestamp in the feed, where that is not 1,000 `ms`.  `kind`, `lost`
    and `schema` are those of the feed's `Step`; "": unknown.
    `ms` is when it was written; 0: unknown.  `entry` is what it did; None: an earlier replitree has written the line.
    The text of a merge or a rewrite that names just the removed parts is left out.  `zxid` and `moved` are those of
    `EntryChange`.
    """

    next: int
    ms: int = 0
    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    opened: tuple[int, ...] = ()
    kind: str = ""
    us: int = 0
    lost: str = ""
    schema: int = 0
    entry: Summary | None = None
    zxid: int = 0
    moved: bool = False

    @property
    def summary(self) -> Summary | None:
        """What it did, with its text."""
        if self.entry is None or self.entry.text or self.entry.kind not in _NAME_SOURCES:
            return self.entry
        return replace(self.entry, text=", ".join(self.removed))


_encode = msgspec.json.Encoder().encode
_decode_begin = json_decoder(_Begin).decode
_decode_entry = json_decoder(_Entry).decode


@dataclass(frozen=True, slots=True)
class Version:
    """What a table was at an index: its parts, those of open inserts included, and the indexes of these inserts."""

    index: LogIndex
    parts: PartSet
    opened: tuple[LogIndex, ...] = ()


@dataclass(frozen=True, slots=True)
class EntryChange:
    """What one entry changed: the index that follows it, the change, and the inserts that are open after it.

    `written_ms` is when its node was created, in milliseconds since 1970 by coordination's clock; 0: that is unknown.  `kind`,
    `lost` and `schema_version` are those of the feed's `Step`; "": the line was written by an older version.  `zxid` is the
    transaction that has appended the entry, noted in shards while there is a feed; `BEFORE_ALL`: unknown.  `of_move`: the entry
    is a move's (`protocol.sharded.feed`).
    """

    next: LogIndex
    change: Change
    opened: tuple[LogIndex, ...] = ()
    written_ms: int = 0
    kind: str = ""
    lost: str = ""
    schema_version: int = 0
    entry: Summary | None = None
    zxid: Zxid = BEFORE_ALL
    of_move: bool = False

    @property
    def is_told(self) -> bool:
        """Whether the feed of the entry is known."""
        return self.kind in RULES and bool(self.written_ms)

    @property
    def step(self) -> Step:
        """What the feed must know of the entry."""
        return Step(self.kind, self.change, self.opened, self.lost, self.schema_version)

    def line(self, told_us: int) -> bytes:
        """Return the content of its line; `told_us` is its timestamp in the feed, where that is not 1,000 `written_ms`."""
        removed, added = (tuple(part.name for part in parts) for parts in (self.change.removed, self.change.added))
        entry = self.entry
        if entry is not None and entry.kind in _NAME_SOURCES and entry.text == ", ".join(removed):
            entry = replace(entry, text="")
        of_feed = (self.kind, told_us, self.lost, self.schema_version)
        of_shard = (self.zxid, self.of_move)
        return _encode(_Entry(self.next, self.written_ms, removed, added, self.opened, *of_feed, entry, *of_shard))


@dataclass(frozen=True, slots=True)
class NotedEntry:
    """A line of the version log: the index of the entry, what it changed, and its timestamp in the feed (µs; 0: unknown)."""

    index: LogIndex
    changed: EntryChange
    timestamp_us: int


@dataclass(frozen=True, slots=True)
class Segment:
    """The entries of one segment that can be read, ascending, and what is open at the index at which they begin."""

    index: LogIndex
    opens: OpenInserts
    entries: tuple[NotedEntry, ...]

    @property
    def end(self) -> LogIndex:
        """The index that follows its last entry."""
        return self.entries[-1].changed.next if self.entries else self.index


@dataclass(frozen=True, slots=True)
class _Found:
    """What the readable lines of a segment say: the last version, how many entries and bytes lead to it, the lowest time."""

    version: Version
    entries: int
    bytes: int
    checksum: int
    earliest_ms: int
    us: int


class VersionLog:
    """The version log of one table on one disk.

    Parameters
    ----------
    folder
        Where the segments are; made when there is something to write.
    incarnation
        Which of the tables that have had this name.
    """

    def __init__(self, folder: Path, incarnation: str) -> None:
        self._folder, self._incarnation = folder, incarnation
        self._last: Path | None = None
        self._checksum = 0
        # Where segments begin, ascending, so that no look-up lists a folder of 30,000 files; None: not listed yet.
        self._begins: tuple[LogIndex, ...] | None = None
        self._lock = threading.Lock()
        self._end, self._earliest_ms, self._us = LogIndex(0), 0, 0
        # What first lines say of the segment before, by the index at which the segment begins.
        self._previous: dict[LogIndex, tuple[int, int]] = {}
        self.entries = 0
        """Entries in the segment to which `append` writes."""

    def open_end(self) -> Version | None:
        """Return the last version that is known, after which `append` goes on; None: nothing is known.

        Segments of another table, and what is damaged at the end of the last one, are removed.

        Raises
        ------
        UnsupportedFormat
            A newer replitree wrote the last segment; nothing is changed.
        OSError
            The disk refuses.
        """
        self._last = self._begins = None
        for first, path in self._segments():
            found = self._read(path, None)
            if found is None:
                path.unlink()
                self._begins = None
                continue
            if found.bytes < path.stat().st_size:
                os.truncate(path, found.bytes)
            self._last, self._checksum, self.entries = path, found.checksum, found.entries
            self._end, self._earliest_ms, self._us = found.version.index, found.earliest_ms, found.us
            assert found.version.index >= first
            return found.version
        return None

    def begin(self, version: Version) -> None:
        """Begin a segment with a version, which `append` goes on from.  Raises OSError when the disk refuses."""
        previous, us = (0, 0), 0
        if self._last is not None and self.entries and self._end == version.index:
            previous, us = (int(self._last.name), self._earliest_ms), self._us
        self._last = None
        private.make_folder(self._folder, parents=True, exist_ok=True)
        head = _Begin(
            VERSIONS_FORMAT,
            self._incarnation,
            version.index,
            tuple(part.name for part in version.parts),
            version.opened,
            previous,
            us,
        )
        path, (line, checksum) = self._folder / str(version.index), _line(_encode(head), 0)
        # A segment that begins at this index has no entries, or is of a version that is forgotten.
        self._previous.pop(version.index, None)
        with self._lock:
            private.write_file(path, line)
            known = self._begins or ()
            # Listed again where this is not the newest one, or none is known.
            self._begins = (*known, version.index) if known and known[-1] < version.index else None
        self._last, self._checksum, self.entries = path, checksum, 0
        self._end, self._earliest_ms, self._us = version.index, 0, us

    def append(self, changes: Sequence[EntryChange]) -> list[NotedEntry]:
        """Write what entries changed, ascending, after the last one that was written, and return the lines.

        Raises OSError when the disk refuses.
        """
        assert self._last is not None, "`open_end` or `begin` comes first"
        at, noted = self._end, list[NotedEntry]()
        lines, checksum, earliest_ms, us = list[bytes](), self._checksum, self._earliest_ms, self._us
        for each in changes:
            us = timestamp_us(us, each.written_ms) if each.is_told else 0
            line, checksum = _line(each.line(us if us != 1_000 * each.written_ms else 0), checksum)
            noted.append(NotedEntry(at, each, us))
            at = each.next
            earliest_ms = min(earliest_ms, each.written_ms) if lines or self.entries else each.written_ms
            lines.append(line)
        path, self._last = self._last, None
        descriptor = private.open_new(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            write_all(descriptor, b"".join(lines))
        finally:
            os.close(descriptor)
        # After a write that failed the end is unknown, and only `open_end` finds it.
        self._last, self._checksum, self.entries = path, checksum, self.entries + len(changes)
        self._end, self._earliest_ms, self._us = at, earliest_ms, us
        return noted

    def forget(self) -> None:
        """Remove all segments.  Raises OSError when the disk refuses."""
        self._last = None
        self._previous.clear()
        for _, path in self._segments():
            path.unlink(missing_ok=True)
        self._begins = None

    def remove_old(self, before: float, floor: LogIndex = NO_FLOOR) -> None:
        """Remove the segments whose last entry was written before a time, seconds since the epoch, but for recent entries.

        Entries at or above `floor` stay, too.  Raises OSError when the disk refuses.
        """
        begins = self._all_begins()
        recent = begins[-1] - RECENT_ENTRIES if begins else 0
        for number, (first, end) in enumerate(pairwise(begins), start=1):
            path = self._folder / str(first)
            if end > min(recent, floor) or path.stat().st_mtime >= before:
                return
            path.unlink(missing_ok=True)
            self._begins = begins[number:]
            self._previous.pop(first, None)

    def at(self, index: LogIndex) -> Version | None:
        """Return what the table was at an index, or None when that is not known.  Raises OSError when the disk refuses."""
        path = next((path for _, path in self._segments(LogIndex(index + 1))), None)
        try:
            found = None if path is None else self._read(path, index)
        except (UnsupportedFormat, FileNotFoundError):
            # A segment may be removed meanwhile.
            return None
        # A segment may end before the index: then the versions up to the next one are not known.
        return found.version if found is not None and found.version.index == index else None

    def segments(self, first: LogIndex) -> Iterator[Segment]:
        """Give what segments say, from the one that has an index on, ascending.  Raises OSError when the disk refuses."""
        begins = self._all_begins()
        for path in (self._folder / str(each) for each in begins[max(0, bisect_right(begins, first) - 1) :]):
            try:
                lines = (content for content, _, _ in _lines(path.read_bytes()))
                begin = self._begin(path, next(lines, b""))
            except (UnsupportedFormat, FileNotFoundError):
                continue
            if begin is None:
                continue
            index, entries = LogIndex(begin.index), list[NotedEntry]()
            # A table may have a hundred thousand parts, and mostly no insert is open.
            names = begin.parts if begin.opened else ()
            opens = OpenInserts.of(map(parse_part, names), tuple(map(LogIndex, begin.opened)))
            for line in lines:
                entry = _decode_entry(line)
                change = Change(tuple(map(parse_part, entry.removed)), tuple(map(parse_part, entry.added)))
                opened = tuple(map(LogIndex, entry.opened))
                of_feed = (entry.kind, entry.lost, entry.schema)
                of_shard = (Zxid(entry.zxid), entry.moved)
                changed = EntryChange(LogIndex(entry.next), change, opened, entry.ms, *of_feed, None, *of_shard)
                entries.append(NotedEntry(index, changed, _timestamp_of(entry)))
                index = changed.next
            yield Segment(LogIndex(begin.index), opens, tuple(entries))

    def written_by(self, time_ms: int, below: LogIndex) -> Reached:
        """Find the last entry below an index that was written at or before a time.  Raises OSError when the disk refuses.

        Parameters
        ----------
        time_ms
            Milliseconds since 1970 by coordination's clock.
        below
            The caller knows that every entry from there on was written later.
        """
        at, after = below, self._folder / str(below) if below in self._all_begins() else None
        for first, path in self._segments(below):
            if after is not None:
                begins, earliest_ms = self._said_of_previous(at, after)
                if begins == first and earliest_ms > time_ms:
                    at, after = first, path
                    continue
            entries = self._entries(path, at)
            if not entries or entries[-1][1].next < at:
                # The entries in between are not known, and one of them may be the answer.
                break
            for index, entry in reversed(entries):
                if not entry.ms:
                    return self._reached(at, below)
                if entry.ms <= time_ms:
                    return Reached(index=entry.next, below=at)
                at = index
            after = path
        return self._reached(at, below)

    def before(self, below: LogIndex, limit: int) -> list[Remembered]:
        """Return entries below an index, the newest first, up to the first that is not known or the limit.

        Raises OSError when the disk refuses.
        """
        found, at = list[Remembered](), below
        for first, path in self._segments(below):
            entries = self._entries(path, at)
            if not entries or entries[-1][1].next < at:
                # The entries in between are not known.
                break
            for index, entry in reversed(entries):
                found.append(Remembered(index, entry.ms, entry.summary))
                if len(found) == limit:
                    return found
            at = first
        return found

    def _reached(self, at: LogIndex, below: LogIndex) -> Reached:
        """Return that every entry from an index up to another was written later, and when the first of them was."""
        path = next((path for _, path in self._segments(LogIndex(at + 1))), None)
        entries = [] if path is None or at >= below else self._entries(path, LogIndex(at + 1))
        written_ms = entries[-1][1].ms if entries and entries[-1][0] == at else 0
        return Reached(below=at, written_ms=written_ms)

    def _said_of_previous(self, index: LogIndex, path: Path) -> tuple[int, int]:
        """Return what the first line of the segment that begins at an index says of the one before it."""
        known = self._previous.get(index)
        if known is None:
            try:
                with path.open("rb") as file:
                    head, _, _ = next(_lines(file.readline()), (b"", 0, 0))
                begin = self._begin(path, head)
            except (UnsupportedFormat, FileNotFoundError):
                begin = None
            known = self._previous[index] = (0, 0) if begin is None else begin.previous
        return known

    def _entries(self, path: Path, until: LogIndex) -> list[tuple[LogIndex, _Entry]]:
        """Return the entries of a segment below an index, up to the first damaged one, each after its own index."""
        try:
            lines = (content for content, _, _ in _lines(path.read_bytes()))
            begin = self._begin(path, next(lines, b""))
        except (UnsupportedFormat, FileNotFoundError):
            return []
        if begin is None:
            return []
        found, index = list[tuple[LogIndex, _Entry]](), LogIndex(begin.index)
        while index < until and (line := next(lines, None)) is not None:
            entry = _decode_entry(line)
            found.append((index, entry))
            index = LogIndex(entry.next)
        return found

    def first(self) -> LogIndex | None:
        """Return the lowest index whose version may be known; None: there is none."""
        return next(iter(self._all_begins()), None)

    def _segments(self, below: LogIndex | None = None) -> Iterator[tuple[LogIndex, Path]]:
        """Give the segments that begin below an index, or all, the newest first."""
        begins = self._all_begins()
        count = len(begins) if below is None else bisect_left(begins, below)
        return ((first, self._folder / str(first)) for first in reversed(begins[:count]))

    def _all_begins(self) -> tuple[LogIndex, ...]:
        """Return where the segments begin, ascending."""
        # A segment that begins while the folder is listed is not to be missed.
        with self._lock:
            if self._begins is None:
                names = [path.name for path in self._folder.iterdir()] if is_folder(self._folder) else []
                self._begins = tuple(sorted(LogIndex(int(name)) for name in names if name.isdecimal()))
            return self._begins

    def _read(self, path: Path, until: LogIndex | None) -> _Found | None:
        """Read a segment up to an index, or up to its end; None: it is of another table, or its first line is damaged."""
        lines = _lines(path.read_bytes())
        head, size, checksum = next(lines, (b"", 0, 0))
        begin = self._begin(path, head)
        if begin is None:
            return None
        index, parts, entries = LogIndex(begin.index), PartSet.of(map(parse_part, begin.parts)), 0
        opened, earliest_ms, us = begin.opened, 0, begin.us
        while until is None or index < until:
            line, end, after = next(lines, (b"", 0, 0))
            if not line:
                break
            entry = _decode_entry(line)
            if entry.removed or entry.added:
                parts = parts.replace(map(parse_part, entry.removed), map(parse_part, entry.added))
            earliest_ms, us = min(earliest_ms, entry.ms) if entries else entry.ms, _timestamp_of(entry)
            index, opened, entries, size, checksum = LogIndex(entry.next), entry.opened, entries + 1, end, after
        version = Version(index, parts, tuple(map(LogIndex, opened)))
        return _Found(version, entries, size, checksum, earliest_ms, us)

    def _begin(self, path: Path, head: bytes) -> _Begin | None:
        """Decode the content of a first line; None: it is of another table, or damaged (empty)."""
        if not head:
            return None
        refuse_newer(head, f"the version log {path}", VERSIONS_FORMAT)
        begin = _decode_begin(head)
        return begin if begin.incarnation == self._incarnation else None


def _timestamp_of(entry: _Entry) -> int:
    """Return the timestamp of an entry in the feed, in microseconds; 0: unknown."""
    return entry.us or (1_000 * entry.ms if entry.kind in RULES else 0)


def _line(data: bytes, checksum: int) -> tuple[bytes, int]:
    """Return a line, and the checksum of all lines up to it."""
    checksum = zlib.crc32(data, checksum)
    return b"%08x %b\n" % (checksum, data), checksum


def _lines(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Return the content of each line up to the first damaged one, where the line ends, and the checksum up to there."""
    at, checksum = 0, 0
    while (end := data.find(b"\n", at)) >= 0:
        content = data[at + _CHECKSUM_DIGITS + 1 : end]
        checksum = zlib.crc32(content, checksum)
        if data[at : at + _CHECKSUM_DIGITS + 1] != b"%08x " % checksum:
            return
        at = end + 1
        yield content, at, checksum


__all__ = [
    "FOLDER",
    "RECENT_ENTRIES",
    "SEGMENT_ENTRIES",
    "VERSIONS_FORMAT",
    "EntryChange",
    "NotedEntry",
    "Segment",
    "Version",
    "VersionLog",
]
