"""What a replica does with one part: it takes it over, takes its registration back, and lets go of what has left.

Entries of the log are shortened to what they register, which runs through `with_shares`.  The stages of the upkeep are those
that ship.

One process does the tasks of a replica, one after the other, and becomes active before the first of them: by the stages of
`replitree.protocol.program.life_in_store`.  After a crash another process does the task that was not done.  It knows what is
done from coordination and from its disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.parts import parse_part
from replitree.protocol.core.run import translate
from replitree.protocol.program import upkeep
from replitree.protocol.program.stages import (
    AwaitUpkeep,
    LeftDisk,
    LetGoEnded,
    Quieten,
    ReportTrouble,
    UpkeepTurn,
)
from replitree.protocol.shares import sharing
from replitree.protocol.shares.share import ShareId
from replitree.protocol.state import registration
from replitree_verify.shared_tables.memory import AwaitActive
from replitree_verify.shared_tables.world import CONTENT, replica_of, sharer_of
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


def _is_registered(name: str, part: str) -> fx.Procedure[bool]:
    return (yield fx.Get(layout.part(replica_of(name), part))) is not None


def _register(replica: Replica, epoch: fx.Epoch, part: str, gone: tuple[str, ...] = ()) -> fx.Procedure[None]:
    named = parse_part(part)
    operations: tuple[fx.Operation, ...] = (
        registration.register(replica, named, CONTENT),
        *(registration.deregister(replica, parse_part(each)) for each in gone),
    )
    yield from registration.finish(replica, epoch, (), operations, (named,), tuple(map(parse_part, gone)))


def take(name: str, part: str, source: str) -> Running:
    """Take a part over from another replica, and register it."""
    for _ in range(2):
        epoch = yield AwaitActive()
        if (yield from _is_registered(name, part)):
            return
        yield from sharing.with_shares(sharer_of(name), _take(replica_of(name), epoch, part, source))
        if (yield from _is_registered(name, part)):
            return
        yield ReportTrouble()


def _take(replica: Replica, epoch: fx.Epoch, part: str, source: str) -> fx.Procedure[None]:
    fetched = yield fx.FetchPart(part, CONTENT, (source,))
    if isinstance(fetched, fx.Fetched):
        yield from _register(replica, epoch, part)


def leave(name: str, part: str) -> Running:
    """Take a part's registration back, remove it from the disk, and let go of what has left."""
    replica = replica_of(name)
    for _ in range(2):
        epoch = yield AwaitActive()
        if (yield from _is_registered(name, part)):
            yield fx.Commit(
                fx.Check(layout.host(replica), epoch), fx.Delete(layout.part(replica, part), fx.ANY_VERSION)
            )
        if not (yield from _is_registered_now(name, part)):
            yield fx.RemovePart(part)
            yield from let_go(name, epoch)
            return
        yield ReportTrouble()


def _is_registered_now(name: str, part: str) -> fx.Procedure[bool]:
    yield fx.Sync(layout.parts(replica_of(name)))
    return (yield from _is_registered(name, part))


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
    "leave",
    "settle",
    "take",
]
