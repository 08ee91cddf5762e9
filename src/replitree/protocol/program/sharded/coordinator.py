"""The coordinator: commits a joint insert with the rows that it and the participants have prepared.

Its own rows are held in this process (`replitree.protocol.program.sharded.participant`), without a node.  `TakeOwn` takes them:
from then on nothing else gives them up.  What becomes of them follows from the outcome:

==========================================  =====================================================================
outcome                                     its own rows
==========================================  =====================================================================
inserted                                    let go: the executor publishes them when the replica has pulled the entry
in doubt                                    let go: the next activation sweeps them, unless the entry is in the queue
a participant is gone, or nothing was sent  kept: the client commits again
everything else                             removed: this insert never takes place
==========================================  =====================================================================

*Beside.*  The coordinator's process may have staged the rows of other shards, too: as their replica, without nodes.  They are
taken together with its own rows, and become what these become.

A client whose answer was lost asks again.  If the rows are not held any more, the token tells whether they are in the table:
the process asks only while it is active, so a commit under an earlier epoch is decided.

Absent on purpose: the wait for a quorum, which is that of any insert (`replitree.protocol.program.quorum_waiter`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.effects import BlockId, JointId, LogIndex, RequestId, StagingId, Version
from replitree.protocol.core.layout import Replica
from replitree.protocol.membership.activate import Replaced
from replitree.protocol.program import quorum_waiter
from replitree.protocol.program.sharded.participant import LetGoRows
from replitree.protocol.program.stages import End, MemoryEffect, ReportTrouble, Stage, Then
from replitree.protocol.sharded.joint_batch import JointBatch, find_named, insert_named
from replitree.protocol.sharded.joint_insert import (
    JointInsert,
    JointInserted,
    JointOutcome,
    RewrittenShard,
    find_awaited,
)
from replitree.protocol.sharded.prepare import Participant, ParticipantGone, abandon


@dataclass(frozen=True, slots=True)
class TakeOwn(MemoryEffect):
    """Wait until the process is active, then take what it has staged under an id for a joint insert.  Outcome: `OwnTurn`."""

    staging: StagingId


@dataclass(frozen=True, slots=True)
class OwnTurn:
    """What the coordinator works with: the process, as of `activate`, and its own rows.

    `own` is None if the process does not hold them: they were given up, or another process has prepared them.  `beside` are the
    rows that the process has staged as replica of other shards; it holds all of them if it holds its own.
    """

    me: bytes
    own: Participant | None
    beside: tuple[Participant, ...] = ()


@dataclass(frozen=True, slots=True)
class KeepOwn(MemoryEffect):
    """The process keeps its own rows for another try, until their time is over."""

    staging: StagingId


class Became(Enum):
    """What becomes of rows that the coordinator's process has staged: as in the table above."""

    LET_GO = "let go"
    KEPT = "kept"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class EndBeside(MemoryEffect):
    """The process lets go, keeps or removes what it has staged for other shards (`OwnTurn.beside`); none has a node."""

    became: Became


@dataclass(frozen=True, slots=True)
class OwnGone:
    """Certainly nothing was inserted under this token: the coordinator does not hold its own rows (any more)."""


@dataclass(frozen=True, slots=True)
class JointRequest:
    """What a client asks the coordinator for.

    Attributes
    ----------
    joint, token, map_version, quorum, also, drops
        As of `JointInsert`.
    since
        Of a rewrite: the positions at which its client has read the coordinator's shard, and those of `others`.
    own
        Under which id the coordinator has staged its own rows.
    others
        What the participants have prepared.
    batch
        The batch of a stream that the rows are; None: the token names them.
    targets, fills
        As of `JointInsert`.
    """

    joint: JointId
    token: BlockId
    map_version: Version
    own: StagingId
    others: tuple[Participant, ...]
    quorum: int = 0
    batch: JointBatch | None = None
    also: tuple[BlockId, ...] = ()
    drops: tuple[str, ...] = ()
    since: tuple[LogIndex, ...] = ()
    targets: tuple[tuple[str, Version], ...] = ()
    fills: str = ""


CoordinatorOutcome: TypeAlias = JointOutcome | OwnGone
"""What a coordinator finds out."""


def insert_jointly(replica: Replica, request: RequestId, asked: JointRequest) -> Stage:
    """Commit a joint insert; find out what became of it.

    Parameters
    ----------
    replica
        The coordinator.
    request
        Is answered when the quorum of the insert, or of the one that it repeats, has ended.

    Returns
    -------
    With `Then` the request waits for a quorum; the outcome is found out in either case.
    """
    place, turn = layout.sharded_of(replica.table), (yield TakeOwn(asked.own))
    assert isinstance(turn, OwnTurn)
    outcome: CoordinatorOutcome
    token: BlockId | None
    if turn.own is None:
        # Of rows of several clients one token tells nothing of the others.
        found = None if asked.also else (yield from find_named(place, replica.table, asked.token, asked.batch))
        outcome, token = found or (OwnGone(), None)
    else:
        own = turn.own
        participants, became = (own, *turn.beside, *asked.others), Became.KEPT
        rewrites = tuple(map(RewrittenShard, asked.since))
        terms = asked.map_version, participants, asked.quorum, asked.also, asked.drops, (), rewrites
        insert = JointInsert(asked.joint, place, asked.token, *terms, asked.targets, asked.fills)
        outcome, token = yield from insert_named(insert, asked.batch, turn.me)
        if isinstance(outcome, fx.InDoubt | Replaced):
            # First: while its rows are taken, no other request takes a missing token for the proof that nothing was inserted.
            yield ReportTrouble()
        match outcome:
            case JointInserted(is_duplicate=False) | fx.InDoubt():
                became = Became.LET_GO
                yield LetGoRows(own.staging)
            case fx.NotInserted():
                yield KeepOwn(own.staging)
            case ParticipantGone(participant=gone) if gone is not own:
                yield KeepOwn(own.staging)
            case _:
                became = Became.REMOVED
                yield from abandon(own, turn.me)
                yield LetGoRows(own.staging)
        if turn.beside:
            yield EndBeside(became)
    if token is None or not isinstance(outcome, JointInserted):
        return End(outcome)
    awaited = yield from find_awaited(place, replica.table, token, outcome, request)
    if awaited is None or isinstance(awaited, fx.InDoubt):
        return End(outcome if awaited is None else awaited)
    return Then(quorum_waiter.await_quorum, (replica, (awaited,)), outcome)


__all__ = [
    "Became",
    "CoordinatorOutcome",
    "EndBeside",
    "JointRequest",
    "KeepOwn",
    "OwnGone",
    "OwnTurn",
    "TakeOwn",
    "insert_jointly",
]
