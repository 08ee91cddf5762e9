"""What fsck and disks add to a world: the share of a part on a disk, the ages of things, whether fsck tells the truth.

Time is two-valued: what is *young* has come since the grace passed last.  The grace passes only while no
process is in the middle of writing something young: it is longer than that takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from replitree.protocol.core import layout
from replitree.protocol.core.effects import Applied, Commit, Create, Delete, Operation
from replitree.protocol.core.layout import Replica
from replitree.protocol.rescue.fsck import Finding, FindingKind
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
from replitree.protocol.shares.share import (
    ShareId,
)
from replitree_verify.sharing.world import FSCK, PIECES, TABLE, World
from replitree_verify.world.kernel import END, ProcedureFailed
from replitree_verify.world.objects import PutObjects

GRACE_MS = 1
_NOW_MS = 1


@dataclass(frozen=True, slots=True)
class Keep:
    """Put a part with its share on a replica's disk, synced; an upload has no part's name.  Outcome: None."""

    replica: Replica
    part: str
    share: ShareId


@dataclass(frozen=True, slots=True)
class Discard:
    """Remove a part from a replica's disk.  Outcome: None."""

    replica: Replica
    part: str


@dataclass(frozen=True, slots=True)
class OnDisk:
    """Outcome: (part, share) of everything on a replica's disk."""

    replica: Replica


@dataclass(frozen=True, slots=True)
class HandOver:
    """What the disk had of an upload is the process's to stage: until it is staged, only memory has it.  Outcome: None."""

    replica: Replica
    share: ShareId


@dataclass(frozen=True, slots=True)
class TellNames:
    """A client hears the name of a share.  Outcome: None."""

    share: ShareId


@dataclass(frozen=True, slots=True)
class NamesHeard:
    """Outcome: the shares of which a client has heard the names from a replica, ascending."""

    replica: Replica


@dataclass(frozen=True, slots=True)
class OthersDone:
    """Go on when the other seats have done their tasks.  Outcome: None."""


@dataclass(frozen=True, slots=True)
class Told:
    """What fsck says it found.  Outcome: None."""

    findings: tuple[Finding, ...]


def perform(world: World, effect: Any) -> Iterator[tuple[str, World, Any]]:
    """Yield the outcomes of an effect of fsck, or on a disk."""
    match effect:
        case Keep(replica, part, share):
            disks = world.disks - {(replica.name, "", share)} | {(replica.name, part, share)}
            yield "kept", replace(world, disks=disks, handed=world.handed - {(replica.name, share)}), None
        case Discard(replica, part):
            disks = frozenset(each for each in world.disks if each[:2] != (replica.name, part))
            yield "discarded", replace(world, disks=disks), None
        case HandOver() | TellNames() | NamesHeard():
            yield _of_upload(world, effect)
        case ListObjects():
            yield "listed", world, _listing(world)
        case ListAges(path):
            yield "read", world, _ages(world, path)
        case AskReferences(replica):
            yield "answered", world, _references(world, replica)
        case OthersDone():
            if sum(seat.place != END for seat in world.seats) == 1:
                yield "they are", world, None
        case Told(findings):
            yield "told", replace(world, broken=world.broken or _untrue(world, findings)), None
        case _:
            raise ProcedureFailed(f"no part of the model performs {effect}")


def _of_upload(world: World, effect: HandOver | TellNames | NamesHeard) -> tuple[str, World, Any]:
    match effect:
        case HandOver(replica, share):
            return "handed over", replace(world, handed=world.handed | {(replica.name, share)}), None
        case NamesHeard():
            return "told", world, tuple(sorted(world.heard))
        case TellNames(share):
            is_noted = world.tree.exists(layout.writing(TABLE, share))
            harm = "" if is_noted else f"NAMED: a client hears of {share}, which is not noted"
            return "heard", replace(world, heard=world.heard | {share}, broken=world.broken or harm), None


def _listing(world: World) -> Listing:
    return Listing(
        _NOW_MS,
        tuple(
            StoredObject(share, str(piece), 1, _NOW_MS if share in world.young else 0)
            for share, piece in sorted(world.objects)
        ),
    )


def _ages(world: World, path: str) -> tuple[AgedNode, ...]:
    nodes = ((name, world.tree.get(f"{path}/{name}")) for name in world.tree.children(path) or ())
    return tuple(
        AgedNode(name, node.value, 0 if name in world.young else GRACE_MS) for name, node in nodes if node is not None
    )


def _references(world: World, replica: Replica) -> tuple[Reference, ...]:
    files = tuple(NeededFile(str(piece), 1) for piece in range(PIECES))
    return tuple(
        Reference(part, ShareId(share), files) for name, part, share in sorted(world.disks) if name == replica.name
    )


# --- what time does -----------------------------------------------------------------------------------------------------------


def grown_older(world: World, effects: tuple[Any, ...]) -> World | None:
    """Return the world when the grace has passed; None when it can't pass now.

    Parameters
    ----------
    effects
        What every seat is about to do.
    """
    if not world.young:
        return None
    if any(share in world.young for effect in effects for share in _being_written(effect)):
        return None
    return replace(world, young=frozenset())


def _being_written(effect: Any) -> tuple[str, ...]:
    match effect:
        case PutObjects(share):
            return (share,)
        case Commit(operations):
            return new_names(operations, layout.shares(TABLE))
    return ()


def new_names(operations: tuple[Operation, ...], parent: str) -> tuple[str, ...]:
    """Return the names of the nodes that a commit creates right below a parent, and leaves there."""
    again = {each.path for each in operations if isinstance(each, Delete)}
    created = (each.path for each in operations if isinstance(each, Create) and each.path not in again)
    prefix = f"{parent}/"
    return tuple(path[len(prefix) :] for path in created if path.startswith(prefix) and "/" not in path[len(prefix) :])


# --- whether fsck does harm ---------------------------------------------------------------------------------------------------


def harm_of(world: World, name: str, effect: Commit, outcome: Any) -> str:
    """Return what is wrong with a commit that fsck made: it takes from a replica what that has on its disk."""
    if name != FSCK or not isinstance(outcome, Applied):
        return ""
    on_disk = {f"{layout.share(TABLE, share)}/{name}~i1~{part}" for name, part, share in world.disks}
    on_disk |= {layout.writing(TABLE, share) for _, _, share in world.disks}
    created = {each.path for each in effect.operations if isinstance(each, Create)}
    taken = sorted(
        each.path for each in effect.operations if isinstance(each, Delete) and each.path in on_disk - created
    )
    return f"HELD: {taken[0]} is taken from its replica" if taken else ""


def _untrue(world: World, findings: tuple[Finding, ...]) -> str:
    for each in findings:
        if each.kind is FindingKind.DANGLING and all((each.share, piece) in world.objects for piece in range(PIECES)):
            return f"TRUE: {each.share} is said to lack objects"
        if each.kind is FindingKind.ORPHAN and world.tree.get(layout.share(TABLE, each.share)) is not None:
            return f"TRUE: {each.share} is said to have no owner"
        if each.kind is FindingKind.UNREFERENCED and any(share == each.share for _, _, share in world.disks):
            return f"TRUE: {each.share} is said to have what is not needed"
    return ""


__all__ = [
    "GRACE_MS",
    "Discard",
    "HandOver",
    "Keep",
    "NamesHeard",
    "OnDisk",
    "OthersDone",
    "TellNames",
    "Told",
    "grown_older",
    "harm_of",
    "new_names",
    "perform",
]
