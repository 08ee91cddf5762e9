"""What a replica does with what has left its disk: it lets go of it, by the stages of the upkeep that ship.

One process does the tasks of a replica, one after the other, and becomes active before the first of them: by the stages of
`replitree.protocol.program.life_in_store`.  After a crash another process does the task that was not done.  It knows what is
done from coordination and from its disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from replitree.protocol.core import effects as fx
from replitree.protocol.core.run import translate
from replitree.protocol.program import upkeep
from replitree.protocol.program.stages import (
    AwaitUpkeep,
    LeftDisk,
    LetGoEnded,
    Quieten,
    UpkeepTurn,
)
from replitree.protocol.shares.share import ShareId
from replitree_verify.shared_tables.memory import AwaitActive
from replitree_verify.shared_tables.world import replica_of, sharer_of
from replitree_verify.world.kernel import Running

FIRST_EPOCH = fx.Epoch(0)
"""Of processes that are active at the beginning."""


@dataclass(frozen=True, slots=True)
class ListLeaving:
    """Outcome: part (empty: it was only staged) and shares of what has left the disk and was not let go of."""


@dataclass(frozen=True, slots=True)
class HasLeft:
    """Forget something that has left the disk: all of it was let go of.  Outcome: None."""

    part: str
    shares: tuple[ShareId, ...]


def let_go(name: str, epoch: fx.Epoch) -> Running:
    """Let go of all that has left the disk: a turn of the upkeep for each."""
    for part, shares in (yield ListLeaving()):
        yield from _let_go_of(name, epoch, LeftDisk(part, part, shares))


def _let_go_of(name: str, epoch: fx.Epoch, left: LeftDisk) -> Running:
    def each(effect: Any) -> Running:
        match effect:
            case AwaitUpkeep():
                return UpkeepTurn(sharer_of(name), epoch, left)
            case LetGoEnded(is_gone=True):
                yield HasLeft(left.part, left.shares)
            case LetGoEnded():
                return None
            case _:
                return (yield effect)
        return None

    yield from translate(upkeep.let_go_next(replica_of(name)), each)


def settle(name: str) -> Running:
    """Let go of what earlier tasks have left, if they have; the last task of a replica."""
    if not (yield ListLeaving()):
        return
    for _ in range(2):
        epoch = yield AwaitActive()
        yield from let_go(name, epoch)
        if not (yield ListLeaving()):
            return


def go_on() -> fx.Procedure[fx.Epoch]:
    """Be active since before all this; return the epoch."""
    yield Quieten()
    yield fx.AdoptEpoch(FIRST_EPOCH)
    return FIRST_EPOCH


__all__ = [
    "HasLeft",
    "ListLeaving",
    "go_on",
    "settle",
]
