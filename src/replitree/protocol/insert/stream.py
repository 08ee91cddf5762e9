"""Streams: the table takes each batch of a stream once, for as long as it remembers the stream.

A *stream* is a sequence of batches with ascending numbers, which one *query* sends at a time.  The node ``streams/<id>`` names
the last batch and its insert.  It moves in the commit of that insert, so node and entry exist together or not at all (S2).  An
insert of batch b decides by the node that it has read, and its commit changes the node at exactly that version:

============================================  ==================================================================
the node                                      what becomes of the insert
============================================  ==================================================================
is not there, or names a batch below b        it is committed
names the batch b, or a later one             it is a duplicate of the insert that the node names, and waits for its quorum
the same, of another query                    it is refused (`Why.STREAM`), unless it takes the stream over
names a batch below b whose quorum is open    it is refused: the client sends that batch again first, or later
has another version when the commit comes     nothing was inserted: the insert reads the node again, and decides again
============================================  ==================================================================

So of the commits of one batch at most one takes effect (S1), whichever replicas its drivers ask, and however late.  A batch
that is skipped is no error: a batch without rows inserts nothing.

*Failures.*  When an insert with a quorum is given up, the commit with `fail` sets the node back to what it was before, so the
batch can be sent again (S3).  A later batch can't have moved the node meanwhile: it is refused while the quorum is open.

*Removal.*  A stream that is forgotten (`protocol.upkeep.clean_streams`) loses its node, and the versions of its next node begin
anew.  Every removal raises the version of ``streams``, and each commit that moves a node or sets it back checks that version.

*Doubt.*  The node of a lost commit may have moved on, so it proves nothing: the log is searched (`insert._settle`).

Absent on purpose: an id by content, and a drop that frees a batch.  A batch stays taken when its rows were dropped.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from msgspec import UNSET

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import GetEntry
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.core.streams import NO_BATCH, StreamBatch, StreamValue, decode_stream, encode_stream


@dataclass(frozen=True, slots=True)
class StreamStands:
    """Where a stream stands: its node and the parent of all streams, as they were read together.

    Attributes
    ----------
    parent, node
        None: there is no such node.
    value
        Of the node.
    """

    parent: fx.Node | None = None
    node: fx.Node | None = None
    value: StreamValue | None = None

    def move(self, table: TablePlace, batch: StreamBatch, value: StreamValue) -> tuple[fx.Operation, ...]:
        """Return the operations that move the stream to a batch, in the commit of its insert."""
        path, parent = layout.stream(table, batch.stream), layout.streams(table)
        # The node before the last one is never needed again: the insert of the last one has counted for good.
        before = UNSET if self.value is None else msgspec.structs.replace(self.value, before=UNSET)
        moved = encode_stream(msgspec.structs.replace(value, before=before))
        return (
            fx.Create(parent) if self.parent is None else fx.Check(parent, self.parent.version),
            fx.Create(path, moved) if self.node is None else fx.Set(path, moved, self.node.version),
        )


def read_stream(table: TablePlace, stream: fx.StreamId) -> fx.Procedure[StreamStands]:
    """Read where a stream stands."""
    path = layout.stream(table, stream)
    many: fx.Many = yield fx.GetMany((layout.streams(table), path))
    parent, node = many.nodes
    return StreamStands(parent, node, None if node is None else decode_stream(node.value, path))


def decide(
    table: TablePlace, batch: StreamBatch, *, takes_over: bool
) -> fx.Procedure[StreamStands | StreamValue | fx.NotInserted]:
    """Decide what becomes of the insert of a batch.

    Parameters
    ----------
    takes_over
        Whether it may replace another query, whose batches had the same numbers or higher ones.

    Returns
    -------
    `StreamStands`: it may be committed, if the stream still stands there.  `StreamValue`: the table has the batch, or a later
    one.  `NotInserted`: the answer to its client.
    """
    refusal = fx.NotInserted("")
    for is_synced in (False, True):
        # A view that lags may show an earlier query, or a quorum that was reached since: no insert is refused for that.
        if is_synced:
            yield fx.Sync(layout.stream(table, batch.stream))
        stands = yield from read_stream(table, batch.stream)
        value = stands.value
        if value is None:
            return stands
        is_repeated, is_other = batch.batch <= value.batch, batch.query != value.query
        if is_repeated and not is_other:
            return value
        if is_repeated and not takes_over:
            refusal = _replaced(batch, value)
        elif value.quorum is not UNSET and (yield fx.Exists(layout.quorum_status(table, value.insert))):
            refusal = fx.NotInserted(
                f"the quorum of batch {value.batch} of stream {batch.stream} is open still: send that batch again first"
            )
        else:
            return stands
    return refusal


def _replaced(batch: StreamBatch, value: StreamValue) -> fx.NotInserted:
    theirs = f"query {value.query}" if value.query else "batch writes with txnVersion"
    return fx.NotInserted(
        f"stream {batch.stream} belongs to {theirs}, whose last batch is {value.batch}, so batch {batch.batch} of"
        f" {f'query {batch.query}' if batch.query else 'a batch write'} was not inserted: its rows are in no version of the"
        " table.  Continue with the checkpoint of that query, give this one another txnAppId, or set newCheckpoint=true once"
        " that query has been stopped for good",
        fx.Why.STREAM,
        (batch.stream, value.query, value.batch),
    )


def set_back(table: TablePlace, insert: GetEntry) -> fx.Procedure[tuple[fx.Operation, ...]]:
    """Return what sets the stream of an insert that fails back to what it was before; nothing if it stands elsewhere."""
    if insert.stream is UNSET:
        return ()
    stands = yield from read_stream(table, insert.stream.stream)
    if stands.parent is None or stands.node is None or stands.value is None or stands.value.insert != insert.insert:
        return ()
    value = stands.value
    # The node stays, so that its versions go on.
    none = StreamValue(value.query, NO_BATCH, value.insert, value.log_from)
    before = encode_stream(none if value.before is UNSET else value.before)
    return (
        fx.Check(layout.streams(table), stands.parent.version),
        fx.Set(layout.stream(table, insert.stream.stream), before, stands.node.version),
    )


def is_named(table: TablePlace, insert: GetEntry) -> fx.Procedure[bool]:
    """Whether the node of its stream proves that an insert did not fail: it names the insert, or has named it before."""
    if insert.stream is UNSET:
        return False
    value = (yield from read_stream(table, insert.stream.stream)).value
    if value is None:
        return False
    named = (value,) if value.before is UNSET else (value, value.before)
    return any(each.insert == insert.insert and each.batch != NO_BATCH for each in named)
