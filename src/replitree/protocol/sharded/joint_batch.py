"""A batch of a stream that goes into several shards: each batch is inserted once, over all shards and maps.

The node ``sharded/<D>/streams/<id>`` names the last batch of a stream and its joint insert.  It moves in the commit of that
insert (`protocol.sharded.joint_insert`), by the rules of a stream into one table (`protocol.insert.stream`)::

    Check(coordinator host @ epoch), Create(tokens/batch-<joint id>), Check(map @ version), for each participant: …,
    Check(streams @ version) | Create(streams), Set(streams/<id> @ version) | Create(streams/<id>),
    for each shard: Create(log-…)

So node and entries exist together or not at all (S2), and of the commits of one batch at most one takes effect (S1), whichever
coordinators its drivers ask, and by whichever map they split the rows.

The token is one that no client has named: it says which entries the batch has in which shard, as the token of any joint insert
does.  It decides nothing.  When it is forgotten, the batch is still known by its stream, and its entries are not.

==========================================  ====================================================================
what the coordinator finds when it commits  what it does
==========================================  ====================================================================
the stream stands elsewhere                 reads it again, and decides again: a duplicate, refused, or another try
anything else                               as of any joint insert
==========================================  ====================================================================

*Unknown.*  The stream may have moved on since, and the token may be forgotten, so neither proves anything: the coordinator
takes another epoch, and the log of its own shard says what became of the commit, as of any joint insert.

*Removal.*  A stream that is forgotten (`forget_joint_stream`) loses its node, and the versions of its next node begin anew.  So
each removal raises the version of ``streams``, which every commit that moves a stream checks.

Absent on purpose: a quorum, whose failure would have to set the stream back; and an age at which streams are forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.streams import StreamBatch, StreamValue
from replitree.protocol.insert.stream import decide, read_stream
from replitree.protocol.sharded.joint_insert import (
    JointInsert,
    JointInserted,
    JointOutcome,
    StreamMoved,
    find_joint,
    joint_insert,
)

TURNS_MAX = 20
"""How often a stream is read again because other drivers have moved it."""

FORGETS_MAX = 10
"""Tries of a removal while batches move the stream."""


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
    return fx.BlockId(f"batch-{joint}")


def insert_named(insert: JointInsert, batch: JointBatch | None, me: bytes) -> fx.Procedure[JointOutcome]:
    """Append the entries of an insert to all its shards, and move the stream if it is a batch of one, in one commit.

    Parameters
    ----------
    insert
        What is prepared.  The token of a batch is `batch_token`, and it has no quorum.
    batch, me
        The batch; None: the token names the insert.  And the coordinator's process.

    Returns
    -------
    `NotInserted` with `Why.STREAM`: the stream belongs to another query.  Others as of `joint_insert`.
    """
    if batch is None:
        named = yield from joint_insert(insert, me)
        assert not isinstance(named, StreamMoved)
        return named
    assert not insert.quorum
    own, streams = insert.participants[0], TablePlace(insert.place)
    for _ in range(TURNS_MAX):
        decided = yield from decide(streams, batch.of, takes_over=batch.takes_over)
        if isinstance(decided, fx.NotInserted):
            return decided
        if isinstance(decided, StreamValue):
            return (yield from _named(decided, insert.place, own.replica.table))
        # Staging ids are those of one shard, and the stream is that of all.
        value = StreamValue(batch.of.query, batch.of.batch, fx.StagingId(insert.id), own.log_from)
        outcome = yield from joint_insert(insert, me, decided.move(streams, batch.of, value))
        if not isinstance(outcome, StreamMoved):
            return outcome
    return fx.NotInserted("other drivers move the stream all the time; try again")


def find_named(
    place: str, beside: TablePlace, token: fx.BlockId, batch: JointBatch | None
) -> fx.Procedure[JointInserted | None]:
    """Look whether a table has what a token or a batch names, for a client that has lost its answer.

    Parameters
    ----------
    place, beside
        The path of the sharded table, and one of its shards.

    Returns
    -------
    As of `find_joint`.  None of a batch: its query has not inserted it, or another query has the stream by now.
    """
    if batch is None:
        return (yield from find_joint(place, beside, token))
    streams = TablePlace(place)
    yield fx.Sync(layout.stream(streams, batch.of.stream))
    value = (yield from read_stream(streams, batch.of.stream)).value
    if value is None or value.query != batch.of.query or value.batch < batch.of.batch:
        return None
    return (yield from _named(value, place, beside))


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


def _named(value: StreamValue, place: str, beside: TablePlace) -> fx.Procedure[JointInserted]:
    """Return the insert that a stream names, as a duplicate; without its entries, if its token is forgotten."""
    found = yield from find_joint(place, beside, batch_token(fx.JointId(value.insert)))
    return JointInserted(fx.JointId(""), (), is_duplicate=True) if found is None else found


__all__ = ["JointBatch", "batch_token", "find_named", "forget_joint_stream", "insert_named"]
