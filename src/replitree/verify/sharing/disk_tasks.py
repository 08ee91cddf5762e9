"""What the processes of the models with disks do: the procedures of `protocol.sharing`, `protocol.fsck_repair`, and a disk.

What is on a disk survives a crash.  So the next process first tidies up: whatever is there and not registered it lets go of.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from replitree.protocol import fsck_repair, layout, letting_go, share, sharing
from replitree.protocol.effects import (
    ANY_VERSION,
    Applied,
    Check,
    Commit,
    Create,
    CurrentEpoch,
    Delete,
    Epoch,
    Get,
    Procedure,
    Stage,
    Staged,
    StagingId,
)
from replitree.protocol.layout import Replica
from replitree.protocol.run import translate
from replitree.protocol.share import InDoubt, Owned, Owner, PutObjects, ShareId
from replitree.protocol.share_effects import (
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
from replitree.verify.sharing.checking import GRACE_MS, Discard, Keep, OnDisk, OthersDone, Told
from replitree.verify.sharing.tasks import INCARNATION, TABLE, new_epoch, replica_of

_T = TypeVar("_T")
_Any = Generator[Any, Any, _T]


def write(name: str, part: str, attempt: int) -> _Any[None]:
    """Write a part: stage it, put its objects, register it.  Whoever comes after a crash, or is in doubt, only tidies up."""
    replica, epoch = replica_of(name), Epoch(0)
    if not attempt:
        own = ShareId(f"{part}-{name}")
        inserting = sharing.with_shares(Sharer(replica, INCARNATION), _insert(replica, epoch, part, own))
        done = yield from _here(inserting, replica, epoch, part, own)
        if isinstance(done, Applied):
            return
    yield from tidy(name)


def _insert(replica: Replica, epoch: Epoch, part: str, own: ShareId) -> Procedure[Any]:
    """Stage and register, as the procedures of a local table do."""
    staged = yield Stage(StagingId("s"), ())
    if not isinstance(staged, Staged):
        return staged
    return (yield Commit(Check(layout.host(replica), epoch), Create(layout.part(replica, part), own.encode())))


def _here(procedure: Procedure[_T], replica: Replica, epoch: Epoch, part: str, own: ShareId) -> _Any[_T]:
    """Run a procedure of `sharing`, and answer what it asks of the process and the disk."""

    def each(effect: Any) -> _Any[Any]:
        match effect:
            case Stage():
                yield Keep(replica, part, own)
                return Staged(())
            case NameShares():
                return (own,)
            case PutShares():
                return (yield PutObjects(own))
            case SharesOf():
                return (SharedPart(part, own, is_new=True),)
            case CurrentEpoch():
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
        if epoch is None or (yield Get(layout.part(replica, part))) is not None:
            return
        if (yield OnDisk(replica)):
            yield from _tidied(replica, epoch)
        told = yield Get(layout.part(replica_of(source), part))
        if told is None:
            return
        own = ShareId(told.value.decode())
        yield Keep(replica, part, own)
        register = (Create(layout.part(replica, part), told.value),)
        outcome = yield from share.take_over(Owner(replica, epoch, INCARNATION, part), (own,), register)
        if isinstance(outcome, InDoubt):
            continue
        if not isinstance(outcome, Owned):
            yield Discard(replica, part)
        return


def retire(name: str, part: str) -> _Any[None]:
    """Take a part's registration back and keep it, for readers."""
    replica = replica_of(name)
    host = yield Get(layout.host(replica))
    proof = Check(layout.host(replica), host.version)
    yield Commit(proof, Delete(layout.part(replica, part), ANY_VERSION))


def tidy(name: str) -> _Any[None]:
    """Let go of everything on the disk that is not registered."""
    replica = replica_of(name)
    epoch = yield from new_epoch(replica)
    if epoch is not None:
        yield from _tidied(replica, epoch)


def _tidied(replica: Replica, epoch: Epoch) -> _Any[None]:
    sharer = Sharer(replica, INCARNATION)
    found: tuple[tuple[str, ShareId], ...] = yield OnDisk(replica)
    for part in dict.fromkeys(part for part, _ in found):
        if (yield Get(layout.part(replica, part))) is not None:
            continue
        shares = tuple(share for each, share in found if each == part)
        if (yield from with_disk(letting_go.let_go_of_all(sharer, epoch, part, shares))):
            yield Discard(replica, part)
    here = tuple(own for _, own in (yield OnDisk(replica)))
    yield from with_disk(letting_go.give_up_attempts(sharer, epoch), here)


def with_disk(procedure: Procedure[_T], here: tuple[ShareId, ...] = ()) -> _Any[_T]:
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
