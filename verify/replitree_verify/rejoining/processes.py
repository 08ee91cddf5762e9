"""Processes that act for the replica: one joins, activates, and does what it still has in its hands.

Joining and activating are stages of the life thread, as far as `Opened`: the process has an epoch then, and knows which replica
of its name it is.  A process that finds another one active does no more: one that begins later stands for it.  An insert is
taken by the stages of `replitree.protocol.program.inserter`, the entry of another replica's insert is executed by those of
`replitree.protocol.program.executor`, a share is let go of by the upkeep.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from typing import Any

from replitree.protocol.core import effects as fx
from replitree.protocol.core.fold import apply
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.insert.insert import Inserter, Request
from replitree.protocol.program import executor, inserter, life_in_store
from replitree.protocol.program.stages import (
    Accept,
    Accepted,
    AskReload,
    AwaitIdle,
    AwaitReplica,
    AwaitUpkeep,
    AwaitWork,
    CurrentSharer,
    Forget,
    GiveBack,
    LeftDisk,
    LetGoEnded,
    Opened,
    Quieten,
    Release,
    ReportTrouble,
    Stage,
    Stop,
    UpkeepTurn,
    WorkTurn,
)
from replitree.protocol.shares import sharing
from replitree.protocol.shares.share_effects import Sharer
from replitree.protocol.state.pull import Queued
from replitree.protocol.state.registration import View
from replitree_verify.rejoining.world import INSERT, LATER, PULLED, REMADE, STORE_ID, Seat, me_of, replica_of

# --- stages of the program, with the shares and the incarnation of a process --------------------------------------------------


def _in_store(stage: str, replica: Replica, me: bytes, *more: Any) -> Stage:
    incarnation = LATER if replica.table == REMADE else me.decode()
    return life_in_store.stages_in_store(STORE_ID, incarnation)[stage](replica, me, *more)


def join_again(replica: Replica, me: bytes) -> Stage:
    """Join as the process that runs it."""
    return _in_store("join_again", replica, me)


def take_stand(replica: Replica, me: bytes, *more: Any) -> Stage:
    """Find out which replica of its name it is."""
    return _in_store("take_stand", replica, me, *more)


def insert_group(
    appends: Inserter, epoch: fx.Epoch, staging: fx.StagingId, requests: tuple[Request, ...]
) -> Generator[Any, Any, Any]:
    """Insert a group, and keep its shares."""
    sharer: Sharer = yield CurrentSharer()
    return (yield from sharing.with_shares(sharer, inserter.insert_group(appends, epoch, staging, requests)))


def execute_shared(replica: Replica) -> Generator[Any, Any, Any]:
    """Execute an entry of the queue, and keep the shares of what it registers."""
    sharer: Sharer = yield CurrentSharer()
    return (yield from sharing.with_shares(sharer, executor.execute_next(replica)))


STAGES: Mapping[str, Callable[..., Generator[Any, Any, Any]]] = {
    each.__name__: each for each in (join_again, take_stand, insert_group)
}
"""What stands in for stages of the program, by their names."""


# --- the memory of a process --------------------------------------------------------------------------------------------------

ENOUGH = object()
"""Stands for the outcome of an effect with which a task ends."""


def _work_turn(epoch: fx.Epoch, *, is_open: bool) -> WorkTurn:
    """Return what an executor works with that has pulled the insert of the other replica, and nothing else.

    Parameters
    ----------
    is_open
        Whether the quorum of the insert is open where the replica stands in the log.
    """
    opened = (PULLED,) if is_open else ()
    parts, change = apply(PartSet(), PULLED, INSERT, opened=opened)
    return WorkTurn(epoch, View(parts, PartSet(), opened=opened), (Queued(PULLED, INSERT, change),))


def remembered(seat: Seat, name: str, effect: Any, *, is_open: bool) -> tuple[Any, Seat] | None:
    """Return the outcome of an effect on a process's memory, and that memory after it; None for all other effects."""
    sharer = Sharer(replica_of(name), seat.incarnation)
    match effect:
        case Forget():
            return None, replace(seat, epoch=None, incarnation="")
        case Opened(incarnation):
            return ENOUGH, replace(seat, incarnation=incarnation)
        case CurrentSharer():
            return sharer, seat
        case Accept() if seat.epoch is not None:
            return Accepted(me_of(name), seat.epoch, fx.LogIndex(0), fx.StagingId(f"{name}-1")), seat
        case AwaitUpkeep() if seat.epoch is not None and seat.leaving:
            ((part, share),) = seat.leaving
            return UpkeepTurn(sharer, seat.epoch, LeftDisk(share, part, (share,))), seat
        case AwaitWork() if seat.epoch is not None:
            return _work_turn(seat.epoch, is_open=is_open), seat
        case LetGoEnded():  # what it can't let go of is tried again much later
            return None, replace(seat, leaving=())
        case Accept() | AwaitUpkeep() | AwaitReplica() | AwaitWork() | GiveBack():
            return ENOUGH, seat
        case AskReload() | Quieten() | AwaitIdle() | Release() | ReportTrouble() | Stop():
            return None, seat
    return None


__all__ = ["ENOUGH", "STAGES", "execute_shared", "remembered"]
