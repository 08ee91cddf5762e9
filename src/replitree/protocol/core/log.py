"""The log's first parent: which entries are still there.

Entries are dense and are removed from the low end only, so the log is the indexes from `first` to the tail.  The commit that
removes entries also writes `first`: no reader ever has to list the log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from replitree.decoding import json_decoder
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import Entry, RollEntry, decode_entry
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.core.values import decode_value

LOG_FORMATS = (1, 2, 3)
"""Known formats of the node `log`.

2 has a table with an incarnation: earlier versions would not find its replicas.  3 has a table that has, or had, materialised
views, or is a target of some: earlier versions would insert into it without a look at them (`protocol.insert.views`).
"""
SEARCH_WINDOW = 64
"""Log entries read at once in a search."""

NOT_SENT = "coordination can't be reached, and nothing was sent; try again or ask another replica"
ROLLED = "the log has just gone on below a new parent; try again"
"""What a client hears whose entry was to be appended below the old one."""

T = TypeVar("T")


class LogValue(msgspec.Struct, frozen=True):
    """Value of the node ``log``.

    Attributes
    ----------
    first
        The lowest index whose entry is there, or comes next.  Not 0: entries were removed, or the table was restored.
    """

    first: int = 0
    format: int = LOG_FORMATS[0]


@dataclass(frozen=True, slots=True)
class LogStart:
    """Where the log begins.

    Attributes
    ----------
    first
        The lowest index that is still there, or comes next.
    version
        Of the node that says so.
    has_views
        Whether the node says that the table has views: then it must go on to say so.
    """

    first: fx.LogIndex
    version: fx.Version
    has_views: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether the log has everything that ever happened to the table."""
        return self.first == 0


_decode = json_decoder(LogValue).decode
_encode = msgspec.json.Encoder(order="deterministic").encode


def encode_log(table: TablePlace, first: int = 0, *, has_views: bool = False) -> bytes:
    """Return the bytes of a table's node ``log``; `first` is the lowest index whose entry is there, or comes next.

    >>> encode_log(TablePlace("/t"), 41), encode_log(TablePlace("/t", incarnation="5f0c"))
    (b'{"first":41,"format":1}', b'{"first":0,"format":2}')
    """
    return _encode(LogValue(first, LOG_FORMATS[2 if has_views else bool(table.incarnation)]))


def log_start(table: TablePlace, node: fx.Node) -> LogStart:
    """Read where the log begins from its parent node.

    Raises
    ------
    UnsupportedFormat
        It has a newer format or can't be read.
    """
    value = decode_value(_decode, node.value, layout.log(table), LOG_FORMATS[-1])
    return LogStart(fx.LogIndex(value.first), node.version, value.format == LOG_FORMATS[2])


def read_start(table: TablePlace) -> fx.Procedure[LogStart | None]:
    """Read where the log begins; None when the table is gone."""
    node = yield fx.Get(layout.log(table))
    return None if node is None else log_start(table, node)


def begins_after(table: TablePlace, log: fx.Node, index: fx.LogIndex) -> bool:
    """Whether the entry at an index was removed; the node `log` was read when the entry was not found."""
    # An index without an entry is the tail only if the log does not begin after it.
    return log_start(table, log).first > index


def reaches_back(table: TablePlace, index: fx.LogIndex) -> fx.Procedure[bool]:
    """Whether no entry from `index` on was removed: what a search from there has not found was never in the log."""
    begins = yield from read_start(table)
    return begins is not None and begins.first <= index


def next_index(index: fx.LogIndex, entry: Entry) -> fx.LogIndex:
    """Return the index of the entry that follows one."""
    if isinstance(entry, RollEntry):
        return fx.LogIndex((layout.parent_of(index) + 1) * layout.PARENT_ENTRIES)
    return fx.LogIndex(index + 1)


def search_log(
    table: TablePlace, start: fx.LogIndex, find: Callable[[fx.LogIndex, Entry], T | None], window: int = SEARCH_WINDOW
) -> fx.Procedure[T | None]:
    """Search the log from `start` to the tail; return the first thing that `find` makes of an entry.

    Entries that are gone by now are skipped: the search goes on with the first one that is there.
    """
    index = start
    while True:
        paths = tuple(layout.log_entry(table, i) for i in range(index, index + window))
        many: fx.Many = yield fx.GetMany(paths)
        for path, node in zip(paths, many.nodes, strict=True):
            if node is None:
                break
            entry = decode_entry(node.value, path)
            found = find(index, entry)
            if found is not None:
                return found
            index = next_index(index, entry)
            if isinstance(entry, RollEntry):
                break
        else:
            continue
        if node is not None:
            # A roll ends the log below this parent, and the next index is below the next one.
            continue
        # Entries may have been removed meanwhile: then the search goes on with the first one that is there.
        begins = yield from read_start(table)
        if begins is None or begins.first <= index:
            return None
        index = begins.first
