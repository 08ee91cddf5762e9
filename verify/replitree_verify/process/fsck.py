"""Fsck beside replicas on an object store: an operator runs it with repair.

There is no grace: whatever is found is old enough, so fsck depends on what replicas answer, and on its fences.  What was made
for it to find, in a prelude, has `DAMAGED` in its name: invariants overlook that until nothing is left to do.

`HELD` is checked where a repair takes place (`taken_from`), `TRUE` where fsck tells what it has found (`untrue`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from replitree.coordination.tree import Tree
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.run import translate
from replitree.protocol.membership.table import NOT_LOST
from replitree.protocol.program.stages import Stage, Then
from replitree.protocol.rescue import fsck_repair
from replitree.protocol.rescue.fsck import Finding, FindingKind
from replitree.protocol.rescue.fsck_look import AgedNode, Listing, NeededFile, Reference, StoredObject
from replitree.protocol.shares.share import ShareId
from replitree.protocol.shares.share_effects import SharedPart
from replitree_verify.process.shares import sharer_of
from replitree_verify.world.disk import Disk
from replitree_verify.world.kernel import Running
from replitree_verify.world.kernel import Stage as StageFunction
from replitree_verify.world.memory import Memory
from replitree_verify.world.objects import PIECES, Objects
from replitree_verify.world.shared_disk import SharedDisk

DAMAGED = "damaged-"

# --- effects ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, init=False)
class RepairCommit(fx.Commit):
    """A commit by which fsck repairs something."""


@dataclass(frozen=True, slots=True)
class ReportFindings(fx.Effect):
    """What fsck says that it has found.  Outcome: None."""

    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class AwaitOrphans(fx.Effect):
    """Wait until objects are there that no node of coordination says anything of.  Outcome: None."""


def has_orphans(tree: Tree, objects: Objects, table: TablePlace) -> bool:
    """Return whether there are objects that no node of coordination says anything of."""
    places = (layout.share, layout.writing, layout.garbage)
    return any(not any(tree.exists(place(table, share)) for place in places) for share, _ in objects.there)


def listed(objects: Objects) -> Listing:
    """Return what is in the store."""
    return Listing(0, tuple(StoredObject(share, str(piece), 1, 0) for share, piece in sorted(objects.there)))


def aged(tree: Tree, path: str) -> tuple[AgedNode, ...]:
    """Return the children of a node."""
    nodes = ((name, tree.get(f"{path}/{name}")) for name in tree.children(path) or ())
    return tuple(AgedNode(name, node.value, 0) for name, node in nodes if node is not None)


def references(disk: SharedDisk, memory: Memory) -> tuple[Reference, ...]:
    """Return what a replica answers: the shares of all that is on its disk, and of what its process is writing."""
    files = tuple(NeededFile(str(piece), 1) for piece in range(PIECES))
    published = (Reference(part, share, files) for part, share in disk.shares)
    aside = (Reference(part, share, files) for part, share in disk.detached)
    left = (Reference(each.part, share) for each in disk.leaving for share in each.shares)
    begun = sorted({*memory.shares.new, *disk.uploads, *(share for _, _, share in disk.staged)})
    return (*published, *aside, *left, *(Reference("", share) for share in begun))


# --- whether fsck does harm ---------------------------------------------------------------------------------------------------


def taken_from(effect: RepairCommit, table: TablePlace, disks: Mapping[str, Disk], tree: Tree) -> str | None:
    """Return what a repair takes from a replica that has it on its disk, or has lost its disk: HELD."""
    held: set[str] = set()
    every_share = tuple(map(ShareId, tree.children(layout.shares(table)) or ()))
    for name, each in disks.items():
        replica, disk = Replica(table, name), cast("SharedDisk", each)
        sharer = sharer_of(replica)
        registered, is_lost = tree.children(layout.parts(replica)) or (), tree.get(layout.is_lost(replica))
        # What a replica fetches while it recovers is its own once it is registered: under an epoch that fsck has ended it never
        # is, and the next try takes the share over again.
        is_good = is_lost is not None and is_lost.value == NOT_LOST
        kept = (each for each in disk.shares if is_good or each[0] in registered)
        # Of a registered part that the disk has lost only the marks say which shares it has.
        lost = (part for part in registered if disk.content(part) is None)
        needed = (*kept, *((part, share) for part in lost for share in every_share))
        held.update(sharer.mark(SharedPart(part, share, is_new=False)) for part, share in needed)
        held.update(layout.writing(table, share) for share in disk.all_shares)
    made = {each.path for each in effect.operations if isinstance(each, fx.Create)}
    taken = [each.path for each in effect.operations if isinstance(each, fx.Delete) and each.path in held - made]
    return f"HELD: fsck takes {taken[0]} from a replica that has it" if taken else None


def untrue(
    told: ReportFindings, table: TablePlace, tree: Tree, objects: Objects, disks: Mapping[str, Disk]
) -> str | None:
    """Return what fsck has told that is not so: TRUE."""
    for each in told.findings:
        if each.kind is FindingKind.DANGLING and objects.is_whole(each.share):
            return f"TRUE: {each.share} is said to lack objects"
        if each.kind is FindingKind.ORPHAN and tree.exists(layout.share(table, each.share)):
            return f"TRUE: {each.share} is said to have no owner"
        in_use = (share for disk in disks.values() for _, share in cast("SharedDisk", disk).shares)
        if each.kind is FindingKind.UNREFERENCED and each.share in in_use:
            return f"TRUE: {each.share} is said to have what is not needed"
    return None


# --- the duty -----------------------------------------------------------------------------------------------------------------


def check(operator: Replica) -> Stage:
    """Run fsck with repair."""

    def each(effect: fx.Effect) -> Running:
        return (yield RepairCommit(*effect.operations) if isinstance(effect, fx.Commit) else effect)

    report = yield from translate(fsck_repair.fsck(operator.table, 0, with_repair=True), each)
    if isinstance(report, fsck_repair.Report):
        yield ReportFindings(tuple(finding for finding, _ in report.findings))
    return None


def check_afterwards(operator: Replica, tries: int = 2) -> Stage:
    """Run fsck when objects have come late, and again when an answer that it needed was lost."""
    yield AwaitOrphans()
    yield from check(operator)
    return Then(check_afterwards, (operator, tries - 1)) if tries > 1 else None


DUTIES: dict[str, StageFunction] = {"fsck": check, "fsck afterwards": check_afterwards}
"""What a model can ask for, by name."""


def damage(what: str, part: str, tree: Tree, table: TablePlace) -> tuple[tuple[fx.Operation, ...], ShareId | None]:
    """Return what makes something for fsck to find, and the share whose objects are there then.

    Parameters
    ----------
    what, part
        `orphan`: objects without a node; `garbage`; `unowned`: a share without owners; `attempt`, `gone`: an attempt and a mark
        of a replica that is gone; `earlier`: a mark of an earlier r2 on a share that has no other one; the name of a replica:
        a mark of an earlier one of that name on a part's share.
    """
    share = ShareId(f"{DAMAGED}{what}")
    node = fx.Create(layout.share(table, share))
    match what:
        case "orphan":
            return (), share
        case "garbage":
            return (fx.Create(layout.garbage(table, share)),), share
        case "unowned":
            return (node,), share
        case "attempt":
            return (fx.Create(layout.writing(table, share), b"r9~i"),), share
        case "gone":
            return (node, fx.Create(f"{node.path}/r9~i~{part}")), share
        case "earlier":
            return (node, fx.Create(f"{node.path}/r2~{DAMAGED}i~{part}")), share
    shares = tree.children(layout.shares(table)) or ()
    return (fx.Create(f"{layout.share(table, ShareId(shares[0]))}/{what}~{DAMAGED}i~{part}"),), None
