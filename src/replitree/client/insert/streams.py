"""The streams of a table as people read them."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import TablePlace


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """A stream that writes into a table.

    Attributes
    ----------
    id
        Its id: the ``txnAppId``, or the id of a streaming query.
    query
        The streaming query that writes it; empty: batch writes with ``txnVersion``.
    batch
        The last batch that the table has.
    time
        When that came, in UTC, by coordination's clock.
    """

    id: str
    query: str
    batch: int
    time: datetime


def read_known(table: TablePlace) -> fx.Procedure[tuple[Stream, ...]]:
    """Return the streams of a table by their ids."""
    from replitree.protocol.upkeep.clean_streams import read_streams

    yield fx.Sync(layout.streams(table))
    found = yield from read_streams(table)
    known = (
        Stream(
            id=each.id,
            query=each.value.query,
            batch=each.value.batch,
            time=datetime.fromtimestamp(each.node.changed_ms / 1000, UTC),
        )
        for each in found
        if not each.is_empty
    )
    return tuple(sorted(known, key=lambda stream: stream.id))


__all__ = ["Stream", "read_known"]
