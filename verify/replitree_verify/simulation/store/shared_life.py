"""What replicas of a table on an object store do otherwise, or more: stages that stand in for those of `life`.

They correspond to `replica.table.mending` and `replica.parts.sharing`; the life thread is the replica's own
(`protocol.program.life_in_store`).  Everything else a process does as one of a table on local disks, run through
`sharing.with_shares`.

* Who executes says who it is to the others: one replica makes a result for all.
* What was fetched again is owned before it is shown.
* Now and then it lets go of what has left its disk, and works the garbage off.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from replitree.protocol.core.effects import Epoch, FindPart
from replitree.protocol.core.layout import Replica
from replitree.protocol.membership.table import drop_replica
from replitree.protocol.program import executor, stages
from replitree.protocol.program.stages import AwaitWork, Stage, Then, WorkTurn
from replitree.protocol.shares import letting_go, owning
from replitree.protocol.shares.share import work_off
from replitree.protocol.shares.share_effects import Sharer
from replitree.protocol.state.fetch import refetch
from replitree.protocol.state.work_mark import give_up_left
from replitree_verify.process import threads
from replitree_verify.process.longlife import AwaitTurn
from replitree_verify.process.threads import AwaitLack, Mended
from replitree_verify.simulation.store.shared_disk import Left

STORE_ID = "the store"

# --- effects on the process ---------------------------------------------------------------------------------------------------


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


ON_PROCESS = (stages.Opened, stages.CurrentSharer, ForAll, EndMaking, AsHeld, ListDetached, ListLeft)
"""Effects that take no time."""

# --- the life thread ----------------------------------------------------------------------------------------------------------


# --- the executors and the mender ---------------------------------------------------------------------------------------------


def execute_next(replica: Replica) -> Stage:
    """Execute what is in the queue, but for merges and mutations."""
    yield from _execute(replica, makes=False)
    return Then(executor.execute_next, (replica,))


def make_next(replica: Replica) -> Stage:
    """Execute a merge or a mutation, for all."""
    yield from _execute(replica, makes=True)
    return Then(executor.make_next, (replica,))


def _execute(replica: Replica, *, makes: bool) -> Generator[Any, Any, None]:
    turn: WorkTurn = yield AwaitWork(makes)
    turn = yield ForAll(turn)
    done = yield from executor.execute_turn(replica, turn)
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
    sharer: Sharer = yield stages.CurrentSharer()
    gone = (yield from owning.own_again(sharer, whole)) if whole else ()
    yield Mended(tuple(name for name in whole if name not in gone))
    if still or gone:
        yield Rest()
    return Then(threads.mend_next, (replica,))


# --- upkeep -------------------------------------------------------------------------------------------------------------------


def keep_shares(replica: Replica) -> Stage:
    """Do one round: let go of what has left the disk, give up work marks, work the garbage off."""
    epoch: Epoch = yield AwaitTurn()
    sharer: Sharer = yield stages.CurrentSharer()
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
    each.__name__: each for each in (execute_next, make_next, mend_next, drop_other)
}
"""What stands in for the stages of `life` and `longlife`, by their names."""


__all__ = [
    "ON_PROCESS", "STAGES", "STORE_ID", "AsHeld", "EndMaking", "ForAll", "HasLeft", "ListDetached",
    "ListLeft", "Rest", "keep_shares",
]  # fmt: skip
