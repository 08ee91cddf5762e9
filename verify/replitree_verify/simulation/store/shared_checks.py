"""What must hold of shares, marks and objects: at every step of a run, and when nothing is left to do.

======== =======================================================================================================================
MARKED   a registered part that is shown has a mark on its share, and so has one that has just been registered
FILES    a registered part has its rows, on its disk or in a share
HELD     a mark stands for a part on its replica's disk, or for one that has left it and is still to be let go of
WHOLE    the objects of every share that has a node are there
I4       no object is deleted that a registered part needs
OWNED    a share's node has an owner
ONCE     a share is written, owned, or in the garbage: never two of these
KNOWN    an object is of a share that is written, owned or in the garbage, unless it came late
SETTLES  at rest nothing is being written or garbage, every mark has a registered part, every object an owner; and fsck finds
         nothing but objects that came late, deletes these, and is content then
======== =======================================================================================================================
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, cast

from replitree.coordination.tree import Tree, answer
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica
from replitree.protocol.membership.table import DROPPED_HOST
from replitree.protocol.rescue.fsck import FindingKind
from replitree.protocol.rescue.fsck_look import AskReferences, ListAges, ListObjects
from replitree.protocol.rescue.fsck_repair import Repair, Report, fsck
from replitree.protocol.shares.share import DeleteObjects, ObjectsGone, ShareId
from replitree_verify.process.fsck import aged, listed, references
from replitree_verify.rules.stored_shares import marks_of, of_shares, without_rows
from replitree_verify.simulation.observer import Violated
from replitree_verify.simulation.store.moving_checks import left_to_move, moved_twice
from replitree_verify.simulation.store.object_store import Change, ObjectStore
from replitree_verify.world.disk import Disk
from replitree_verify.world.memory import Memory
from replitree_verify.world.model import TABLE
from replitree_verify.world.moves import Place
from replitree_verify.world.objects import PIECES, Objects
from replitree_verify.world.shared_disk import SharedDisk

GRACE_MS = 0
"""Grace of the fsck at the end: nothing is on its way any more."""


class SharedChecks:
    """Checks of one run.

    Parameters
    ----------
    disks
        Of each replica; they change in place.
    """

    def __init__(self, disks: Mapping[str, Disk]) -> None:
        self.store: ObjectStore
        self._disks = cast("Mapping[str, SharedDisk]", disks)
        self._registered: dict[str, frozenset[str]] = {}

    # --- at every step --------------------------------------------------------------------------------------------------------

    def changed(self, tree: Tree, memories: Mapping[str, Memory]) -> None:
        """Check a change of coordination, or of what is noted on a disk."""
        marks = marks_of(tree, TABLE)
        if not tree.exists(layout.dropped(TABLE)):  # its replicas release their marks before they leave
            for name in tree.children(layout.replicas(TABLE)) or ():
                for wrong in self._of_replica(tree, name, memories.get(name), marks):
                    raise Violated(wrong)
        for wrong in of_shares(tree, self.store.content, TABLE, marks):
            raise Violated(wrong)

    def stored(self, tree: Tree, change: Change) -> None:
        """Check a change of the store."""
        for wrong in of_shares(tree, self.store.content, TABLE, marks_of(tree, TABLE)):
            raise Violated(wrong)
        if change.is_put or tree.exists(layout.dropped(TABLE)):
            return
        for name in tree.children(layout.replicas(TABLE)) or ():
            host = tree.get(layout.host(Replica(TABLE, name)))
            if host is None or host.value == DROPPED_HOST:
                continue
            for part, needed in self._disks[name].shares:
                if needed == change.share and tree.exists(layout.part(Replica(TABLE, name), part)):
                    raise Violated(f"I4: an object of {needed} was deleted, which {part} of {name} needs")

    def _of_replica(self, tree: Tree, name: str, memory: Memory | None, marks: set[tuple[str, str]]) -> Iterator[str]:
        """Yield what does not hold of one replica's marks and disk, unless it is being dropped."""
        replica, disk = Replica(TABLE, name), self._disks[name]
        host, node = tree.get(layout.host(replica)), tree.get(layout.replica_path(replica))
        registered = frozenset(tree.children(layout.parts(replica)) or ())
        fresh = registered - self._registered.get(name, frozenset())
        self._registered[name] = registered
        if host is None or node is None or host.value == DROPPED_HOST:
            return
        shown = {part.name for part in memory.visible} if memory is not None else set()
        own = f"{name}~{node.value.decode()}~"
        for part, share in disk.shares:
            is_meant = part in registered and (part in shown or part in fresh)
            if is_meant and (share, f"{own}{part}") not in marks:
                yield f"MARKED: {name} has {part} in {share} and no mark"
        yield from without_rows(name, disk, registered)
        known = {*disk.shares, *disk.detached, *((left.part, share) for left in disk.leaving for share in left.shares)}
        for marked, mark in sorted(marks):
            is_known = mark.startswith(own) and (mark.removeprefix(own), marked) in known
            if mark.startswith(f"{name}~") and not is_known:
                yield f"HELD: {marked} is marked by {mark}, which is not there"

    # --- at rest --------------------------------------------------------------------------------------------------------------

    def left(self, tree: Tree, places: Mapping[str, Place], *, is_last: bool) -> str:
        """Say what is left to do with shares: on its way, to be deleted, let go of or moved; empty when nothing is.

        `places`: where parts belong, of each replica whose parts move.  `is_last`: and what only an activation settles,
        attempts that could not be given up, parts that were never registered.
        """
        if self.store.pending:
            return "requests to the store are on their way"
        parents = (layout.all_garbage(TABLE), layout.all_merged(TABLE), layout.all_writing(TABLE))
        for parent in parents if is_last else parents[:2]:
            if children := tree.children(parent):
                return f"{parent.rpartition('/')[2]}/{children[0]}"
        for name in tree.children(layout.replicas(TABLE)) or ():
            disk = self._disks[name]
            if disk.leaving:
                return f"{name} has not let go of {disk.leaving[0].shares[0]}"
        return left_to_move(tree, self._disks, places) if places else ""

    def check_moved_once(self, tree: Tree, unseen: Collection[str]) -> None:
        """Check that what was moved into the store is there once, but for parts of which a replica could not be asked."""
        for part in moved_twice(tree, self._disks):
            if part not in unseen:
                raise Violated(f"SINGLE: {part} was moved into the store more than once")

    def check_with_fsck(self, tree: Tree, memories: Mapping[str, Memory]) -> None:
        """Check that fsck finds nothing but what was lost on the way, and repairs that."""
        self._repaired(tree, memories, (FindingKind.ORPHAN, FindingKind.LEFT_ATTEMPT))

    def check_at_rest(self, tree: Tree, memories: Mapping[str, Memory]) -> None:
        """Check that marks are those of registered parts, and objects those of marks, once fsck has deleted what is stray."""
        marks, wanted = marks_of(tree, TABLE), set()
        for name in tree.children(layout.replicas(TABLE)) or ():
            replica, disk = Replica(TABLE, name), self._disks[name]
            node = tree.get(layout.replica_path(replica))
            assert node is not None
            for part, share in (*disk.shares, *disk.detached):
                if tree.exists(layout.part(replica, part)) or (part, share) in disk.detached:
                    wanted.add((share, f"{name}~{node.value.decode()}~{part}"))
        if marks != wanted:
            raise Violated(f"SETTLES: marks and registered parts differ in {min(marks ^ wanted)}")
        objects = self._repaired(tree, memories, (FindingKind.ORPHAN,))
        referred = {(ShareId(share), piece) for share, _ in marks for piece in range(PIECES)}
        if objects != referred:
            raise Violated(f"SETTLES: objects and references differ in {min(objects ^ referred)}")

    def _repaired(
        self, tree: Tree, memories: Mapping[str, Memory], kinds: tuple[FindingKind, ...]
    ) -> set[tuple[ShareId, int]]:
        """Run fsck twice on a copy: the first time it may find these kinds, orphans only of stray objects; then nothing."""
        checked = _Checked(tree, set(self.store.objects), self._disks, memories)
        for finding, repair in checked.fsck().findings:
            is_known = finding.kind is not FindingKind.ORPHAN or finding.share in self.store.stray
            if finding.kind not in kinds or not is_known or repair is not Repair.DONE:
                raise Violated(f"SETTLES: fsck finds {finding.kind.value} {finding.share} ({repair.value})")
        again = checked.fsck()
        if not again.is_clean:
            raise Violated(f"SETTLES: after its repair fsck finds {again.findings[0][0].kind.value}")
        return checked.objects


class _Checked:
    """What fsck looks at, and repairs: a copy of what there is at rest."""

    def __init__(
        self,
        tree: Tree,
        objects: set[tuple[ShareId, int]],
        disks: Mapping[str, SharedDisk],
        memories: Mapping[str, Memory],
    ) -> None:
        self.tree, self.objects, self._disks, self._memories = tree, objects, disks, memories

    def fsck(self) -> Report:
        """Run fsck to its end."""
        procedure, outcome = fsck(TABLE, GRACE_MS, with_repair=True), cast("Any", None)
        while True:
            try:
                effect = procedure.send(outcome)
            except StopIteration as stop:
                return cast("Report", stop.value)
            match effect:
                case fx.Commit(operations):
                    self.tree, outcome = self.tree.commit(operations, session=1)
                case fx.Get() | fx.GetMany() | fx.Children() | fx.ChildrenMany() | fx.Sync():
                    outcome = answer(self.tree, effect)
                case ListAges(path):
                    outcome = aged(self.tree, path)
                case DeleteObjects(share):
                    self.objects = {each for each in self.objects if each[0] != share}
                    outcome = ObjectsGone()
                case AskReferences(replica):
                    outcome = references(self._disks[replica.name], self._memories[replica.name])
                case _:
                    assert isinstance(effect, ListObjects), effect
                    outcome = listed(Objects(frozenset(self.objects)))
