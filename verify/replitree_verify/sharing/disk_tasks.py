"""What the processes of the models with disks do: the procedures of `shares.sharing`, `rescue.fsck_repair`, and a disk.

What is on a disk survives a crash.  So the next process first tidies up: whatever is there and not registered it lets go of.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.run import translate
from replitree.protocol.rescue import fsck_repair
from replitree.protocol.shares import letting_go, share, sharing
from replitree.protocol.shares.share import Owned, PutObjects, ShareId, ShareOwner
from replitree.protocol.shares.share_effects import (
    ForgetParts,
    HasPart,
    NameShares,
    PutShares,
    SharedPart,
    Sharer,
    SharesHere,
    SharesOf,
    SharesSettled,
)
from replitree_verify.sharing.checking import GRACE_MS, Discard, Keep, OnDisk, OthersDone, Told
from replitree_verify.sharing.tasks import INCARNATION, TABLE, new_epoch, replica_of

_T = TypeVar("_T")
_Any = Generator[Any, Any, _T]


def write(name: str, part: str, attempt: int) -> _Any[None]:
    """Write a part: stage it, put its objects, register it.  Whoever comes after a crash, or is in doubt, only tidies up."""
    replica, epoch = replica_of(name), fx.Epoch(0)
    if not attempt:
        own = ShareId(f"{part}-{name}")
        inserting = sharing.with_shares(Sharer(replica, INCARNATION), _insert(replica, epoch, part, own))
        done = yield from _here(inserting, replica, epoch, part, own)
        if isinstance(done, fx.Applied):
            return
    yield from tidy(name)


def _insert(replica: Replica, epoch: fx.Epoch, part: str, own: ShareId) -> fx.Procedure[Any]:
    """Stage and register, as the procedures of a local table do."""
    staged = yield fx.Stage(fx.StagingId("s"), ())
    if not isinstance(staged, fx.Staged):
        return staged
    return (yield fx.Commit(fx.Check(layout.host(replica), epoch), fx.Create(layout.part(replica, part), own.encode())))


def _here(procedure: fx.Procedure[_T], replica: Replica, epoch: fx.Epoch, part: str, own: ShareId) -> _Any[_T]:
    """Run a procedure of `sharing`, and answer what it asks of the process and the disk."""

    def each(effect: Any) -> _Any[Any]:
        match effect:
            case fx.Stage():
                yield Keep(replica, part, own)
                return fx.Staged(())
            case NameShares():
                return (own,)
            case PutShares():
                return (yield PutObjects(own))
            case SharesOf():
                return (SharedPart(part, own, is_new=True),)
            case fx.CurrentEpoch():
                return epoch
            case SharesSettled() | ForgetParts():
                return None
        return (yield effect)

    return (yield from translate(procedure, each))


def take(name: str, part: str, source: str) -> _Any[None]:
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
        own = ShareId(told.value.decode())
        yield Keep(replica, part, own)
        register = (fx.Create(layout.part(replica, part), told.value),)
        outcome = yield from share.take_over(ShareOwner(replica, epoch, INCARNATION, part), (own,), register)
        if isinstance(outcome, fx.InDoubt):
            continue
        if not isinstance(outcome, Owned):
            yield Discard(replica, part)
        return


def retire(name: str, part: str) -> _Any[None]:
    """Take a part's registration back and keep it, for readers."""
    replica = replica_of(name)
    host = yield fx.Get(layout.host(replica))
    proof = fx.Check(layout.host(replica), host.version)
    yield fx.Commit(proof, fx.Delete(layout.part(replica, part), fx.ANY_VERSION))


def tidy(name: str) -> _Any[None]:
    """Let go of everything on the disk that is not registered."""
    replica = replica_of(name)
    epoch = yield from new_epoch(replica)
    if epoch is not None:
        yield from _tidied(replica, epoch)


def _tidied(replica: Replica, epoch: fx.Epoch) -> _Any[None]:
    sharer = Sharer(replica, INCARNATION)
    found: tuple[tuple[str, ShareId], ...] = yield OnDisk(replica)
    for part in dict.fromkeys(part for part, _ in found):
        if (yield fx.Get(layout.part(replica, part))) is not None:
            continue
        shares = tuple(share for each, share in found if each == part)
        if (yield from with_disk(letting_go.let_go_of_all(sharer, epoch, part, shares))):
            yield Discard(replica, part)
    here = tuple(own for _, own in (yield OnDisk(replica)))
    yield from with_disk(letting_go.give_up_attempts(sharer, epoch), here)


def with_disk(procedure: fx.Procedure[_T], here: tuple[ShareId, ...] = ()) -> _Any[_T]:
    """Run a procedure of `sharing` on what has left the table's parts; `here` are the shares on the disk."""

    def each(effect: Any) -> _Any[Any]:
        match effect:
            case SharesOf():
                return ()
            case HasPart():
                return False
            case SharesHere():
                return here
        return (yield effect)

    return (yield from translate(procedure, each))


def check_afterwards() -> _Any[None]:
    """Run fsck when the others have done their tasks; what they asked for may still be on its way."""
    yield OthersDone()
    yield from check()


def check() -> _Any[None]:
    """Run fsck with repair."""
    report = yield from fsck_repair.fsck(TABLE, GRACE_MS, with_repair=True)
    if isinstance(report, fsck_repair.Report):
        yield Told(tuple(finding for finding, _ in report.findings))


__all__ = ["check", "check_afterwards", "retire", "take", "tidy", "with_disk", "write"]
