"""Clients of an upload: a driver asks one replica for names and to commit, and a task puts the objects.

The replica runs the stages of `replitree.protocol.program.uploader` for the driver.  The driver asks again after a crash of the
replica, and discards the upload when it is refused; then the replica's upkeep lets go of the share.
"""

from __future__ import annotations

from typing import Any

from replitree.protocol.core import effects as fx
from replitree.protocol.core.run import translate
from replitree.protocol.program import uploader
from replitree.protocol.program.stages import (
    End,
    ForgetUpload,
    LeftDisk,
    NoteUpload,
    ReportTrouble,
    Stage,
    Then,
)
from replitree.protocol.shares.share import ObjectsThere, ShareId
from replitree.protocol.shares.share_effects import SharedPart, Sharer
from replitree_verify.sharing.checking import Discard, HandOver, Keep, NamesHeard, OnDisk, TellNames
from replitree_verify.sharing.disks import let_go, tidy
from replitree_verify.sharing.process import Process, Running, new_share
from replitree_verify.sharing.world import INCARNATION, replica_of
from replitree_verify.world.objects import PutObjects


def upload(name: str, part: str) -> Running[Then | None]:
    """Ask a replica for names; a process that finds an upload on the disk goes on with it."""
    replica = replica_of(name)
    epoch: fx.Epoch = yield fx.CurrentEpoch()
    on_disk: tuple[tuple[str, ShareId], ...] = yield OnDisk(replica)
    if any(staged for staged, _ in on_disk):  # the upload became a staged part: it is swept, unless it is registered
        yield from tidy(name)
        return None
    sharer, begun = Sharer(replica, INCARNATION), tuple(share for _, share in on_disk)
    if begun:
        yield from _run(name, uploader.resume_upload(sharer, begun))
        begun = tuple(share for _, share in (yield OnDisk(replica)))
    if not begun:
        begun = (new_share(part, name, epoch),)
        if (yield from _run(name, uploader.begin_upload(sharer, epoch, begun))) != End(outcome=True):
            return None
    yield TellNames(*begun)
    return Then(commit, (name, part, *begun))


def commit(name: str, part: str, share: ShareId) -> Running[None]:
    """Ask a replica to make a part of what was put."""
    replica = replica_of(name)
    epoch: fx.Epoch = yield fx.CurrentEpoch()
    if any(staged for staged, _ in (yield OnDisk(replica))):
        yield from tidy(name)
        return
    sealed = yield from _run(name, uploader.seal_upload(Sharer(replica, INCARNATION), (share,)))
    if sealed != End(ObjectsThere()):
        yield from _let_go(name, share, epoch)
        return
    yield HandOver(replica, share)
    process = Process(replica, epoch, (SharedPart(part, share, is_new=True),))
    if not isinstance((yield from process.insert(part)), fx.Applied):
        yield ReportTrouble()


def put(name: str) -> Running[None]:
    """Put the objects of the share that a replica has named last, if it has named one."""
    heard: tuple[ShareId, ...] = yield NamesHeard(replica_of(name))
    if heard:
        yield PutObjects(heard[-1])


def _let_go(name: str, share: ShareId, epoch: fx.Epoch) -> Running[None]:
    """Let go of the share of an upload that is gone; what is in doubt is tried again."""
    for _ in range(2):
        yield from let_go(Process(replica_of(name), epoch), LeftDisk(share, "", (share,)))
        if not (yield OnDisk(replica_of(name))):
            return


def _run(name: str, stage: Stage) -> Running[Any]:
    """Run a stage of a replica, and do to its disk what the stage asks for."""
    replica = replica_of(name)

    def each(effect: Any) -> Running[Any]:
        match effect:
            case NoteUpload(shares):
                for each_share in shares:
                    yield Keep(replica, "", each_share)
            case ForgetUpload():
                yield Discard(replica, "")
            case _:
                return (yield effect)
        return None

    return translate(stage, each)


__all__ = ["commit", "put", "upload"]
