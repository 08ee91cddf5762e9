"""Version log: on disk, what each entry of a table's log has changed, so that earlier versions are known after a start.

The folder ``versions`` has *segments*, files named by the index at which they begin.  The first line of a segment is the
version there, as a list of parts; each further line is one entry: what it changed.  Every line begins with a checksum of all
lines up to it.  A version is found in one segment: the list, with the changes up to the index.

Guarantees:

* What is read here is a fact of the table's log: any replica would say the same.  A segment of another table of this name
  (by its incarnation) is removed.
* Nothing is synced.  What a failing machine has left damaged at the end is cut off when the version log is continued.  These
  entries are then read in the table's log once more, or their versions stay unknown.
* Lines are only appended, by one thread at a time (`replitree.replica.perform.versions` has the lock); any thread may read.

A segment goes when its last entry is older than the caller says and at least `RECENT_ENTRIES` entries came after it.

Absent on purpose: whether the parts of a version are still on disk (`replitree.replica.kit.old_parts`).
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import msgspec

from replitree import private
from replitree.decoding import json_decoder
from replitree.errors import UnsupportedFormat
from replitree.protocol.core.effects import LogIndex
from replitree.protocol.core.fold import Change
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.parts import parse_part
from replitree.storage.files.durable import is_folder, write_all
from replitree.storage.files.formats import refuse_newer

FOLDER = "versions"
"""Folder of the segments, below the table's."""

VERSIONS_FORMAT = 1

SEGMENT_ENTRIES = 2_048
"""Entries of a segment: a read of an earlier version decodes at most so many lines."""

RECENT_ENTRIES = 50_000
"""The newest entries that stay, however old they are."""

_CHECKSUM_DIGITS = 8


class _Begin(msgspec.Struct, frozen=True, omit_defaults=True):
    """First line of a segment: the version at `index`, and whose it is."""

    format: int
    incarnation: str
    index: int
    parts: tuple[str, ...]
    opened: tuple[int, ...] = ()


class _Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """Line of one entry: the index that follows it, what it changed, and the inserts that are open after it."""

    next: int
    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    opened: tuple[int, ...] = ()


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
class Changed:
    """What one entry changed: the index that follows it, the change, and the inserts that are open after it."""

    next: LogIndex
    change: Change
    opened: tuple[LogIndex, ...] = ()


@dataclass(frozen=True, slots=True)
class _Found:
    """What the readable lines of a segment say: the last version, and how many entries and bytes lead to it."""

    version: Version
    entries: int
    bytes: int
    checksum: int


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
        self._last = None
        for first, path in reversed(self._segments()):
            found = self._read(path, None)
            if found is None:
                path.unlink()
                continue
            if found.bytes < path.stat().st_size:
                os.truncate(path, found.bytes)
            self._last, self._checksum, self.entries = path, found.checksum, found.entries
            assert found.version.index >= first
            return found.version
        return None

    def begin(self, version: Version) -> None:
        """Begin a segment with a version, which `append` goes on from.  Raises OSError when the disk refuses."""
        self._last = None
        private.make_folder(self._folder, parents=True, exist_ok=True)
        head = _Begin(
            VERSIONS_FORMAT,
            self._incarnation,
            version.index,
            tuple(part.name for part in version.parts),
            version.opened,
        )
        path, (line, checksum) = self._folder / str(version.index), _line(_encode(head), 0)
        # A segment that begins at this index has no entries, or is of a version that is forgotten.
        private.write_file(path, line)
        self._last, self._checksum, self.entries = path, checksum, 0

    def append(self, changes: Sequence[Changed]) -> None:
        """Write what entries changed, ascending, after the last one that was written.  Raises OSError when the disk refuses."""
        assert self._last is not None, "`open_end` or `begin` comes first"
        lines, checksum = [], self._checksum
        for each in changes:
            removed, added = (tuple(part.name for part in parts) for parts in (each.change.removed, each.change.added))
            line, checksum = _line(_encode(_Entry(each.next, removed, added, each.opened)), checksum)
            lines.append(line)
        path, self._last = self._last, None
        descriptor = private.open_new(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            write_all(descriptor, b"".join(lines))
        finally:
            os.close(descriptor)
        # After a write that failed the end is unknown, and only `open_end` finds it.
        self._last, self._checksum, self.entries = path, checksum, self.entries + len(changes)

    def forget(self) -> None:
        """Remove all segments.  Raises OSError when the disk refuses."""
        self._last = None
        for _, path in self._segments():
            path.unlink(missing_ok=True)

    def remove_old(self, before: float) -> None:
        """Remove the segments whose last entry was written before a time, seconds since the epoch, but for recent entries.

        Raises OSError when the disk refuses.
        """
        segments = self._segments()
        recent = segments[-1][0] - RECENT_ENTRIES if segments else 0
        for (_, path), (end, _) in pairwise(segments):
            if end > recent or path.stat().st_mtime >= before:
                return
            path.unlink(missing_ok=True)

    def at(self, index: LogIndex) -> Version | None:
        """Return what the table was at an index, or None when that is not known.  Raises OSError when the disk refuses."""
        path = next((path for first, path in reversed(self._segments()) if first <= index), None)
        try:
            found = None if path is None else self._read(path, index)
        except (UnsupportedFormat, FileNotFoundError):
            # A segment may be removed meanwhile.
            return None
        # A segment may end before the index: then the versions up to the next one are not known.
        return found.version if found is not None and found.version.index == index else None

    def first(self) -> LogIndex | None:
        """Return the lowest index whose version may be known; None: there is none."""
        segments = self._segments()
        return segments[0][0] if segments else None

    def _segments(self) -> list[tuple[LogIndex, Path]]:
        """Return the segments, ascending."""
        if not is_folder(self._folder):
            return []
        return sorted((LogIndex(int(path.name)), path) for path in self._folder.iterdir() if path.name.isdecimal())

    def _read(self, path: Path, until: LogIndex | None) -> _Found | None:
        """Read a segment up to an index, or up to its end; None: it is of another table, or its first line is damaged."""
        lines = _lines(path.read_bytes())
        head, size, checksum = next(lines, (b"", 0, 0))
        if not head:
            return None
        refuse_newer(head, f"the version log {path}", VERSIONS_FORMAT)
        begin = _decode_begin(head)
        if begin.incarnation != self._incarnation:
            return None
        index, parts, entries = LogIndex(begin.index), PartSet.of(map(parse_part, begin.parts)), 0
        opened = begin.opened
        while until is None or index < until:
            line, end, after = next(lines, (b"", 0, 0))
            if not line:
                break
            entry = _decode_entry(line)
            if entry.removed or entry.added:
                parts = parts.replace(map(parse_part, entry.removed), map(parse_part, entry.added))
            index, opened, entries, size, checksum = LogIndex(entry.next), entry.opened, entries + 1, end, after
        return _Found(Version(index, parts, tuple(map(LogIndex, opened))), entries, size, checksum)


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


__all__ = ["FOLDER", "RECENT_ENTRIES", "SEGMENT_ENTRIES", "VERSIONS_FORMAT", "Changed", "Version", "VersionLog"]
