"""The life thread of a replica whose table lies in an object store: stages that stand in for those of `life`.

* Before it finds out where it stands it agrees with the other replicas on the store, and learns its incarnation.
* Before it shows anything, it gives up the attempts of earlier processes, and owns what is registered and has no mark.
* It joins under an incarnation, and the shares of a dropped replica of its name are given up.

A table may get an object store while the replica is active: `open_store` does for it what these stages do beside the life
thread's own.

All stages but `open_store`, which begins without a store, run through `replitree.protocol.shares.sharing.with_shares`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from replitree.protocol.core.effects import Epoch, Procedure, StagingId
from replitree.protocol.core.layout import Replica
from replitree.protocol.membership.table import TableOutcome, finish_leaving, join_table
from replitree.protocol.program import life
from replitree.protocol.program.stages import AwaitIdle, BeginLoad, CurrentSharer, End, Forget, Opened, Stage, Then
from replitree.protocol.shares import letting_go, owning
from replitree.protocol.shares.moving import give_up_claims
from replitree.protocol.shares.share_effects import Sharer
from replitree.protocol.shares.table_store import Store, agree_on_store, incarnation_of
from replitree.protocol.state.pull import Fenced, load
from replitree.protocol.state.start import sweep_staging

CLAIM_UNREAD = "whether a part is still claimed could not be read; it is tried again"


def stages_in_store(store_id: str, incarnation: str) -> Mapping[str, Callable[..., Stage]]:
    """Return what stands in for stages of `life`, by their names.

    Parameters
    ----------
    store_id
        Id of the store that this process reaches.
    incarnation
        That of this process: what the replica gets if it joins now, or has none yet.
    """
    return {
        "take_stand": partial(_take_stand, store_id, incarnation),
        "join_again": partial(_join_again, incarnation),
        "tidy_up": _tidy_up,
    }


@dataclass(frozen=True, slots=True)
class Reached:
    """The store is the table's, and this is the replica's incarnation."""

    incarnation: str


@dataclass(frozen=True, slots=True)
class StoreNotReached:
    """The replica can't use the store now: `reason` is for an operator."""

    reason: str


def open_store(replica: Replica, epoch: Epoch, store_id: str, incarnation: str) -> Stage:
    """Open the store of a table that gets one while the replica is active; find out whether it may be used.

    Parameters
    ----------
    epoch
        Under which the replica is active.
    store_id, incarnation
        As in `stages_in_store`.
    """
    reached = yield from _reach_store(replica, epoch, store_id, incarnation)
    if isinstance(reached, Reached):
        if not (yield from settle_shares(Sharer(replica, reached.incarnation), epoch)):
            return End(StoreNotReached(CLAIM_UNREAD))
        # Last: an insert that begins in an open store has to find it open when its part is registered, to mark its share.
        yield Opened(reached.incarnation)
    return End(reached)


def _reach_store(
    replica: Replica, epoch: Epoch, store_id: str, incarnation: str
) -> Procedure[Reached | StoreNotReached]:
    """Agree with the other replicas on the store, and learn the replica's incarnation.  Parameters as `open_store`."""
    match (yield from agree_on_store(replica, epoch, store_id)):
        case Store.OTHER:
            return StoreNotReached(
                "the object store is another store here than for the table's other replicas: let the server reach the same one,"
                " or use another server"
            )
        case Store.UNSETTLED:
            return StoreNotReached("whether the object store is the table's could not be read; it is tried again")
    known = yield from incarnation_of(replica, epoch, incarnation)
    return Reached(known) if known is not None else StoreNotReached("the replica's incarnation could not be read")


def settle_shares(sharer: Sharer, epoch: Epoch) -> Generator[Any, Any, bool]:
    """Give up what earlier processes had begun to write; False: an answer was lost, so another epoch is needed."""
    if not (yield from give_up_claims(sharer)):
        return False
    yield from letting_go.give_up_attempts(sharer, epoch)
    return True


def _take_stand(
    store_id: str, incarnation: str, replica: Replica, me: bytes, epoch: Epoch, idle: tuple[StagingId, ...]
) -> Stage:
    """Reach the store first."""
    match (yield from _reach_store(replica, epoch, store_id, incarnation)):
        case Reached(known):
            yield Opened(known)
            return (yield from life.take_stand(replica, me, epoch, idle))
        case StoreNotReached(reason):
            return Then(life.become_active, (replica, me), reason)
    raise AssertionError("the store was reached or not")


def _tidy_up(replica: Replica, me: bytes, epoch: Epoch, idle: tuple[StagingId, ...]) -> Stage:
    """Settle what earlier processes have left, between sweeping and showing."""
    yield BeginLoad()
    loaded = yield from load(replica)
    if isinstance(loaded, Fenced):
        return Then(life.become_active, (replica, me), loaded)
    yield from sweep_staging(idle, loaded)
    sharer: Sharer = yield CurrentSharer()
    if not (yield from settle_shares(sharer, epoch)):
        return Then(life.become_active, (replica, me), CLAIM_UNREAD)
    yield from owning.own_held(sharer, tuple(part.name for part in loaded.held))
    return (yield from life.serve_loaded(replica, me, epoch, loaded))


def _join_again(incarnation: str, replica: Replica, me: bytes) -> Stage:
    """Join the table as another replica of this name."""
    yield AwaitIdle()
    yield Forget()
    left = yield from finish_leaving(replica, shared=True)
    if left is not TableOutcome.DONE:
        return Then(life.become_active, (replica, me), "the replica was dropped, and its nodes can't be removed now")
    return (yield from life.activate_joined(replica, me, (yield from join_table(replica, incarnation))))


__all__ = ["Reached", "StoreNotReached", "open_store", "settle_shares", "stages_in_store"]
