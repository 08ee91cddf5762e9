"""Lost parts: files that break, and what is declared lost.

The mender (`process.mender`) and the stage that declares parts lost are the replica's own.  Four duties stand in for fate, for
an operator and for earlier versions.  The model names what breaks: a part of one replica, or all that is staged there; and what
comes back (`heals`).  Patience is left out: a replica that misses a part declares it lost at any moment, once; after that it
tries again when the registrations, queues and pointers of the others let it succeed.  So a state in which no replica goes on is
one in which none could.

`LOST` is checked where the declaring commit takes place (`kept_rows`): no replica, active or not, may have the part's rows,
whole on its disk and registered, or written for an insert of its own that it has not executed; nor a copy of the part that is
kept aside on a disk (`keeps`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from replitree.coordination.tree import Tree, answer
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import GetEntry, LostEntry, decode_entry
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.parts import Part, parse_part
from replitree.protocol.program import mender
from replitree.protocol.program.mender_effects import AwaitLoss, Loss
from replitree.protocol.state.registration import broken_value, is_broken
from replitree.protocol.state.registration import content_of as registered_content
from replitree.protocol.upkeep.lost import Declared, declare_lost
from replitree_verify.process.mender import Changed
from replitree_verify.world.disk import Disk, content_of, rows_in
from replitree_verify.world.history import Log
from replitree_verify.world.memory import Memory, State

STAGED = "staging"
"""What a model names when everything that is staged breaks."""


# --- effects ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Break(fx.Effect):
    """Wait until a part (or anything staged: `STAGED`) is on the disk; then it is not any more."""

    what: str


@dataclass(frozen=True, slots=True)
class Heal(fx.Effect):
    """Wait until a part's registration says that it is broken; then its files are on the disk again."""

    part: str


@dataclass(frozen=True, slots=True)
class KeepCopy(fx.Effect):
    """Wait until a part is on the disk; then a copy of it is kept aside, too."""

    part: str


@dataclass(frozen=True, slots=True)
class AwaitBroken(fx.Effect):
    """Wait, while active, until the files of a registered part are gone.  Outcome: `Damage`."""

    part: str


@dataclass(frozen=True, slots=True)
class Damage:
    """A registered part whose files are gone: the epoch of the process, the content that it should have."""

    epoch: fx.Epoch
    content_hash: str


def perform(effect: Any, replica: Replica, memory: Memory, tree: Tree, disks: Mapping[str, Disk]) -> Changed | None:
    """Perform an effect of this room; None while what it waits for is not there."""
    disk = disks[replica.name]
    match effect:
        case Break(what):
            after = replace(disk, folders=()) if what == STAGED else disk.without_parts(what)
            return None if after == disk else Changed(None, memory, after)
        case Heal(part):
            node = tree.get(layout.part(replica, part))
            if node is None or not is_broken(node.value):
                return None
            return Changed(None, memory, disk.with_part(part, registered_content(node.value)))
        case KeepCopy(part):
            after = disk.keeping_aside((part,))
            return None if after == disk else Changed(None, memory, after)
        case AwaitBroken(part):
            node = tree.get(layout.part(replica, part))
            if memory.state is not State.ACTIVE or memory.epoch is None or parse_part(part) not in memory.held:
                return None
            if node is None or disk.content(part) is not None:
                return None
            return Changed(Damage(memory.epoch, registered_content(node.value)), memory, disk)
        case AwaitLoss():
            loss = _loss(effect, replica, memory, tree, disk)
            return None if loss is None else Changed(loss, memory, disk)
    raise AssertionError(effect)


def missed_parts(memory: Memory) -> frozenset[str]:
    """Return the parts that a process may have to declare lost: those that it lacks, and those of inserts that wait."""
    waiting = (item for item in memory.queue if item.index in memory.waiting and isinstance(item.entry, GetEntry))
    added = (part for item in waiting for part in item.change.added if memory.held.covering(part) is None)
    return frozenset((*(name for name, _ in memory.lacking), *(part.name for part in added)))


def _loss(awaited: AwaitLoss, replica: Replica, memory: Memory, tree: Tree, disk: Disk) -> Loss | None:
    """Return what a missing part is declared lost with; None when it is not missing, or declaring it again is in vain."""
    part = parse_part(awaited.part)
    if memory.state is not State.ACTIVE or memory.epoch is None or memory.place is None:
        return None
    if disk.content(part.name) is not None or memory.place.parts.covering(part) is None:
        return None
    # Missing: the replica has neither the files nor anything that it could get them from, and it has tried.
    waiting = (item for item in memory.queue if item.index in memory.waiting and part in item.change.added)
    if part in memory.held:
        is_missing = part.name in dict(memory.lacking)
    else:
        is_missing = memory.held.covering(part) is None and any(isinstance(item.entry, GetEntry) for item in waiting)
    if not is_missing:
        return None
    loss = Loss(memory.epoch, layout.parent_of(memory.place.pointer.index), content_of(part.partition, ()), 0)
    return None if awaited.is_again and not _would_be_declared(awaited, loss, replica, memory, tree) else loss


def _would_be_declared(awaited: AwaitLoss, loss: Loss, replica: Replica, memory: Memory, tree: Tree) -> bool:
    """Whether the procedure that declares a part lost would succeed now: it is run on the tree as it is."""
    part = parse_part(awaited.part)
    log = Log(tree, replica.table)
    if any(isinstance(entry, LostEntry) and entry.part == part.name for _, entry in log.since(log.first)):
        return False
    place = Replica(replica.table.below(loss.parent), replica.name)
    procedure = declare_lost(place, loss.epoch, part, loss.empty, loss.schema_version)
    outcome: Any = None
    try:
        while True:
            effect = procedure.send(outcome)
            if isinstance(effect, fx.Commit):
                _, outcome = tree.commit(effect.operations, session=memory.session)
                if not isinstance(outcome, fx.Applied):
                    return False
            else:
                assert isinstance(effect, fx.Get | fx.GetMany | fx.Children | fx.Sync)
                outcome = answer(tree, effect)
    except StopIteration as stop:
        return isinstance(stop.value, Declared)


# --- duties -------------------------------------------------------------------------------------------------------------------


def breaks(replica: Replica, what: str) -> Generator[Any, Any, None]:
    """Let files break, at any moment."""
    del replica
    yield Break(what)


def heals(replica: Replica, part: str) -> Generator[Any, Any, None]:
    """Let files that were noted broken be there again, at any moment: an operator has brought them back."""
    del replica
    yield Heal(part)


def keeps(replica: Replica, part: str) -> Generator[Any, Any, None]:
    """Keep a copy of a part aside: it was frozen or detached, or is a copy of objects."""
    del replica
    yield KeepCopy(part)


def notes_unsearched(replica: Replica, part: str) -> Generator[Any, Any, None]:
    """Note that a part is broken, as an earlier version did: its own disk was not searched for copies."""
    damage: Damage = yield AwaitBroken(part)
    path = layout.part(replica, part)
    node = yield fx.Get(path)
    if node is not None:
        broken = fx.Set(path, broken_value(damage.content_hash), node.version)
        yield fx.Commit(fx.Check(layout.host(replica), damage.epoch), broken)


DUTIES: dict[str, Callable[..., Generator[Any, Any, Any]]] = {
    "break": breaks,
    "heal": heals,
    "keep": keeps,
    "note": notes_unsearched,
    "watch": mender.mend,
    "lose": mender.declare,
}
"""What a model can ask for, by name; each but the mender with the name of a part."""

GOES_ON = ("watch", "lose")
"""What the next process of a seat does as well."""


# --- what a declaration may not do --------------------------------------------------------------------------------------------


LOST_ENTRY = b'{"kind":"lost"'
"""How the value of a `lost` entry begins."""


def declared_part(effect: Any) -> str | None:
    """Return the part that a commit, or a request, declares lost.

    A replica that pulls the entry later creates it in its queue, under its own number, and declares nothing.
    """
    for each in getattr(effect, "operations", ()):
        if isinstance(each, fx.Create) and each.sequential and each.value.startswith(LOST_ENTRY):
            entry = decode_entry(each.value, each.path)
            return entry.part if isinstance(entry, LostEntry) else None
    return None


def kept_rows(name: str, replica: Replica, tree: Tree, disks: Mapping[str, Disk]) -> str | None:
    """LOST: who still has rows of a part that `replica` has just declared lost, in the state before it."""
    part = parse_part(name)
    for other in sorted(disks):
        holder = Replica(replica.table, other)
        registered = tree.get(layout.part(holder, name))
        if registered is not None and registered_content(registered.value) in disks[other].aside:
            return f"LOST: {other} keeps a copy of {name}, and {replica.name} declares it lost"
        for each in map(parse_part, tree.children(layout.parts(holder)) or ()):
            node = tree.get(layout.part(holder, each.name))
            shares = each.partition == part.partition and each.block_min <= part.block_max
            if node is None or is_broken(node.value) or not shares or part.block_min > each.block_max:
                continue
            if rows_in(disks[other].content(each.name) or ""):
                return f"LOST: {other} has {each.name}, and {replica.name} declares {name} lost"
        for staging in _to_be_published(holder, tree, part):
            folder = disks[other].folder(staging)
            is_staged = folder is not None and not folder.torn and part.partition in dict(folder.parts)
            if is_staged or rows_in(disks[other].content(name) or ""):
                return (
                    f"LOST: {other} has the rows of {name} and will register them, and {replica.name} declares it lost"
                )
    return None


def _to_be_published(holder: Replica, tree: Tree, part: Part) -> list[fx.StagingId]:
    """Return the staging ids of the inserts of a part that their writer has still to execute."""
    pointer = tree.get(layout.log_pointer(holder))
    if pointer is None:
        return []
    table, pulled = holder.table, layout.pointer_index(pointer.value)
    # Of the nodes that there are: a part that reaches over a roll-over of the log spans billions of indexes.
    paths = {
        layout.queue_index(name): f"{layout.queue(holder)}/{name}" for name in tree.children(layout.queue(holder)) or ()
    }
    for parent in range(layout.parent_of(part.block_min), layout.parent_of(part.block_max) + 1):
        log = layout.log_parent(table, parent)
        logged = {layout.index_of(table, f"{log}/{name}"): f"{log}/{name}" for name in tree.children(log) or ()}
        paths |= {index: path for index, path in logged.items() if index >= pulled}
    found: list[fx.StagingId] = []
    for index, path in sorted(paths.items()):
        node = tree.get(path) if part.block_min <= index <= part.block_max else None
        entry = None if node is None else decode_entry(node.value, path)
        if isinstance(entry, GetEntry) and entry.replica == holder.name:
            found.append(entry.insert)
    return found
