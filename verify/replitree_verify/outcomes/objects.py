"""Every way in which a request to the object store can end.

Its answer may get lost (`Fault.STORE`): it is done, is half done, or comes at any later moment.  The same may happen when its
process dies meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica
from replitree.protocol.program.mender_effects import TakeFromStore, WriteAnew
from replitree.protocol.rescue.fsck_look import AskReferences, ListObjects
from replitree.protocol.shares.moving import BringRows, FindShare, FoundShare, PutPart, ShareInDoubt
from replitree.protocol.shares.share import (
    DeleteObjects,
    LookAtObjects,
    ObjectsGone,
    ObjectsInDoubt,
    ObjectsThere,
)
from replitree.protocol.shares.share_effects import PutShares
from replitree_verify.outcomes.branch import Branch, Scene
from replitree_verify.outcomes.local import Here
from replitree_verify.process import fsck
from replitree_verify.process.fsck import AwaitOrphans, ReportFindings
from replitree_verify.process.mender import publish_marked
from replitree_verify.process.uploads import HearName, TellName, told_too_early
from replitree_verify.world.faults import Fault
from replitree_verify.world.objects import Objects, PutObjects
from replitree_verify.world.shared_disk import SharedDisk


def put(effect: PutShares, scene: Scene) -> Iterator[Branch]:
    """Put what was staged, one share after the other, and note in the staged parts where they are."""
    here, objects = scene.here, objects_of(scene.here)
    named = tuple(each for each in here.memory.shares.named if each[0] == effect.staging)
    shares = tuple(share for _, _, share in named)
    host = here.tree.get(layout.host(here.replica))
    if host is None or host.value != here.me:
        # The process has not noticed that its replica is dropped, or that another process has it: when the objects arrive, no
        # replica may wait for them.
        objects = replace(objects, stray=objects.stray.union(shares))
    forgotten = replace(here.memory, shares=here.memory.shares.put(effect.staging, is_done=False))
    disk = cast("SharedDisk", here.disk)
    for staging, partition, share in named:
        before = here._replace(objects=objects, disk=disk, memory=forgotten)
        yield from _without_answer(PutObjects(share), scene, before)
        disk, objects = disk.noting(staging, partition, share), objects.after(PutObjects(share))
    memory = replace(here.memory, shares=here.memory.shares.put(effect.staging, is_done=True))
    yield Branch(ObjectsThere(), here._replace(objects=objects, disk=disk, memory=memory))


def put_objects(effect: PutObjects, scene: Scene) -> Iterator[Branch]:
    """Put the objects of an upload; when no replica waits for them any more, they are fsck's to find."""
    here, objects = scene.here, objects_of(scene.here)
    places = (place(here.replica.table, effect.share) for place in (layout.writing, layout.share))
    if not any(map(here.tree.exists, places)):
        objects = replace(objects, stray=objects.stray | {effect.share})
    yield Branch(ObjectsThere(), here._replace(objects=objects.after(effect)))
    yield from _without_answer(effect, scene, here._replace(objects=objects))


def tell_name(effect: TellName, scene: Scene) -> Iterator[Branch]:
    """Let a client hear the name of a share."""
    breach = told_too_early(effect.share, scene.here.tree, scene.here.replica.table)
    yield Branch(None, scene.here, breach=breach)


def hear_name(_effect: HearName, scene: Scene) -> Iterator[Branch]:
    """Let a task hear of a share that a client can have told it."""
    here = scene.here
    uploads = (share for disk in here.disks.values() for share in cast("SharedDisk", disk).uploads)
    for share in uploads:
        if here.tree.exists(layout.writing(here.replica.table, share)):
            yield Branch(share, here)


def await_orphans(_effect: AwaitOrphans, scene: Scene) -> Iterator[Branch]:
    """Let fsck begin when it has objects to find."""
    here = scene.here
    if fsck.has_orphans(here.tree, objects_of(here), here.replica.table):
        yield Branch(None, here)


def put_part(effect: PutPart, scene: Scene) -> Iterator[Branch]:
    """Put the files of a part that moves."""
    here = scene.here
    if not cast("SharedDisk", here.disk).has_rows(effect.part):
        yield Branch(ObjectsInDoubt("its rows are not here any more"), here)
        return
    request = PutObjects(effect.share)
    yield Branch(ObjectsThere(), here._replace(objects=objects_of(here).after(request)))
    yield from _without_answer(request, scene, here)


def bring_rows(effect: BringRows, scene: Scene) -> Iterator[Branch]:
    """Bring the rows of a part to the disk; what a crash leaves of them is swept."""
    here, disk = scene.here, cast("SharedDisk", scene.here.disk)
    can_read = all(map(objects_of(here).is_whole, disk.shares_of(effect.part)))
    brought = disk.bringing(effect.part, effect.share) if can_read else None
    if brought is None:
        yield Branch(ObjectsInDoubt("not there"), here)
        return
    yield Branch(ObjectsThere(), here._replace(disk=brought))
    if Fault.STORE in scene.faults:
        yield Branch(ObjectsInDoubt("no answer"), here, Fault.STORE.cost)


def find_share(effect: FindShare, scene: Scene) -> Iterator[Branch]:
    """Ask the active replicas for a share of just the files that are here."""
    here, part = scene.here, effect.part
    disk = cast("SharedDisk", here.disk)
    for name, each in here.disks.items():
        other, theirs = Replica(here.replica.table, name), cast("SharedDisk", each)
        shares = theirs.shares_of(part)
        is_given = here.tree.exists(layout.is_active(other)) and here.tree.exists(layout.part(other, part))
        if other == here.replica or not is_given or len(shares) != 1 or not objects_of(here).is_whole(shares[0]):
            continue
        if has_same_files(disk, theirs, part):
            share = shares[0]
            break
    else:
        yield Branch(None, here)
        return
    is_noted = any(left.part == part and share in left.shares for left in disk.leaving)
    yield Branch(FoundShare(share, is_noted), scene.here)
    if Fault.STORE in scene.faults:
        yield Branch(ShareInDoubt("no answer"), scene.here, Fault.STORE.cost)


def has_same_files(disk: SharedDisk, theirs: SharedDisk, part: str) -> bool:
    """Return whether the files of a part on a disk are those that another replica has in a share."""
    return disk.content(part) == theirs.content(part) and disk.files_of(part) == theirs.files_of(part)


def delete(effect: DeleteObjects, scene: Scene) -> Iterator[Branch]:
    """Delete the objects of a share."""
    yield Branch(ObjectsGone(), scene.here._replace(objects=objects_of(scene.here).after(effect)))
    yield from _without_answer(effect, scene, scene.here)


def look(effect: LookAtObjects, scene: Scene) -> Iterator[Branch]:
    """Look whether the objects of shares can be read."""
    is_whole = all(map(objects_of(scene.here).is_whole, effect.shares))
    yield Branch(ObjectsThere() if is_whole else ObjectsInDoubt("not there"), scene.here)
    if Fault.STORE in scene.faults:
        yield Branch(ObjectsInDoubt("no answer"), scene.here, Fault.STORE.cost)


def take(effect: TakeFromStore | WriteAnew, scene: Scene) -> Iterator[Branch]:
    """Publish parts that this disk has lost, by the manifests in their marked shares, or written anew of the data there."""
    here, objects = scene.here, objects_of(scene.here)
    can_use = objects.is_whole if isinstance(effect, WriteAnew) else objects.can_be_read
    found, disk = publish_marked(effect.parts, effect.marked, cast("SharedDisk", here.disk), can_use)
    yield Branch(found, here._replace(disk=disk))
    if Fault.STORE in scene.faults:
        asked = replace(here.memory.shares, undecided=tuple(name for name, _ in effect.marked))
        yield Branch((), here._replace(memory=replace(here.memory, shares=asked)), Fault.STORE.cost, "no answer")


def check(effect: ListObjects | AskReferences | ReportFindings, scene: Scene) -> Iterator[Branch]:
    """Perform what fsck asks of the store and of replicas, and judge what it tells."""
    here = scene.here
    match effect:
        case ListObjects():
            yield Branch(fsck.listed(objects_of(here)), here)
            if Fault.STORE in scene.faults:
                yield Branch(ObjectsInDoubt("no answer"), here, Fault.STORE.cost)
        case AskReferences(replica):
            memory = scene.memories[replica.name]
            if not memory.is_there:
                yield Branch(None, here)
                return
            yield Branch(fsck.references(cast("SharedDisk", here.disks[replica.name]), memory), here)
            if Fault.SILENT in scene.faults:
                yield Branch(None, here, Fault.SILENT.cost, "no answer")
        case ReportFindings():
            breach = fsck.untrue(effect, here.replica.table, here.tree, objects_of(here), here.disks)
            yield Branch(None, here, breach=breach)


def objects_of(here: Here) -> Objects:
    """Return the object store of a process whose table lies in one."""
    assert here.objects is not None
    return here.objects


def _without_answer(request: PutObjects | DeleteObjects, scene: Scene, here: Here) -> Iterator[Branch]:
    """Yield the ways in which a process stops to wait for an answer, and what the request leaves."""
    after = tuple(objects_of(here).without_answer(request))
    if Fault.CRASH in scene.faults:
        for fate, objects in after:
            yield Branch(None, here._replace(objects=objects), Fault.CRASH.cost, fate, dies=True)
    if Fault.STORE in scene.faults:
        for fate, objects in (("not done", objects_of(here)), *after):
            yield Branch(ObjectsInDoubt("no answer"), here._replace(objects=objects), Fault.STORE.cost, fate)
