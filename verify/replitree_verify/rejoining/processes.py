"""Processes that act for the replica: one joins, activates, and does what it still has in its hands.

Joining and activating are stages of the life thread, as far as `Opened`: the process has an epoch then, and knows which replica
of its name it is.  A process that finds another one active does no more: one that begins later stands for it.  An insert is
taken by the stages of `replitree.protocol.program.inserter`, a share is let go of by the upkeep.  Of an executor only the
commits are left: it registers a part, or counts the replica.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from typing import Any

from replitree.protocol.core import effects as fx
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.parts import parse_part
from replitree.protocol.insert import quorum
from replitree.protocol.insert.insert import Inserter, Request
from replitree.protocol.program import inserter, life_in_store
from replitree.protocol.program.stages import (
    Accept,
    Accepted,
    AwaitIdle,
    AwaitReplica,
    AwaitUpkeep,
    CurrentSharer,
    Forget,
    LeftDisk,
    LetGoEnded,
    Opened,
    Quieten,
    Release,
    ReportTrouble,
    Stage,
    Stop,
    UpkeepTurn,
)
from replitree.protocol.shares import sharing
from replitree.protocol.shares.share_effects import Sharer
from replitree.protocol.state import registration
from replitree_verify.rejoining.world import CONTENT, LATER, OPEN, PART, REMADE, STORE_ID, Seat, me_of, replica_of

Executed = Generator[Any, Any, None]


def register(name: str) -> Executed:
    """Register the part that was taken over from the other replica: its share is marked in the same commit."""
    epoch: fx.Epoch | None = yield fx.CurrentEpoch()
    sharer: Sharer = yield CurrentSharer()
    if epoch is not None and sharer.incarnation == name:  # the replica was added by this process
        yield from sharing.with_shares(sharer, _registering(sharer.replica, epoch))


def register_local(name: str) -> Executed:
    """Register the part of a table that has no object store."""
    epoch: fx.Epoch | None = yield fx.CurrentEpoch()
    if epoch is not None:
        yield from _registering(replica_of(name), epoch)


def _registering(replica: Replica, epoch: fx.Epoch) -> fx.Procedure[object]:
    part = parse_part(PART)
    operations = (registration.register(replica, part, CONTENT),)
    return registration.finish(replica, epoch, (), operations, (part,))


def count(name: str) -> Executed:
    """Count the replica for the open insert, which this process has executed."""
    epoch: fx.Epoch | None = yield fx.CurrentEpoch()
    if epoch is not None:
        yield from quorum.join(replica_of(name), epoch, fx.LogIndex(0), OPEN)


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


STAGES: Mapping[str, Callable[..., Generator[Any, Any, Any]]] = {
    each.__name__: each for each in (join_again, take_stand, insert_group)
}
"""What stands in for stages of the program, by their names."""


# --- the memory of a process --------------------------------------------------------------------------------------------------

ENOUGH = object()
"""Stands for the outcome of an effect with which a task ends."""


def remembered(seat: Seat, name: str, effect: Any) -> tuple[Any, Seat] | None:
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
        case LetGoEnded():  # what it can't let go of is tried again much later
            return None, replace(seat, leaving=())
        case Accept() | AwaitUpkeep() | AwaitReplica():
            return ENOUGH, seat
        case Quieten() | AwaitIdle() | Release() | ReportTrouble() | Stop():
            return None, seat
    return None


__all__ = ["ENOUGH", "STAGES", "count", "register", "register_local", "remembered"]
