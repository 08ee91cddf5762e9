"""Replicas with disks: they write a part, take one over, take its registration back and keep it, and let go of it.

What is on a disk survives a crash.  So the next process first lets go of what is there and not registered, as
`replitree.protocol.program.upkeep` does.
"""

from __future__ import annotations

from typing import Any

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.run import translate
from replitree.protocol.program import upkeep
from replitree.protocol.program.stages import AwaitUpkeep, LeftDisk, LetGoEnded, UpkeepTurn
from replitree.protocol.shares import letting_go
from replitree.protocol.shares.share import LookAtObjects, ObjectsThere, ShareId
from replitree.protocol.shares.share_effects import SharedPart
from replitree_verify.sharing.checking import Discard, Keep, OnDisk
from replitree_verify.sharing.process import Process, Running, new_epoch, new_share, told_parts
from replitree_verify.sharing.world import replica_of, shares_in


def write(name: str, part: str, attempt: int) -> Running[None]:
    """Write a part: stage it, put its objects, register it.  A process after a crash, or in doubt, only tidies up."""
    if not attempt:
        own = new_share(part, name)
        parts = (SharedPart(part, own, is_new=True),)
        done = yield from Process(replica_of(name), fx.Epoch(0), parts, (own,), has_disk=True).insert(part)
        if isinstance(done, fx.Applied):
            return
    yield from tidy(name)


def take(name: str, part: str, source: str) -> Running[None]:
    """Take a part over: its manifest is on the disk before it is registered."""
    replica = replica_of(name)
    for _ in range(2):
        epoch = yield from new_epoch(replica)
        if epoch is None or (yield fx.Get(layout.part(replica, part))) is not None:
            return
        if (yield OnDisk(replica)):
            yield from _tidied(replica, epoch)
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
        if isinstance(outcome, fx.Unknown):
            continue
        if not isinstance(outcome, fx.Applied):
            yield Discard(replica, part)
        return


def retire(name: str, part: str) -> Running[None]:
    """Take a part's registration back and keep it, for readers."""
    replica = replica_of(name)
    host = yield fx.Get(layout.host(replica))
    proof = fx.Check(layout.host(replica), host.version)
    yield fx.Commit(proof, fx.Delete(layout.part(replica, part), fx.ANY_VERSION))


def tidy(name: str) -> Running[None]:
    """Let go of everything on the disk that is not registered."""
    replica = replica_of(name)
    epoch = yield from new_epoch(replica)
    if epoch is not None:
        yield from _tidied(replica, epoch)


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


def _tidied(replica: Replica, epoch: fx.Epoch) -> Running[None]:
    process = Process(replica, epoch)
    found: tuple[tuple[str, ShareId], ...] = yield OnDisk(replica)
    for part in dict.fromkeys(part for part, _ in found):
        if (yield fx.Get(layout.part(replica, part))) is not None:
            continue
        shares = tuple(share for each, share in found if each == part)
        yield from let_go(process, LeftDisk(part, part, shares))
    here = tuple(own for _, own in (yield OnDisk(replica)))
    process = Process(replica, epoch, here=here)
    yield from process.run(letting_go.give_up_attempts(process.sharer, epoch))


__all__ = ["leave_found", "let_go", "retire", "take", "tidy", "write"]
