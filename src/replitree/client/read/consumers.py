"""The consumers of a table's change feed as people read them: looked up in coordination, without asking a replica."""

from __future__ import annotations

from datetime import datetime

import msgspec

from replitree.client.read.table_log import as_time
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.upkeep import consumers as nodes
from replitree.protocol.upkeep.consumers import read_consumer, read_consumers


class Consumer(msgspec.Struct, frozen=True, kw_only=True):
    """A named position in the change feed: replicas keep everything from there on.

    Attributes
    ----------
    name
        As in ``changes(consumer=name)``.
    index
        The first entry of the log that its reader has not read.
    time
        When it was created, moved or marked as expired last, in UTC, by coordination's clock.
    hold_s, bytes_max
        Its hold ends when it has not moved for so many seconds, or when a replica keeps more bytes for it alone.
    snapshot
        The version that its reader reads first, equal to `index`; None: it has been read, or there was none to read.
    expired
        Why its hold has ended; empty: it holds.
    replica
        The replica that created it.
    """

    name: str
    index: int
    time: datetime
    hold_s: float
    bytes_max: int
    snapshot: int | None
    expired: str
    replica: str

    @property
    def position(self) -> int:
        """Where it stands, as people copy it into commands."""
        return self.index


def all_consumers(table: TablePlace) -> fx.Procedure[tuple[Consumer, ...]]:
    """Return the consumers, by name."""
    yield fx.Sync(layout.consumers(table))
    found = yield from read_consumers(table)
    return tuple(map(_shown, found.all))


def one_consumer(table: TablePlace, name: str) -> fx.Procedure[Consumer | None]:
    """Return the consumer of a name, or None."""
    found = yield from read_consumer(table, name)
    return None if found is None else _shown(found)


def _shown(found: nodes.ConsumerNode) -> Consumer:
    value = found.value
    return Consumer(
        name=found.name,
        index=value.index,
        time=as_time(found.moved_ms),
        hold_s=value.hold_s,
        bytes_max=value.bytes_max,
        snapshot=value.snapshot,
        expired=value.expired,
        replica=value.replica,
    )


__all__ = ["Consumer", "all_consumers", "one_consumer"]
