"""What a replica of a model does by itself: what it knows, what it does to its disk, and what it waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from replitree.coordination.tree import Tree
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.program.mender_effects import (
    AskAgain,
    AwaitLacking,
    Losing,
    MendTurn,
    PutBack,
    SeekFiles,
    SeekShares,
    Telling,
    TellTurn,
    WholeAgain,
    WriteAnew,
)
from replitree.protocol.program.stages import (
    AskReload,
    AwaitPull,
    AwaitTrouble,
    AwaitUpkeep,
    BeginLoad,
    CurrentSharer,
    GiveBack,
    Lack,
    LeftDisk,
    LetGoEnded,
    Opened,
    PullTurn,
    Quieten,
    ReportTrouble,
    Serve,
    TakeOver,
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
from replitree.protocol.state.pull import Loaded
from replitree_verify.moving.threads import LoseRows, Quarantine
from replitree_verify.moving.world import PART, WRITTEN_BY, Disk, Machine, Note, Process, World, files_of, shares_in
from replitree_verify.shared_tables.world import CONTENT, TABLE, sharer_of
from replitree_verify.world.kernel import ProcedureFailed


def told_at_once(machine: Machine, name: str, thread: str, effect: Any) -> tuple[Any, Machine] | None:
    """Return the outcome of what only changes or asks the process's memory, and the replica after it; None for all else.

    Reads of coordination that no step of a model changes are the scene's.
    """
    process = machine.process
    match effect:
        case fx.CurrentEpoch():
            return process.epoch, machine
        case CurrentSharer():
            return sharer_of(name), machine
        case NameMove():
            written = machine.disk.written
            share = ShareId(f"{name}-{machine.named}" + (f"{WRITTEN_BY}{written}" if written else ""))
            named = replace(machine, named=machine.named + 1)
            return share, replace(named, process=replace(process, moving=process.moving | {share}))
        case Telling(missing):  # what is still missing may come: it is not given up
            assert process.epoch is not None, "a round of the mender begins in an active process"
            return TellTurn(process.epoch, missing, ()), machine
        case LetGoEnded(is_gone=False) | Opened() | Lack():
            return None, machine
        # The disk has no staging and no copy to put back, and the store has no manifest.
        case fx.ListStaging() | PutBack() | SeekShares() | Losing() | AskAgain():
            return (), machine
    after = _remembering(process, thread, effect)
    return None if after is None else (None, replace(machine, process=after))


def _remembering(process: Process, thread: str, effect: Any) -> Process | None:
    """Return a process that remembers what an effect says, which no other thread notices at once; None: it does."""
    match effect:
        case SharesSettled(shares):
            return replace(process, moving=process.moving - set(shares))
        case fx.AdoptEpoch(epoch):
            return replace(process, epoch=epoch, doubtful=frozenset())
        case Quieten():
            return replace(process, is_troubled=False)
        case AskReload():
            return replace(process, reloads=True)
        case GiveBack(done=done, postponed=postponed):
            return replace(process, drop=process.drop.given_back(is_done=bool(done), is_postponed=bool(postponed)))
        case BeginLoad() if not process.drop.is_running:
            return replace(process, loading=process.loading | {thread})
        case ReportTrouble() if process.is_troubled and not process.is_active:
            return process
        case fx.Reveal(parts, gone=()) if process.hidden.isdisjoint(parts):
            return process
    return None


def can_act(world: World, at: int, name: str, effect: Any) -> bool:
    """Whether what a thread waits for is so; True for all that is no waiting."""
    machine = world.machines[at]
    process = machine.process
    match effect:
        case AwaitTrouble():
            return not process.is_active
        case AwaitUpkeep():
            return process.is_active and _next_note(machine) is not None
        case AwaitPull():
            return process.is_active and process.reloads
        case AwaitLacking():
            is_there = (
                _share_elsewhere(world, at, PART) is not None
                or _whole_of(world, _marked_by(world.tree, name)) is not None
            )
            return process.is_active and PART in process.hidden and is_there
        case Quarantine(part):
            return process.is_active and machine.disk.has(part) and machine.disk.share_of(part) is None
    return True


def _next_note(machine: Machine) -> Note | None:
    kept = machine.process.moving | machine.process.doubtful
    return min((note for note in machine.disk.notes if kept.isdisjoint(shares_in(note.share))), default=None)


def act(world: World, at: int, name: str, thread: str, effect: Any) -> tuple[str, World, Any]:
    """Do something to a replica's disk or process, or look at it: in words, the world after it, and the outcome."""
    machine = world.machines[at]
    disk, process = machine.disk, machine.process
    outcome: Any = None
    match effect:
        case SharesInDoubt() | ReportTrouble() | Serve() | BeginLoad() | WholeAgain():
            process = _noticed(process, thread, effect)
        case NoteMove(part, share):
            outcome = disk.has(part)
            disk = disk.noted(part, share) if outcome else disk
            process = replace(process, moving=process.moving | {share})
        case BringRows(part, share):
            outcome = ObjectsInDoubt("not there")
            if disk.share_of(part) == share and all(map(world.is_whole, shares_in(share))):
                disk, outcome = replace(disk, rows=disk.rows | {part}, written=files_of(share)), ObjectsThere()
        case AwaitPull():
            assert process.epoch is not None, "it is active"
            outcome, process = PullTurn(process.epoch, None), replace(process, reloads=False)
        case TakeOver(loaded):
            disk, process, outcome = _taken_over(disk, process, thread, loaded)
        case fx.Reveal(parts, gone):
            disk, process = _without(disk, gone), _noticed(process, thread, WholeAgain(parts))
        case Quarantine(part):
            disk, process = disk.without_part(part), replace(process, hidden=process.hidden | {part})
        case (
            ToShare()
            | ToDisk()
            | fx.RemovePart()
            | LetGoEnded()
            | fx.FetchMany()
            | WriteAnew()
            | ForgetParts()
            | LoseRows()
        ):
            disk, outcome = _changed(world, at, effect)
        case _:
            return "looked", world, _seen(world, at, name, effect)
    return "done", world.with_machine(at, replace(machine, disk=disk, process=process)), outcome


def _noticed(process: Process, thread: str, effect: Any) -> Process:
    """Return a process after an effect on its memory that its other threads notice."""
    match effect:
        case SharesInDoubt(shares):
            moving, doubtful = process.moving - set(shares), process.doubtful | set(shares)
            return replace(process, moving=moving, doubtful=doubtful).in_trouble()
        case ReportTrouble():
            return process.in_trouble()
        case Serve():
            return replace(process, is_active=not process.is_troubled)
        case BeginLoad():
            return replace(process, loading=process.loading | {thread})
        case WholeAgain(parts):
            return replace(process, hidden=process.hidden - set(parts), loading=frozenset())
    raise ProcedureFailed(f"no part of the model performs {effect}")


def _taken_over(
    disk: Disk, process: Process, thread: str, loaded: Loaded
) -> tuple[Disk, Process, tuple[str, ...] | None]:
    """Take the state as it was loaded, unless a part was shown or hidden meanwhile; what is not registered any more leaves."""
    if thread not in process.loading:
        return disk, process, None
    drop = process.drop.loaded(is_queued=bool(loaded.queue))
    process = replace(process, drop=drop, loading=process.loading - {thread})
    registered = {part.name for part in loaded.held}
    return _without(disk, tuple(part for part, _ in disk.parts if part not in registered)), process, ()


def _without(disk: Disk, parts: tuple[str, ...]) -> Disk:
    """Remove parts that no read is shown any more."""
    for part in parts:
        disk = disk.without_part(part) if disk.has(part) else disk
    return disk


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
        case fx.RemovePart(part):
            return _without(disk, (part,)), None
        case ForgetParts(parts):
            return _without(disk, parts), None
        case LoseRows(part):
            return replace(disk, rows=disk.rows - {part}), None
        case fx.FetchMany(fetches):
            found = _share_elsewhere(world, at, PART)
            if found is None:
                return disk, tuple(fx.NotFetched(each.part, "no replica sends it") for each in fetches)
            return disk.with_part(PART, found), tuple(fx.Fetched(each.part) for each in fetches)
        case WriteAnew(_, marked):
            found = _whole_of(world, dict(marked).get(PART, ()))
            return (disk, ()) if found is None else (disk.with_part(PART, found), (PART,))
    raise ProcedureFailed(f"no part of the model performs {effect}")


def _whole_of(world: World, shares: Iterable[ShareId]) -> ShareId | None:
    """Return the share of which a part can be written anew: its own one, when the part borrows of others."""
    whole = (share for share in shares if all(map(world.is_whole, shares_in(share))))
    return max(whole, key=lambda share: len(shares_in(share)), default=None)


def _marked_by(tree: Tree, name: str) -> tuple[ShareId, ...]:
    """Return the shares that a replica has marked for its part."""
    mark = sharer_of(name).mark
    shares = map(ShareId, tree.children(layout.shares(TABLE)) or ())
    return tuple(share for share in shares if tree.exists(mark(SharedPart(PART, share, is_new=False))))


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
        case AwaitUpkeep():
            note = _next_note(machine)
            assert note is not None, "it waits for one"
            assert process.epoch is not None, "it is active"
            left = LeftDisk(str(note.number), note.part, shares_in(note.share))
            return UpkeepTurn(sharer_of(name), process.epoch, left)
        case AwaitTrouble():
            return None
        case AwaitLacking():
            return MendTurn(((PART, CONTENT),), sharer_of(name))
        case SeekFiles(parts):
            return parts
        case fx.ListParts():
            return tuple(part for part, _ in disk.parts)
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
