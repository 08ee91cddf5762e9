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
from replitree.protocol.rescue.fsck_look import (
    AgedNode,
    AskReferences,
    ListAges,
    Listing,
    ListObjects,
    NeededFile,
    Reference,
    StoredObject,
)
from replitree.protocol.rescue.fsck_repair import Repair, Report, fsck
from replitree.protocol.shares.share import DeleteObjects, ObjectsGone, ShareId
from replitree_verify.rules.stored_shares import without_rows
from replitree_verify.simulation.observer import Violated
from replitree_verify.simulation.store.moving_checks import left_to_move, moved_twice
from replitree_verify.simulation.store.object_store import PIECES, Change, ObjectStore
from replitree_verify.world.disk import Disk
from replitree_verify.world.memory import Memory
from replitree_verify.world.model import TABLE
from replitree_verify.world.moves import Place
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
        self._disks = disks
        self._registered: dict[str, frozenset[str]] = {}

    # --- at every step --------------------------------------------------------------------------------------------------------

    def changed(self, tree: Tree, memories: Mapping[str, Memory]) -> None:
        """Check a change of coordination, or of what is noted on a disk."""
        for wrong in self._violations(tree, memories):
            raise Violated(wrong)

    def stored(self, tree: Tree, change: Change) -> None:
        """Check a change of the store."""
        share, places = change.share, _Places(tree)
        if change.is_put:
            if not places.knows(share) and share not in self.store.stray:
                raise Violated(f"KNOWN: {share} was put, and no node tells of it")
            return
        if share in places.owned:
            raise Violated(f"WHOLE: an object of {share} was deleted, which has a node")
        for name in places.replicas:
            host = tree.get(layout.host(Replica(TABLE, name)))
            if host is None or host.value == DROPPED_HOST:
                continue
            for part, needed in _disk(self._disks[name]).shares:
                if needed == share and tree.exists(layout.part(Replica(TABLE, name), part)):
                    raise Violated(f"I4: an object of {share} was deleted, which {part} of {name} needs")

    def _violations(self, tree: Tree, memories: Mapping[str, Memory]) -> Iterator[str]:
        places = _Places(tree)
        for name in places.replicas:
            yield from self._of_replica(tree, name, memories.get(name), places)
        for share, marks in places.owned.items():
            if not marks:
                yield f"OWNED: {share} has no owner"
            if not self.store.is_whole(share):
                yield f"WHOLE: {share} lacks objects"
        yield from (f"ONCE: {share}" for share in sorted(places.twice))
        for share in sorted({share for share, _ in self.store.objects} - self.store.stray):
            if not places.knows(share):
                yield f"KNOWN: no node tells of the objects of {share}"

    def _of_replica(self, tree: Tree, name: str, memory: Memory | None, places: _Places) -> Iterator[str]:
        """Yield what does not hold of one replica's marks and disk, unless it is being dropped."""
        replica, disk = Replica(TABLE, name), _disk(self._disks[name])
        host, node = tree.get(layout.host(replica)), tree.get(layout.replica_path(replica))
        registered = frozenset(tree.children(layout.parts(replica)) or ())
        fresh = registered - self._registered.get(name, frozenset())
        self._registered[name] = registered
        if host is None or node is None or host.value == DROPPED_HOST:
            return
        shown = {part.name for part in memory.visible} if memory is not None else set()
        incarnation = node.value.decode()
        for part, share in disk.shares:
            is_meant = part in registered and (part in shown or part in fresh)
            if is_meant and f"{name}~{incarnation}~{part}" not in places.owned.get(share, ()):
                yield f"MARKED: {name} has {part} in {share} and no mark"
        yield from without_rows(name, disk, registered)
        known = {*disk.shares, *disk.detached, *((left.part, share) for left in disk.leaving for share in left.shares)}
        for share, mark in places.marks_of(name):
            of, part = mark.split("~", 2)[1:]
            if of != incarnation or (part, share) not in known:
                yield f"HELD: {share} is marked by {mark}, which is not there"

    # --- at rest --------------------------------------------------------------------------------------------------------------

    def left(self, tree: Tree, places: Mapping[str, Place], *, is_last: bool) -> str:
        """Say what is left to do with shares: on its way, to be deleted, let go of or moved; empty when nothing is.

        `places`: where parts belong, of each replica whose parts move.  `is_last`: and what only an activation settles,
        attempts that could not be given up, parts that were never registered.
        """
        if self.store.pending:
            return "requests to the store are on their way"
        parents = (
            layout.all_garbage(TABLE),
            layout.all_merged(TABLE),
            *((layout.all_writing(TABLE),) if is_last else ()),
        )
        for parent in parents:
            if children := tree.children(parent):
                return f"{parent.rpartition('/')[2]}/{children[0]}"
        for name in _Places(tree).replicas:
            disk = _disk(self._disks[name])
            if disk.leaving:
                return f"{name} has not let go of {disk.leaving[0].shares[0]}"
        return left_to_move(tree, self._shared_disks, places) if places else ""

    @property
    def _shared_disks(self) -> Mapping[str, SharedDisk]:
        return cast("Mapping[str, SharedDisk]", self._disks)

    def check_moved_once(self, tree: Tree, unseen: Collection[str]) -> None:
        """Check that what was moved into the store is there once, but for parts of which a replica could not be asked."""
        for part in moved_twice(tree, self._shared_disks):
            if part not in unseen:
                raise Violated(f"SINGLE: {part} was moved into the store more than once")

    def check_with_fsck(self, tree: Tree, begun: Mapping[str, frozenset[ShareId]]) -> None:
        """Check that fsck finds nothing but what was lost on the way, and repairs that."""
        self._repaired(tree, begun, (FindingKind.ORPHAN, FindingKind.LEFT_ATTEMPT))

    def check_at_rest(self, tree: Tree, begun: Mapping[str, frozenset[ShareId]]) -> None:
        """Check that marks are those of registered parts, and objects those of marks, once fsck has deleted what is stray."""
        places = _Places(tree)
        marks = {(share, mark) for share, marks in places.owned.items() for mark in marks}
        wanted = set()
        for name in places.replicas:
            replica, disk = Replica(TABLE, name), _disk(self._disks[name])
            node = tree.get(layout.replica_path(replica))
            assert node is not None
            for part, share in (*disk.shares, *disk.detached):
                if tree.exists(layout.part(replica, part)) or (part, share) in disk.detached:
                    wanted.add((share, f"{name}~{node.value.decode()}~{part}"))
        if marks != wanted:
            raise Violated(f"SETTLES: marks and registered parts differ in {min(marks ^ wanted)}")
        objects = self._repaired(tree, begun, (FindingKind.ORPHAN,))
        referred = {(share, piece) for share in places.owned for piece in range(PIECES)}
        if objects != referred:
            raise Violated(f"SETTLES: objects and references differ in {min(objects ^ referred)}")

    def _repaired(
        self, tree: Tree, begun: Mapping[str, frozenset[ShareId]], kinds: tuple[FindingKind, ...]
    ) -> set[tuple[ShareId, int]]:
        """Run fsck twice on a copy: the first time it may find these kinds, orphans only of stray objects; then nothing."""
        checked = _Checked(tree, set(self.store.objects), self._disks, begun)
        for finding, repair in checked.fsck().findings:
            is_known = finding.kind is not FindingKind.ORPHAN or finding.share in self.store.stray
            if finding.kind not in kinds or not is_known or repair is not Repair.DONE:
                raise Violated(f"SETTLES: fsck finds {finding.kind.value} {finding.share} ({repair.value})")
        again = checked.fsck()
        if not again.is_clean:
            raise Violated(f"SETTLES: after its repair fsck finds {again.findings[0][0].kind.value}")
        return checked.objects


class _Places:
    """Where each share is."""

    def __init__(self, tree: Tree) -> None:
        self.replicas = tree.children(layout.replicas(TABLE)) or ()
        self.writing = set(tree.children(layout.all_writing(TABLE)) or ())
        self.garbage = set(tree.children(layout.all_garbage(TABLE)) or ())
        self.owned = {
            ShareId(name): tree.children(layout.share(TABLE, ShareId(name))) or ()
            for name in tree.children(layout.shares(TABLE)) or ()
        }

    def knows(self, share: ShareId) -> bool:
        return share in self.owned or share in self.writing or share in self.garbage

    @property
    def twice(self) -> set[str]:
        """Shares that are in two places."""
        return (self.writing & self.garbage) | {each for each in self.owned if each in self.writing | self.garbage}

    def marks_of(self, replica: str) -> Iterator[tuple[ShareId, str]]:
        for share, marks in self.owned.items():
            yield from ((share, mark) for mark in marks if mark.startswith(f"{replica}~"))


class _Checked:
    """What fsck looks at, and repairs: a copy of what there is at rest."""

    def __init__(
        self,
        tree: Tree,
        objects: set[tuple[ShareId, int]],
        disks: Mapping[str, Disk],
        begun: Mapping[str, frozenset[ShareId]],
    ) -> None:
        self.tree, self.objects, self._disks, self._begun = tree, objects, disks, begun

    def fsck(self) -> Report:
        """Run fsck to its end."""
        procedure, outcome = fsck(TABLE, GRACE_MS, with_repair=True), None
        try:
            while True:
                outcome = self._perform(procedure.send(outcome))
        except StopIteration as stop:
            return cast("Report", stop.value)

    def _perform(self, effect: Any) -> Any:
        match effect:
            case fx.Commit(operations):
                self.tree, outcome = self.tree.commit(operations, session=1)
                return outcome
            case fx.Get() | fx.GetMany() | fx.Children() | fx.ChildrenMany() | fx.Sync():
                return answer(self.tree, effect)
            case ListAges(path):
                nodes = ((name, self.tree.get(f"{path}/{name}")) for name in self.tree.children(path) or ())
                return tuple(AgedNode(name, node.value, 0) for name, node in nodes if node is not None)
            case DeleteObjects(share):
                self.objects = {each for each in self.objects if each[0] != share}
                return ObjectsGone()
            case AskReferences(replica):
                # As `replica.parts.sharing` answers.
                disk = _disk(self._disks[replica.name])
                needed = tuple(NeededFile(str(piece), 1) for piece in range(PIECES))
                parts = [Reference(part, share, needed) for part, share in (*disk.shares, *disk.detached)]
                staged = [Reference("", share, needed) for _, _, share in disk.staged]
                left = [Reference(gone.part, share) for gone in disk.leaving for share in gone.shares]
                begun = [Reference("", share) for share in sorted(self._begun.get(replica.name, ()))]
                return (*parts, *staged, *left, *begun)
        assert isinstance(effect, ListObjects), effect
        return Listing(0, tuple(StoredObject(share, str(piece), 1, 0) for share, piece in sorted(self.objects)))


def _disk(disk: Disk) -> SharedDisk:
    return cast("SharedDisk", disk)


__all__ = ["SharedChecks"]
