"""What the processes of the models with uploads do: a replica has an attempt, a task of somebody else puts the objects.

The disk of the replica has the upload, with its share, from before the attempt is noted.  So whoever comes after a crash goes
on with it.
"""

from __future__ import annotations

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.shares import letting_go, uploading
from replitree.protocol.shares.share import ObjectsThere
from replitree.protocol.shares.share_effects import SharedPart, Sharer
from replitree_verify.sharing.checking import Keep, OnDisk
from replitree_verify.sharing.disk_tasks import tidy
from replitree_verify.sharing.process import Process, Running, new_epoch, new_share
from replitree_verify.sharing.world import INCARNATION, TABLE, replica_of
from replitree_verify.world.objects import PutObjects


def receive(name: str, part: str, attempt: int) -> Running[None]:
    """Begin an upload and make a part of what was put; whoever comes after a crash goes on."""
    replica, epoch, own = replica_of(name), fx.Epoch(0), new_share(part, name)
    if not attempt:
        yield Keep(replica, part, own)
        if not (yield from uploading.begin_attempts(Sharer(replica, INCARNATION), epoch, (own,))):
            yield from tidy(name)
            return
    yield from finish(name, part, attempt)


def finish(name: str, part: str, attempt: int) -> Running[None]:
    """Make a part of what was put, or discard the upload."""
    replica, own, epoch = replica_of(name), new_share(part, name), fx.Epoch(0)
    sharer = Sharer(replica, INCARNATION)
    if attempt:
        newer = yield from new_epoch(replica)
        if newer is None or (yield fx.Get(layout.part(replica, part))) is not None:
            return
        epoch, here = newer, tuple(share for _, share in (yield OnDisk(replica)))
        yield from Process(replica, epoch, here=here).run(letting_go.give_up_attempts(sharer, epoch))
    taken = yield from uploading.take_attempts(sharer, (own,))
    if isinstance(taken, ObjectsThere):  # what was put is left to be registered: nothing is named or put
        process = Process(replica, epoch, (SharedPart(part, own, is_new=True),))
        if isinstance((yield from process.insert(part)), fx.Applied):
            return
    yield from tidy(name)


def put(name: str, part: str) -> Running[None]:
    """Put the objects of an upload whose name was told, which is after it was noted."""
    own = new_share(part, name)
    if (yield fx.Get(layout.writing(TABLE, own))) is not None:
        yield PutObjects(own)


__all__ = ["finish", "put", "receive"]
