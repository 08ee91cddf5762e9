"""What replicas of a table on an object store do otherwise, or more: stages that stand in for those of `life`.

They are kept line for line like `replica.activation`, `replica.mending` and `replica.sharing`; everything else a process does
as one of a table on local disks, run through `sharing.with_shares`.

* Before it finds out where it stands it agrees on the store, and learns which replica of its name it is.
* Before it shows anything, it gives up the attempts of earlier processes, and owns what is registered and has no mark.
* Who executes says who it is to the others: one replica makes a result for all.
* What was fetched again is owned before it is shown.
* Now and then it lets go of what has left its disk, and works the garbage off.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from replitree.protocol import letting_go, owning
from replitree.protocol.effects import Epoch, FindPart, StagingId
from replitree.protocol.fetch import refetch
from replitree.protocol.layout import Replica
from replitree.protocol.moving import give_up_claims
from replitree.protocol.pull import load
from replitree.protocol.share import work_off
from replitree.protocol.share_effects import Sharer
from replitree.protocol.start import sweep_staging
from replitree.protocol.table import Outcome, drop_replica, finish_leaving, join_table
from replitree.protocol.table_store import Store, agree_on_store, incarnation_of
from replitree.protocol.work_mark import give_up_left
from replitree.verify import life
from replitree.verify.life import AwaitLack, AwaitWork, BeginLoad, Mended, Stage, Stop, Then, WorkTurn
from replitree.verify.longlife import AwaitIdle, AwaitTurn, Forget
from replitree.verify.simulation.shared_disk import Left

STORE_ID = "the store"

# --- effects on the process ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Opened:
    """The store is the table's, and this is the replica's incarnation."""

    incarnation: str


@dataclass(frozen=True, slots=True)
class CurrentSharer:
    """Outcome: the `Sharer` that this process is."""


@dataclass(frozen=True, slots=True)
class ForAll:
    """Let the work of a turn be done as one who makes results for all.  Outcome: the `WorkTurn`."""

    turn: WorkTurn


@dataclass(frozen=True, slots=True)
class EndMaking:
    """Remove what was staged of results in vain, and hold it no more.  Outcome: None."""


@dataclass(frozen=True, slots=True)
class AsHeld:
    """Forget which parts are lacking that are not held any more.  Outcome: those of these that are left."""

    parts: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ListLeft:
    """Outcome: a `Left` for each of what has left the disk and was not let go of."""


@dataclass(frozen=True, slots=True)
class ListDetached:
    """Outcome: the shares in which rows of detached parts lie."""


@dataclass(frozen=True, slots=True)
class HasLeft:
    """Forget something that has left the disk: it was let go of.  Outcome: None."""

    left: Left


@dataclass(frozen=True, slots=True)
class Rest:
    """Wait a while: `long` until the next round of upkeep, otherwise until the same is tried again.  Outcome: None."""

    long: bool = False


ON_PROCESS = (Opened, CurrentSharer, ForAll, EndMaking, AsHeld, ListDetached, ListLeft)
"""Effects that take no time."""

# --- the life thread ----------------------------------------------------------------------------------------------------------


def take_stand(replica: Replica, me: bytes, epoch: Epoch, idle: tuple[StagingId, ...]) -> Stage:
    """Open the store first."""
    agreed = yield from agree_on_store(replica, STORE_ID)
    assert agreed is not Store.OTHER
    incarnation = (yield from incarnation_of(replica, me.decode())) if agreed is Store.RIGHT else None
    if incarnation is None:
        return Then(life.become_active, (replica, me))
    yield Opened(incarnation)
    return (yield from life.take_stand(replica, me, epoch, idle))


def tidy_up(replica: Replica, me: bytes, epoch: Epoch, idle: tuple[StagingId, ...]) -> Stage:
    """Settle what earlier processes have left between sweeping and showing."""
    yield BeginLoad()
    loaded = yield from load(replica)
    yield from sweep_staging(idle, loaded)
    sharer: Sharer = yield CurrentSharer()
    if not (yield from give_up_claims(sharer)):
        return Then(life.become_active, (replica, me))
    yield from letting_go.give_up_attempts(sharer, epoch)
    yield from owning.own_held(sharer, tuple(part.name for part in loaded.held))
    return (yield from life.serve_loaded(replica, me, epoch, loaded))


def join_again(replica: Replica, me: bytes) -> Stage:
    """Join the table as another replica of this name; the shares of the one that was dropped are let go of."""
    yield AwaitIdle()
    yield Forget()
    yield from finish_leaving(replica, shared=True)
    match (yield from join_table(replica, me.decode())):
        case Outcome.MISSING | Outcome.DROPPED | Outcome.WORN:
            yield Stop()
            return None
    return Then(life.become_active, (replica, me))


# --- the executors and the mender ---------------------------------------------------------------------------------------------


def execute_next(replica: Replica) -> Stage:
    """Execute what is in the queue, but for merges and mutations."""
    yield from _execute(replica, makes=False)
    return Then(life.execute_next, (replica,))


def make_next(replica: Replica) -> Stage:
    """Execute a merge or a mutation, for all."""
    yield from _execute(replica, makes=True)
    return Then(life.make_next, (replica,))


def _execute(replica: Replica, *, makes: bool) -> Generator[Any, Any, None]:
    turn: WorkTurn = yield AwaitWork(makes)
    turn = yield ForAll(turn)
    done = yield from life.execute_turn(replica, turn)
    if makes:
        yield EndMaking()
    if not done:
        yield Rest()  # who waits for the one that makes it is told by a watch, which is not simulated


def mend_next(replica: Replica) -> Stage:
    """Fetch again what is registered and not whole on disk, and own it before it is shown."""
    wanted: tuple[tuple[str, str], ...] = yield AwaitLack()
    wanted = yield AsHeld(wanted)
    lacking: list[tuple[str, str]] = []
    for name, content in wanted:
        if (yield FindPart(name)) != content:
            lacking.append((name, content))
    still = (yield from refetch(replica, tuple(lacking))) if lacking else ()
    whole = tuple(name for name, _ in wanted if name not in still)
    sharer: Sharer = yield CurrentSharer()
    gone = (yield from owning.own_again(sharer, whole)) if whole else ()
    yield Mended(tuple(name for name in whole if name not in gone))
    if still or gone:
        yield Rest()
    return Then(life.mend_next, (replica,))


# --- upkeep -------------------------------------------------------------------------------------------------------------------


def keep_shares(replica: Replica) -> Stage:
    """Do one round: let go of what has left the disk, give up work marks, work the garbage off."""
    epoch: Epoch = yield AwaitTurn()
    sharer: Sharer = yield CurrentSharer()
    for left in (yield ListLeft()):
        if (yield from letting_go.let_go_of_all(sharer, epoch, left.part, (left.share,))):
            yield HasLeft(left)
    yield from give_up_left(sharer, epoch)
    yield from work_off(replica.table)
    yield Rest(long=True)
    return Then(keep_shares, (replica,))


def drop_other(operator: Replica, name: str) -> Generator[Any, Any, None]:
    """Take a replica out of the table, with its shares."""
    yield from drop_replica(Replica(operator.table, name), shared=True)


STAGES: dict[str, Callable[..., Generator[Any, Any, Any]]] = {
    each.__name__: each for each in (take_stand, tidy_up, join_again, execute_next, make_next, mend_next, drop_other)
}
"""What stands in for the stages of `life` and `longlife`, by their names."""


__all__ = [
    "ON_PROCESS", "STAGES", "STORE_ID", "AsHeld", "CurrentSharer", "EndMaking", "ForAll", "HasLeft", "ListDetached",
    "ListLeft", "Opened", "Rest", "keep_shares",
]  # fmt: skip
