"""Errors of the change feed; each message says what to do.

::

    SnapshotExpired
    ├── OffsetExpired       the feed is not kept that far back any more: `index` is the earliest start
    │   └── ConsumerExpired the hold of a consumer has ended: `index` is where it stands
    ├── FeedGap             rows were lost, and no replica can list them: `index` is the entry
    └── TableReplaced       the table is another one than the reader began with
    BadInput
    ├── FeedOff             the table keeps no feed
    └── SchemaMismatch
        └── SchemaChanged   the columns change in the range: `index` is the entry
"""

from __future__ import annotations

from typing import TypeAlias

from replitree.errors import BadInput, SchemaMismatch, SnapshotExpired


class OffsetExpired(SnapshotExpired):
    """Entries, or parts with their rows, are not kept any more; `index`: where a read of the feed can start, -1: unknown."""

    def __init__(self, message: str, index: int = -1) -> None:
        super().__init__(message)
        self.index = index


class ConsumerExpired(OffsetExpired):
    """The hold of a named consumer has ended, and what it has not read may be gone; `index`: where it stands."""


class FeedGap(SnapshotExpired):
    """Rows have gone that no replica can list; `index`: the entry of the log."""

    def __init__(self, message: str, index: int = -1) -> None:
        super().__init__(message)
        self.index = index


class TableReplaced(SnapshotExpired):
    """The table was dropped and created again, or restored, since the reader began; start anew."""

    def __init__(self, message: str, index: int = -1) -> None:
        super().__init__(message)
        self.index = index


class FeedOff(BadInput):
    """The table keeps no change feed; turn it on."""

    def __init__(self, message: str, index: int = -1) -> None:
        super().__init__(message)
        self.index = index


class SchemaChanged(SchemaMismatch):
    """The columns change in the range that was asked for; `index`: the entry, up to which the feed can be read."""

    def __init__(self, message: str, index: int = -1) -> None:
        super().__init__(message)
        self.index = index


FeedError: TypeAlias = OffsetExpired | FeedGap | TableReplaced | FeedOff | SchemaChanged
FEED_ERRORS: dict[str, type[FeedError]] = {
    kind.__name__: kind for kind in (OffsetExpired, ConsumerExpired, FeedGap, TableReplaced, FeedOff, SchemaChanged)
}
"""By name, as they travel."""

__all__ = [
    "FEED_ERRORS",
    "ConsumerExpired",
    "FeedError",
    "FeedGap",
    "FeedOff",
    "OffsetExpired",
    "SchemaChanged",
    "TableReplaced",
]
