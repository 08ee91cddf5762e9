"""What a replica of a model does by itself: what it knows, what it does to its disk, and what it waits for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from replitree.protocol.core.effects import AdoptEpoch, CurrentEpoch, RemovePart
from replitree.protocol.program.stages import (
    AwaitTrouble,
    AwaitUpkeep,
    LeftDisk,
    LetGoEnded,
    ReportTrouble,
    Serve,
    UpkeepTurn,
)
from replitree.protocol.shares.moving import BringRows, FindShare, FoundShare, NameMove, NoteMove, ToDisk, ToShare
from replitree.protocol.shares.share import ObjectsInDoubt, ObjectsThere, ShareId
from replitree.protocol.shares.share_effects import (
    ForgetParts,
    HasPart,
    SharedPart,
    SharesHere,
    SharesInDoubt,
    SharesOf,
    SharesSettled,
)
from replitree_verify.moving.threads import AwaitActive, HasRows, LoseRows, Quarantine, Refetch, Show
from replitree_verify.moving.world import WRITTEN_BY, Disk, Machine, Note, World, files_of, shares_in
from replitree_verify.shared_tables.world import sharer_of
from replitree_verify.world.kernel import ProcedureFailed


def told_at_once(machine: Machine, name: str, effect: Any) -> tuple[Any, Machine] | None:
    """Return the outcome of what only changes or asks the process's memory, and the replica after it; None for all else."""
    process = machine.process
    match effect:
        case AwaitActive() if process.is_active:
            return process.epoch, machine
        case HasRows(part):
            return machine.disk.has(part) and machine.disk.share_of(part) is None, machine
        case LetGoEnded(is_gone=False):
            return None, machine
        case SharesSettled(shares):
            return None, replace(machine, process=replace(process, moving=process.moving - set(shares)))
        case CurrentEpoch():
            return process.epoch, machine
        case AdoptEpoch(epoch):
            return None, replace(machine, process=replace(process, epoch=epoch, doubtful=frozenset()))
        case NameMove():
            written = machine.disk.written
            share = ShareId(f"{name}-{machine.named}" + (f"{WRITTEN_BY}{written}" if written else ""))
            named = replace(machine, named=machine.named + 1)
            return share, replace(named, process=replace(process, moving=process.moving | {share}))
    return None


def can_act(world: World, at: int, effect: Any) -> bool:
    """Whether what a thread waits for is so; True for all that is no waiting."""
    process = world.machines[at].process
    match effect:
        case AwaitActive():
            return process.is_active
        case AwaitTrouble():
            return not process.is_active
        case AwaitUpkeep():
            return process.is_active and _next_note(world.machines[at]) is not None
    return True


def _next_note(machine: Machine) -> Note | None:
    kept = machine.process.moving | machine.process.doubtful
    return min((note for note in machine.disk.notes if kept.isdisjoint(shares_in(note.share))), default=None)


def act(world: World, at: int, name: str, effect: Any) -> tuple[str, World, Any]:
    """Do something to a replica's disk or process, or look at it: in words, the world after it, and the outcome."""
    machine = world.machines[at]
    disk, process = machine.disk, machine.process
    outcome: Any = None
    match effect:
        case SharesInDoubt(shares):
            moving, doubtful = process.moving - set(shares), process.doubtful | set(shares)
            process = replace(process, moving=moving, doubtful=doubtful, is_active=False)
        case NoteMove(part, share):
            outcome = disk.has(part)
            disk = disk.noted(part, share) if outcome else disk
            process = replace(process, moving=process.moving | {share})
        case BringRows(part, share):
            outcome = ObjectsInDoubt("not there")
            if disk.share_of(part) == share and all(map(world.is_whole, shares_in(share))):
                disk, outcome = replace(disk, rows=disk.rows | {part}, written=files_of(share)), ObjectsThere()
        case ReportTrouble():
            process = replace(process, is_active=False)
        case Serve():
            process = replace(process, is_active=True)
        case Show(part):
            process = replace(process, hidden=process.hidden - {part})
        case Quarantine(part):
            disk, process = disk.without_part(part), replace(process, hidden=process.hidden | {part})
        case ToShare() | ToDisk() | RemovePart() | LetGoEnded() | Refetch() | ForgetParts() | LoseRows():
            disk, outcome = _changed(world, at, effect)
        case _:
            return "looked", world, _seen(world, at, name, effect)
    return "done", world.with_machine(at, replace(machine, disk=disk, process=process)), outcome


def _changed(world: World, at: int, effect: Any) -> tuple[Disk, Any]:
    disk = world.machines[at].disk
    match effect:
        case ToShare(part, share):
            is_here = disk.has(part) and disk.share_of(part) is None
            return (disk.with_part(part, share) if is_here else disk), is_here
        case ToDisk(part, share):
            is_here = disk.share_of(part) == share
            return (disk.with_part(part, None) if is_here else disk), is_here
        case LetGoEnded(LeftDisk(number, part, shares)):
            return replace(disk, notes=disk.notes - {Note(part, shares[0], int(number))}), None
        case RemovePart(part):
            return (disk.without_part(part) if disk.has(part) else disk), None
        case ForgetParts(parts):
            for part in parts:
                disk = disk.without_part(part)
            return disk, None
        case LoseRows(part):
            return replace(disk, rows=disk.rows - {part}), None
        case Refetch(part):
            found = _share_elsewhere(world, at, part)
            return (disk if found is None else disk.with_part(part, found)), found is not None
    raise ProcedureFailed(f"no part of the model performs {effect}")


def has_same_files(disk: Disk, share: ShareId) -> bool:
    """Whether the files of a part on a disk are those of a share."""
    return disk.written == files_of(share)


def _share_elsewhere(
    world: World, at: int, part: str, fits: Callable[[Disk, ShareId], bool] = lambda _disk, _share: True
) -> ShareId | None:
    """Return the share that another replica's manifest names, if it can be read in the store and fits this disk."""
    disk, others = world.machines[at].disk, (each for number, each in enumerate(world.machines) if number != at)
    for share in (each.disk.share_of(part) for each in others):
        if share is not None and all(map(world.is_whole, shares_in(share))) and fits(disk, share):
            return share
    return None


def _seen(world: World, at: int, name: str, effect: Any) -> Any:
    machine = world.machines[at]
    disk, process = machine.disk, machine.process
    match effect:
        case AwaitActive():
            return process.epoch
        case AwaitUpkeep():
            note = _next_note(machine)
            assert note is not None, "it waits for one"
            assert process.epoch is not None, "it is active"
            left = LeftDisk(str(note.number), note.part, shares_in(note.share))
            return UpkeepTurn(sharer_of(name), process.epoch, left)
        case AwaitTrouble():
            return None
        case HasPart(part):
            return disk.has(part)
        case FindShare(part):
            found = _share_elsewhere(world, at, part, has_same_files)
            is_noted = any((note.part, note.share) == (part, found) for note in disk.notes)
            return None if found is None or len(shares_in(found)) > 1 else FoundShare(found, is_noted)
        case SharesOf(parts):
            found_here = [(part, own) for part in parts if (own := disk.share_of(part)) is not None]
            return tuple(SharedPart(part, share, is_new=False) for part, own in found_here for share in shares_in(own))
        case SharesHere():
            named = {share for _, share in disk.parts if share is not None} | {note.share for note in disk.notes}
            here = {share for own in named for share in shares_in(own)}
            return tuple(sorted(here | process.moving | process.doubtful))
    raise ProcedureFailed(f"no part of the model performs {effect}")


__all__ = ["act", "can_act", "has_same_files", "told_at_once"]
