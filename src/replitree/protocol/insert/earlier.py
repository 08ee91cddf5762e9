"""What became of an earlier insert, by its block id or batch: for a client that has lost the answer and what it had sent."""

from __future__ import annotations

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import FailEntry, decode_block, quorum_of
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.core.streams import StreamBatch
from replitree.protocol.insert.insert import FoundEntry, find_insert
from replitree.protocol.insert.quorum import find_end
from replitree.protocol.insert.stream import read_stream


def find_earlier(table: TablePlace, block: fx.BlockId) -> fx.Procedure[fx.Duplicate | fx.MaybeInserted | None]:
    """Look whether an insert with this block id is in the table.

    Returns
    -------
    `MaybeInserted` while its quorum is open.  None: there was no such insert, or it has failed; that is certain only if no
    process can still be inserting it.
    """
    path = layout.block(table, block)
    yield fx.Sync(path)
    node: fx.Node | None = yield fx.Get(path)
    if node is None:
        return None
    return (yield from _became(table, (yield from find_insert(table, decode_block(node.value, path)))))


def find_earlier_batch(table: TablePlace, batch: StreamBatch) -> fx.Procedure[fx.Duplicate | fx.MaybeInserted | None]:
    """Look whether the table has a batch of a stream, or a later one.  Returns as `find_earlier`."""
    yield fx.Sync(layout.stream(table, batch.stream))
    value = (yield from read_stream(table, batch.stream)).value
    if value is None or value.query != batch.query or value.batch < batch.batch:
        return None
    return (yield from _became(table, (yield from find_insert(table, value))))


def _became(table: TablePlace, found: FoundEntry | None) -> fx.Procedure[fx.Duplicate | fx.MaybeInserted | None]:
    """Return what became of an insert; `found` is None when its entry is gone."""
    if found is None or not quorum_of(found.entry):
        return fx.Duplicate(None if found is None else found.index)
    # The status is read before the log: an insert that is open no more by then has its end in the log.
    is_open = (yield fx.Get(layout.quorum_status(table, found.entry.insert))) is not None
    end = yield from find_end(table, found.index)
    if end is None:
        return fx.MaybeInserted() if is_open else fx.Duplicate(found.index)
    return None if isinstance(end.verdict, FailEntry) else fx.Duplicate(found.index, end.index)


__all__ = ["find_earlier", "find_earlier_batch"]
