"""What the processes of the models with uploads do: a replica has an attempt, a task of somebody else puts the objects.

The disk of the replica has the upload, with its share, from before the attempt is noted.  So whoever comes after a crash goes
on with it.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.run import translate
from replitree.protocol.shares import letting_go, sharing, uploading
from replitree.protocol.shares.share import ObjectsThere, PutObjects, ShareId
from replitree.protocol.shares.share_effects import NameShares, SharedPart, Sharer, SharesOf, SharesSettled
from replitree_verify.sharing.checking import Keep, OnDisk
from replitree_verify.sharing.disk_tasks import tidy, with_disk
from replitree_verify.sharing.tasks import INCARNATION, TABLE, new_epoch, replica_of

_T = TypeVar("_T")
_Any = Generator[Any, Any, _T]


def share_of(name: str, part: str) -> ShareId:
    """Return the share that a replica names for the upload of a part."""
    return ShareId(f"{part}-{name}")


def receive(name: str, part: str, attempt: int) -> _Any[None]:
    """Begin an upload and make a part of what was put; whoever comes after a crash goes on."""
    replica, epoch, own = replica_of(name), fx.Epoch(0), share_of(name, part)
    if not attempt:
        yield Keep(replica, part, own)
        if not (yield from uploading.begin_attempts(Sharer(replica, INCARNATION), epoch, (own,))):
            yield from tidy(name)
            return
    yield from finish(name, part, attempt)


def finish(name: str, part: str, attempt: int) -> _Any[None]:
    """Make a part of what was put, or discard the upload."""
    replica, own, epoch = replica_of(name), share_of(name, part), fx.Epoch(0)
    sharer = Sharer(replica, INCARNATION)
    if attempt:
        newer = yield from new_epoch(replica)
        if newer is None or (yield fx.Get(layout.part(replica, part))) is not None:
            return
        epoch, here = newer, tuple(share for _, share in (yield OnDisk(replica)))
        yield from with_disk(letting_go.give_up_attempts(sharer, epoch), here)
    taken = yield from uploading.take_attempts(sharer, (own,))
    done = (yield from _registered(sharer, epoch, part, own)) if isinstance(taken, ObjectsThere) else None
    if not isinstance(done, fx.Applied):
        yield from tidy(name)


def put(name: str, part: str) -> _Any[None]:
    """Put the objects of an upload whose name was told, which is after it was noted."""
    own = share_of(name, part)
    if (yield fx.Get(layout.writing(TABLE, own))) is not None:
        yield PutObjects(own)


def _registered(sharer: Sharer, epoch: fx.Epoch, part: str, own: ShareId) -> _Any[Any]:
    """Stage and register what was put, by the procedure for all parts; nothing is left to be named or put."""

    def each(effect: Any) -> _Any[Any]:
        match effect:
            case fx.Stage():
                return fx.Staged(())
            case NameShares():
                return ()
            case SharesOf():
                return (SharedPart(part, own, is_new=True),)
            case fx.CurrentEpoch():
                return epoch
            case SharesSettled():
                return None
        return (yield effect)

    inserting = sharing.with_shares(sharer, _insert(sharer.replica, epoch, part, own))
    return (yield from translate(inserting, each))


def _insert(replica: Replica, epoch: fx.Epoch, part: str, own: ShareId) -> fx.Procedure[Any]:
    yield fx.Stage(fx.StagingId("s"), ())
    return (yield fx.Commit(fx.Check(layout.host(replica), epoch), fx.Create(layout.part(replica, part), own.encode())))


__all__ = ["finish", "put", "receive", "share_of"]
