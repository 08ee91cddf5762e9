"""A batch of a stream that goes into several shards: each batch is inserted once, over all shards and maps.

The node ``sharded/<D>/streams/<id>`` names the last batch of a stream and its joint insert.  It moves in the commit of that
insert (`protocol.sharded.joint_insert`), by the rules of a stream into one table (`protocol.insert.stream`)::

    Check(coordinator host @ epoch), Create(tokens/batch-<joint id>), Check(map @ version), for each participant: …,
    Check(streams @ version) | Create(streams), Set(streams/<id> @ version) | Create(streams/<id>),
    for each shard: Create(log-…)

So node and entries exist together or not at all (S2), and of the commits of one batch at most one takes effect (S1), whichever
coordinators its drivers ask, and by whichever map they split the rows.

The token is one that no client has named: it says which entries the batch has in which shard, as the token of any joint insert
does.  When it is forgotten, the batch is still known by its stream, and its entries are not.

==========================================  ====================================================================
what the coordinator finds when it commits  what it does
==========================================  ====================================================================
the stream stands elsewhere                 reads it again, and decides again: a duplicate, refused, or another try
anything else                               as of any joint insert
==========================================  ====================================================================

*Quorum.*  The node of the stream says that its last batch has one (`StreamValue.quorum`), and what stood there before.  The
commit that lets the joint insert fail deletes the token, and knows nothing of streams (`protocol.insert.joint_quorum`).  So the
token says whether the batch counts, once its quorum is open no more:

=================  =============  ==========================================================================================
``joint/<id>``     the token      the batch
=================  =============  ==========================================================================================
is there           either         is open: the same batch waits for its end, a later one is refused
is gone            is there       counts
is gone            is gone        has failed: the process that finds it sets the stream back, and reads it again (S3)
=================  =============  ==========================================================================================

A token that is gone must mean that.  So the cleaner keeps the token of a batch that a stream names with a quorum
(`named_with_quorum`).  What stands before a later batch counts for good, and is noted without its quorum.

*Unknown.*  The stream may have moved on since, and the token may be forgotten, so neither proves anything: the coordinator
takes another epoch, and the log of its own shard says what became of the commit, as of any joint insert.

*Removal.*  A stream that is forgotten (`forget_joint_stream`) loses its node, and the versions of its next node begin anew.  So
each removal raises the version of ``streams``, which every commit that moves a stream checks, or sets it back.

Absent on purpose: an age at which streams are forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import msgspec
from msgspec import UNSET

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.streams import NO_BATCH, StreamBatch, StreamValue, decode_stream, encode_stream
from replitree.protocol.insert.stream import StreamStands, decide, read_stream
from replitree.protocol.sharded.joint_insert import (
    JointInsert,
    JointInserted,
    JointOutcome,
    MovedOn,
    find_joint,
)
from replitree.protocol.sharded.try_insert import insert_in_turns, try_insert

TURNS_MAX = 20
"""How often a stream is read again because other drivers have moved it."""

FORGETS_MAX = 10
"""Tries of a removal while batches move the stream."""

READ_BATCH = 1_000
"""Streams that are read by one request."""

_OF_BATCH = "batch-"


@dataclass(frozen=True, slots=True)
class JointBatch:
    """A batch, as a client asks for its insert; `takes_over`: its query may replace another one in the stream."""

    of: StreamBatch
    takes_over: bool = False


def batch_token(joint: fx.JointId) -> fx.BlockId:
    """Return the token of a batch, by the id of its joint insert.

    >>> batch_token(fx.JointId("5f0c-s0-c3"))
    'batch-5f0c-s0-c3'
    """
    return fx.BlockId(f"{_OF_BATCH}{joint}")


def is_of_batch(token: fx.BlockId) -> bool:
    """Whether a token is one of a batch."""
    return token.startswith(_OF_BATCH)


Named: TypeAlias = tuple[JointOutcome, fx.BlockId | None]
"""What became of an insert, and the token by which its client waits for the end of its quorum; None: nothing is waited for."""


def insert_named(insert: JointInsert, batch: JointBatch | None, me: bytes) -> fx.Procedure[Named]:
    """Append the entries of an insert to all its shards, and move the stream if it is a batch of one, in one commit.

    Parameters
    ----------
    insert
        What is prepared; of an overwrite without the shards that it empties, which are read here.  The token of a batch is
        `batch_token`.
    batch, me
        The batch; None: the token names the insert.  And the coordinator's process.

    Returns
    -------
    `NotInserted` with `Why.STREAM`: the stream belongs to another query.  Others as of `joint_insert`.
    """
    if batch is None:
        named = yield from insert_in_turns(insert, me)
        is_duplicate = isinstance(named, JointInserted) and named.is_duplicate
        return named, insert.token if insert.quorum or is_duplicate else None
    own, streams, is_sure = insert.participants[0], TablePlace(insert.place), False
    for _ in range(TURNS_MAX):
        decided = yield from decide(streams, batch.of, takes_over=batch.takes_over)
        refusal = decided if isinstance(decided, fx.NotInserted) else None
        if isinstance(decided, StreamValue):
            known = yield from _named(decided, insert.place, own.replica.table)
            if known is not None:
                return known
            yield from _last(insert.place, batch.of.stream)
            continue
        if isinstance(decided, StreamStands) and decided.value is not None and decided.value.quorum is not UNSET:
            last = yield from _last(insert.place, batch.of.stream)
            if last.stands.node != decided.node:
                continue
            if last.is_open:
                refusal = fx.NotInserted(
                    f"the quorum of batch {decided.value.batch} of stream {batch.of.stream} is open still: send that batch"
                    " again first"
                )
            decided = last.stands
        if refusal is not None:
            if is_sure:
                return refusal, None
            # A view that lags may show a batch that has failed or settled since: no insert is refused for that.
            yield fx.Sync(layout.stream(streams, batch.of.stream))
            yield from _last(insert.place, batch.of.stream)
            is_sure = True
            continue
        assert isinstance(decided, StreamStands)
        # Staging ids are those of one shard, and the stream is that of all.
        value = StreamValue(batch.of.query, batch.of.batch, fx.StagingId(insert.id), own.log_from)
        if insert.quorum:
            value = msgspec.structs.replace(value, quorum=insert.quorum)
        outcome = yield from try_insert(insert, me, decided.move(streams, batch.of, value))
        if not isinstance(outcome, MovedOn):
            return outcome, insert.token if insert.quorum else None
    return fx.NotInserted("other drivers move the stream all the time; try again"), None


def find_named(
    place: str, beside: TablePlace, token: fx.BlockId, batch: JointBatch | None
) -> fx.Procedure[tuple[JointInserted, fx.BlockId | None] | None]:
    """Look whether a table has what a token or a batch names, for a client that has lost its answer.

    Parameters
    ----------
    place, beside
        The path of the sharded table, and one of its shards.

    Returns
    -------
    As of `find_joint`, with a token as of `insert_named`.  None of a batch: its query has not inserted it, or its quorum was
    not reached, or another query has the stream by now.
    """
    if batch is None:
        joint = yield from find_joint(place, beside, token)
        return None if joint is None else (joint, token)
    yield fx.Sync(layout.stream(TablePlace(place), batch.of.stream))
    for _ in range(TURNS_MAX):
        value = (yield from _last(place, batch.of.stream)).stands.value
        if value is None or value.query != batch.of.query or value.batch < batch.of.batch:
            return None
        known = yield from _named(value, place, beside)
        if known is not None:
            return known
    return None


def named_with_quorum(place: str) -> fx.Procedure[frozenset[fx.BlockId]]:
    """Return the tokens of the batches with a quorum that are the last ones of their streams."""
    streams, tokens = TablePlace(place), set[fx.BlockId]()
    names: tuple[str, ...] = (yield fx.Children(layout.streams(streams))) or ()
    for first in range(0, len(names), READ_BATCH):
        paths = tuple(layout.stream(streams, fx.StreamId(name)) for name in names[first : first + READ_BATCH])
        many: fx.Many = yield fx.GetMany(paths)
        nodes = ((path, node) for path, node in zip(paths, many.nodes, strict=True) if node is not None)
        values = (decode_stream(node.value, path) for path, node in nodes)
        tokens.update(batch_token(fx.JointId(value.insert)) for value in values if value.quorum is not UNSET)
    return frozenset(tokens)


def forget_joint_stream(
    replica: Replica, epoch: fx.Epoch, stream: fx.StreamId
) -> fx.Procedure[bool | fx.InDoubt | None]:
    """Forget a stream into a sharded table.

    Parameters
    ----------
    replica, epoch
        A replica of any shard, active under this epoch.

    Returns
    -------
    True: it is gone.  False: the table does not know it.  None: this process has not the epoch, or the stream moves all the
    time.
    """
    streams = TablePlace(layout.sharded_of(replica.table))
    for _ in range(FORGETS_MAX):
        yield fx.Sync(layout.stream(streams, stream))
        stands = yield from read_stream(streams, stream)
        if stands.parent is None or stands.node is None:
            return False
        committed = yield fx.Commit(
            fx.Check(layout.host(replica), epoch),
            fx.Set(layout.streams(streams), b"", stands.parent.version),
            fx.Delete(layout.stream(streams, stream), stands.node.version),
        )
        match committed:
            case fx.Applied():
                return True
            case fx.Refused(operation=fx.Check()):
                return None
            case fx.Unknown():
                return fx.InDoubt()
    return None


@dataclass(frozen=True, slots=True)
class _Last:
    """The last batch of a stream: where the stream stands, and whether the quorum of that batch is open.

    A batch whose quorum was reached is one without a quorum.
    """

    stands: StreamStands
    is_open: bool = False


def _last(place: str, stream: fx.StreamId) -> fx.Procedure[_Last]:
    """Find out where a stream stands; a batch whose quorum was not reached does not count, and its stream is set back."""
    streams, path = TablePlace(place), layout.stream(TablePlace(place), stream)
    for _ in range(TURNS_MAX):
        stands = yield from read_stream(streams, stream)
        value = stands.value
        if value is None or value.quorum is UNSET:
            return _Last(stands)
        is_open, counts = yield from _quorum_of(place, value)
        if is_open:
            return _Last(stands, is_open=True)
        if counts:
            return _Last(replace(stands, value=msgspec.structs.replace(value, quorum=UNSET)))
        if stands.parent is None or stands.node is None:
            break
        # The node stays, so that its versions go on.
        none = StreamValue(value.query, NO_BATCH, value.insert, value.log_from)
        before = encode_stream(none if value.before is UNSET else value.before)
        yield fx.Commit(
            fx.Check(layout.streams(streams), stands.parent.version), fx.Set(path, before, stands.node.version)
        )
        # Whatever became of it: the stream has moved, or is tried again.
        yield fx.Sync(path)
    return _Last(StreamStands(), is_open=True)


def _quorum_of(place: str, value: StreamValue) -> fx.Procedure[tuple[bool, bool]]:
    """Return whether the quorum of a stream's last batch is open; and if not, whether the batch counts."""
    joint = fx.JointId(value.insert)
    # In this order: the token is read as it was when the quorum ended, or later.
    many: fx.Many = yield fx.GetMany((layout.joint_insert(place, joint), layout.joint_token(place, batch_token(joint))))
    opened, token = many.nodes
    return opened is not None, token is not None


def _named(
    value: StreamValue, place: str, beside: TablePlace
) -> fx.Procedure[tuple[JointInserted, fx.BlockId | None] | None]:
    """Return the insert that a stream names, as a duplicate; without its entries, if its token or its rows are gone.

    None: its quorum was not reached, or is open and its rows were dropped.
    """
    token, is_open, counts = batch_token(fx.JointId(value.insert)), False, True
    if value.quorum is not UNSET:
        is_open, counts = yield from _quorum_of(place, value)
    found = (yield from find_joint(place, beside, token)) if is_open or counts else None
    if found is not None:
        return found, None if value.quorum is UNSET else token
    return None if is_open or not counts else (JointInserted(fx.JointId(""), (), is_duplicate=True), None)


__all__ = [
    "JointBatch",
    "Named",
    "batch_token",
    "find_named",
    "forget_joint_stream",
    "insert_named",
    "is_of_batch",
    "named_with_quorum",
]
