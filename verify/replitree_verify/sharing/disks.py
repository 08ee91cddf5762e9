"""Replicas with disks: they take a part over, take its registration back and keep it, and let go of it.

What is on a disk survives a crash.  So the next process first lets go of what is there and not registered, by the stages of
`replitree.protocol.program.upkeep`.
"""

from __future__ import annotations

from typing import Any

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.run import translate
from replitree.protocol.program import upkeep
from replitree.protocol.program.stages import AwaitUpkeep, LeftDisk, LetGoEnded, ReportTrouble, UpkeepTurn
from replitree.protocol.shares.share import LookAtObjects, ObjectsThere, ShareId
from replitree_verify.sharing.checking import Discard, Keep, OnDisk
from replitree_verify.sharing.process import Process, Running, is_trouble, told_parts
from replitree_verify.sharing.world import replica_of, shares_in


def take(name: str, part: str, source: str) -> Running[None]:
    """Take a part over: its manifest is on the disk before it is registered."""
    replica = replica_of(name)
    epoch: fx.Epoch = yield fx.CurrentEpoch()
    if (yield fx.Get(layout.part(replica, part))) is not None:
        return
    yield from tidy(name)
    told = yield fx.Get(layout.part(replica_of(source), part))
    if told is None:
        return
    parts = told_parts(part, told.value)
    for each in parts:
        yield Keep(replica, part, each.share)
    if not isinstance((yield LookAtObjects(shares_in(told.value))), ObjectsThere):
        yield Discard(replica, part)
        return
    outcome = yield from Process(replica, epoch, parts).take_over(part)
    if is_trouble(replica, outcome):
        yield ReportTrouble()
    elif not isinstance(outcome, fx.Applied):
        yield Discard(replica, part)


def retire(name: str, part: str) -> Running[None]:
    """Take a part's registration back and keep it, for readers."""
    replica = replica_of(name)
    epoch: fx.Epoch = yield fx.CurrentEpoch()
    proof = fx.Check(layout.host(replica), epoch)
    if is_trouble(replica, (yield fx.Commit(proof, fx.Delete(layout.part(replica, part), fx.ANY_VERSION)))):
        yield ReportTrouble()


def tidy(name: str) -> Running[None]:
    """Let go of everything on the disk that is not registered."""
    replica = replica_of(name)
    epoch: fx.Epoch = yield fx.CurrentEpoch()
    found: tuple[tuple[str, ShareId], ...] = yield OnDisk(replica)
    for part in dict.fromkeys(part for part, _ in found):
        if (yield fx.Get(layout.part(replica, part))) is not None:
            continue
        shares = tuple(share for each, share in found if each == part)
        yield from let_go(Process(replica, epoch), LeftDisk(part, part, shares))


def leave_found(name: str, part: str) -> Running[None]:
    """Let go of a part that was found again."""
    if any(here == part for here, _ in (yield OnDisk(replica_of(name)))):
        yield from retire(name, part)
        yield from tidy(name)


def let_go(process: Process, left: LeftDisk) -> Running[Any]:
    """Let go of something that is to leave the disk: a turn of the upkeep."""

    def each(effect: Any) -> Running[Any]:
        match effect:
            case AwaitUpkeep():
                return UpkeepTurn(process.sharer, process.epoch, left)
            case LetGoEnded(is_gone=True):
                yield Discard(process.replica, left.part)
                return None
            case LetGoEnded():
                return None
        return (yield effect)

    return process.run(translate(upkeep.let_go_next(process.replica), each))


__all__ = ["leave_found", "let_go", "retire", "take", "tidy"]
