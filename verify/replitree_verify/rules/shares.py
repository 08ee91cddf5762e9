"""What must hold of the shares of a table in an object store, in every state and when nothing is left to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from replitree.coordination.tree import Tree
from replitree.protocol.core import layout
from replitree.protocol.membership.table import DROPPED_HOST
from replitree.protocol.shares.share import ShareId
from replitree.protocol.state.registration import is_broken
from replitree_verify.process.fsck import DAMAGED
from replitree_verify.rules.stored_shares import claims, marks_of, of_shares, without_rows
from replitree_verify.world.disk import Disk
from replitree_verify.world.faults import Fault
from replitree_verify.world.model import TABLE
from replitree_verify.world.moves import Place
from replitree_verify.world.objects import Objects
from replitree_verify.world.shared_disk import SharedDisk

if TYPE_CHECKING:
    from replitree_verify.rules.invariants import Look


NAMES = {
    "FOUND": "no part is called broken whose objects are in the store, under a mark of its replica",
    "MARKED": "a registered part has a mark on every share that it has on the disk, unless reads are not shown it yet",
    "HELD": "a mark stands for a part on its replica's disk, or for one that has left it and is still to be let go of;"
    " fsck takes nothing from a replica that has it",
    "WHOLE": "the objects of every share that has a node are there",
    "OWNED": "a share's node has an owner",
    "ONCE": "a share is written, owned, or in the garbage: never two of these",
    "KNOWN": "objects are of shares that are written, owned or in the garbage, unless they came late",
    "COPIES": "replicas that have a part in the same share have the same files of it",
    "NAMED": "a client hears the name of a share only while its attempt is noted",
    "ONE": "in the end all active replicas of a part have the same shares, but for one that has its rows on its disk, or other"
    " files of them; of parts that move, unless a fault may have ended a claim early",
    "TRUE": "what fsck says is so: what is called dangling lacks objects, what is called an orphan has no owner",
    "SETTLES": "in the end nothing is being written, claimed or garbage, every mark has a registered part, every object an"
    " owner; without faults a part that is still here is where it was to go",
}
"""The invariants of models whose table lies in an object store."""


def shares_hold(look: Look) -> str | None:
    """Return what does not hold of shares in some state, or None; what fsck is to find is overlooked."""
    return next((each for each in _violations(look) if DAMAGED not in each), None)


def shares_settle(look: Look) -> str | None:
    """Return what does not hold of shares where nothing is left to do, or None; a fault may keep fsck from ending damage."""
    return next((each for each in _unsettled(look) if DAMAGED not in each or not look.model.faults), None)


def _violations(look: Look) -> Iterator[str]:
    tree = look.log.tree
    marks = marks_of(tree, TABLE)
    if not tree.exists(layout.dropped(TABLE)):  # its replicas release their marks before they leave
        yield from _of_replicas(look, _objects(look), marks)
    yield from of_shares(tree, _objects(look), TABLE, marks)
    files: dict[tuple[str, ShareId], str] = {}
    for disk in map(_shared, look.disks.values()):
        for part, share in disk.shares:
            if files.setdefault((part, share), disk.files_of(part)) != disk.files_of(part):
                yield f"COPIES: replicas have {part} in {share}, and different files of it"


def _shared(disk: Disk) -> SharedDisk:
    assert isinstance(disk, SharedDisk)
    return disk


def _objects(look: Look) -> Objects:
    assert look.objects is not None
    return look.objects


def _of_replicas(look: Look, objects: Objects, marks: set[tuple[str, str]]) -> Iterator[str]:
    """Yield what does not hold of marks and disks, of replicas that are not being dropped."""
    tree = look.log.tree
    for name in look.model.replicas:
        replica, disk = look.log.replica(name), cast("SharedDisk", look.disk(name))
        host = tree.get(layout.host(replica))
        if host is None or host.value == DROPPED_HOST:
            continue
        registered = tree.children(layout.parts(replica)) or ()
        node = tree.get(layout.replica_path(replica))
        assert node is not None
        owner = f"{name}~{node.value.decode()}"
        memories = (look.memories[seat] for seat, each in look.model.seats if each == name)
        shown = {part.name for memory in memories for part in memory.visible}
        for part, share in disk.shares:
            is_meant = part in registered and (not look.model.fragile or part in shown)
            if is_meant and (share, f"{owner}~{part}") not in marks:
                yield f"MARKED: {name} has {part} in {share} and no mark"
        for part in registered:
            own = tree.get(layout.part(replica, part))
            assert own is not None
            places = (ShareId(place) for place, mark in marks if mark == f"{owner}~{part}")
            if is_broken(own.value) and any(map(objects.is_whole, places)):
                yield f"FOUND: {name} calls {part} broken"
        yield from without_rows(name, disk, registered)
        left = ((each.part, share) for each in disk.leaving for share in each.shares)
        known = {(share, f"{owner}~{part}") for part, share in (*disk.shares, *left)}
        for place, mark in sorted(marks):
            part = mark.rpartition("~")[2]
            # What its folder, or its disk, had can't be told any more.
            is_lost = part in look.model.fragile or (name in look.model.emptied and disk.content(part) is None)
            if mark.startswith(f"{name}~") and (place, mark) not in known and not is_lost:
                yield f"HELD: {place} is marked by {mark}, which is not there"


def _unsettled(look: Look) -> Iterator[str]:
    tree, objects = look.log.tree, _objects(look)
    # A request on its way may still arrive: this state is no end.
    if objects.late:
        return
    lets_go = {name for seat, name in look.model.seats if seat in look.model.upkeepers and look.goes_on(name)}
    rest = set(look.model.replicas) - lets_go
    # What a drop overtook before it was registered stays on the disk, with its share, until the replica activates again.
    on_disks = {share for disk in look.disks.values() for _, share in cast("SharedDisk", disk).shares}
    # So does a note whose answer was lost, or a part whose registration was taken back without an answer.
    may_stay = Fault.UNKNOWN in look.model.faults
    noted = set(tree.children(layout.all_writing(TABLE)) or ())
    for share in sorted(noted - on_disks if not may_stay else ()):
        node = tree.get(layout.writing(TABLE, share))
        assert node is not None
        writer = node.value.decode().partition("~")[0]
        replica = look.log.replica(writer)
        # A replica that is away gives its attempt up when it comes back, or when its drop is finished.
        is_away = tree.exists(layout.host(replica)) and not tree.exists(layout.is_active(replica))
        if not is_away and writer not in rest:
            yield f"SETTLES: {share} stays noted as being written"
    for share in (tree.children(layout.all_garbage(TABLE)) or ()) if lets_go else ():
        yield f"SETTLES: {share} stays in the garbage"
    for share, mark in sorted(marks_of(tree, TABLE)):
        name, incarnation, part = mark.split("~", 2)
        replica = look.log.replica(name)
        is_known = name in look.model.replicas and DAMAGED not in incarnation
        is_registered = is_known and tree.exists(layout.part(replica, part))
        # A part that leaves a replica before its lost disk has it again leaves its mark to fsck.
        is_lost = part in look.model.fragile or (is_known and name in look.model.emptied)
        is_kept = is_known and may_stay and look.disk(name).content(part) is not None
        is_kept = is_kept and tree.exists(layout.host(replica))
        if not (is_registered or is_kept or is_lost) and name not in rest:
            yield f"SETTLES: {mark} stays on {share} without a part"
    owned = {share for share, _ in marks_of(tree, TABLE)}
    # No replica knows of objects that come after their share was given up: they are fsck's to delete.
    is_checked = any(duty.name == "fsck afterwards" for duty in look.model.duties)
    known = {share for share, _ in objects.there} - owned - noted - (set() if is_checked else objects.stray)
    for share in sorted(known) if lets_go else ():
        yield f"SETTLES: no replica deletes {share}"
    if marks := tree.children(layout.all_merged(TABLE)):
        yield f"SETTLES: the work mark of {marks[0]} stays"
    yield from _copies(look, tree)
    yield from (f"SETTLES: {claim} stays" for claim in claims(tree, TABLE))
    yield from _not_moved(look)
    for name in look.model.replicas:
        shared = cast("SharedDisk", look.disk(name))
        if shared.uploads:
            yield f"SETTLES: an upload of {name} still has {shared.uploads[0]}"
        if shared.leaving and name in lets_go and tree.exists(layout.host(look.log.replica(name))):
            yield f"SETTLES: {name} has not let go of {shared.leaving[0].shares}"


def _copies(look: Look, tree: Tree) -> Iterator[str]:
    """Yield the parts that active replicas with the same files have in several shares."""
    if look.model.movers and look.model.faults.keys() - {Fault.STORE}:
        return  # two replicas may move a part when the claim of one has ended early
    first: dict[tuple[str, str], tuple[ShareId, ...]] = {}
    for name in look.model.replicas:
        replica, shared = look.log.replica(name), _shared(look.disk(name))
        for part in tree.children(layout.parts(replica)) or () if tree.exists(layout.is_active(replica)) else ():
            shares = shared.shares_of(part)
            if shares and (known := first.setdefault((part, shared.files_of(part)), shares)) != shares:
                yield f"ONE: {part} is in {known} and, of {name}, in {shares}"


def _not_moved(look: Look) -> Iterator[str]:
    """Yield the parts that are not where they were to go."""
    if look.model.faults:
        return
    names = dict(look.model.seats)
    for mover in look.model.movers:
        disk = _shared(look.disks[names[mover.seat]])
        for part, _ in disk.parts:
            if (disk.share_of(part) is None) is not (mover.places[-1] is Place.DISK):
                yield f"SETTLES: {mover.seat} has not moved {part}"
