"""What the processes of the models with disks do: the procedures of `shares.sharing`, `rescue.fsck_repair`, and a disk.

What is on a disk survives a crash.  So the next process first tidies up: whatever is there and not registered it lets go of.
"""

from __future__ import annotations

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica
from replitree.protocol.rescue import fsck_repair
from replitree.protocol.shares import letting_go
from replitree.protocol.shares.share import LookAtObjects, ObjectsThere, ShareId
from replitree.protocol.shares.share_effects import SharedPart
from replitree_verify.sharing.checking import GRACE_MS, Discard, Keep, OnDisk, OthersDone, Told
from replitree_verify.sharing.process import Process, Running, new_epoch, new_share, told_parts
from replitree_verify.sharing.world import TABLE, replica_of, shares_in


def write(name: str, part: str, attempt: int) -> Running[None]:
    """Write a part: stage it, put its objects, register it.  Whoever comes after a crash, or is in doubt, only tidies up."""
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


def _tidied(replica: Replica, epoch: fx.Epoch) -> Running[None]:
    process = Process(replica, epoch)
    found: tuple[tuple[str, ShareId], ...] = yield OnDisk(replica)
    for part in dict.fromkeys(part for part, _ in found):
        if (yield fx.Get(layout.part(replica, part))) is not None:
            continue
        shares = tuple(share for each, share in found if each == part)
        if (yield from process.run(letting_go.let_go_of_all(process.sharer, epoch, part, shares))):
            yield Discard(replica, part)
    here = tuple(own for _, own in (yield OnDisk(replica)))
    process = Process(replica, epoch, here=here)
    yield from process.run(letting_go.give_up_attempts(process.sharer, epoch))


def check_afterwards() -> Running[None]:
    """Run fsck when the others have done their tasks; what they asked for may still be on its way."""
    yield OthersDone()
    yield from check()


def check() -> Running[None]:
    """Run fsck with repair."""
    report = yield from fsck_repair.fsck(TABLE, GRACE_MS, with_repair=True)
    if isinstance(report, fsck_repair.Report):
        yield Told(tuple(finding for finding, _ in report.findings))


__all__ = ["check", "check_afterwards", "retire", "take", "tidy", "write"]
