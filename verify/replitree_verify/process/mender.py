"""What the mender asks of its process, as the explorer and the simulator perform it.

A process finds out at any moment that a registered part is not whole on its disk.  Patience is left out: a part that a round
has looked for in vain is given up.  Data files without a manifest are in the object store only, in the shares that have marks
of the replica.  `outcomes.objects` performs what is asked of the store: it may give no answer, and then
nothing is decided.

The mender waits while a round would change nothing.  So a state in which no mender goes on is one in which none could.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from replitree.coordination.tree import Tree
from replitree.protocol.core import layout
from replitree.protocol.core.entries import LostEntry
from replitree.protocol.core.layout import Replica
from replitree.protocol.program.mender_effects import (
    AwaitLacking,
    BrokenNotes,
    Losing,
    MarkedShares,
    MendTurn,
    PartContent,
    PutBack,
    SeekFiles,
    SeekShares,
    TakeOut,
    Telling,
    TellTurn,
    WholeAgain,
)
from replitree.protocol.shares.share import ShareId
from replitree.protocol.shares.share_effects import SharedPart
from replitree.protocol.state.registration import content_of, has_searched
from replitree_verify.process.shares import sharer_of
from replitree_verify.world.disk import Disk
from replitree_verify.world.memory import Memory, State
from replitree_verify.world.objects import Objects
from replitree_verify.world.shared_disk import SharedDisk


@dataclass(frozen=True, slots=True)
class Changed:
    """What became of an effect."""

    outcome: Any
    memory: Memory
    disk: Disk


def perform(
    effect: Any, replica: Replica, memory: Memory, tree: Tree, disks: Mapping[str, Disk], objects: Objects | None
) -> Changed | None:
    """Perform an effect of this room; None while what it waits for is not there.

    `objects`: what is in the object store, if the table lies in one and the mender may look there.
    """
    disk = disks[replica.name]
    match effect:
        case AwaitLacking(notes):
            return _await_lacking(notes, replica, memory, tree, disks, objects)
        case PutBack(parts):
            for name, content in parts:
                disk = disk.with_part(name, content) if content in disk.aside else disk
            return Changed(tuple(name for name, content in parts if disk.content(name) == content), memory, disk)
        case SeekShares(parts) if objects is not None:
            return Changed(parts, memory, disk)
        case SeekFiles(parts) if objects is not None:
            return Changed(tuple(each for each in parts if each[0] not in memory.shares.undecided), memory, disk)
        case Losing():
            return Changed(_losing(memory), memory, disk)
        case TakeOut(parts):
            gone = (name for name, content in parts if disk.content(name) == content)
            return Changed(None, memory, disk.without_parts(*gone))
        case WholeAgain(parts):
            whole = frozenset(name for name in parts if disk.content(name) is not None)
            lacking = tuple(each for each in memory.lacking if each[0] not in whole)
            return Changed(None, replace(memory, lacking=lacking), disk)
        case Telling(missing):
            if memory.state is not State.ACTIVE or memory.epoch is None:
                return Changed(None, memory, disk)
            lacked = tuple(name for name, _ in memory.lacking)
            given_up = tuple(name for name in missing if name in lacked and name not in memory.shares.undecided)
            return Changed(TellTurn(memory.epoch, lacked, given_up), memory, disk)
    return Changed((), memory, disk)  # nothing is looked for, and no replica is asked


def _await_lacking(
    notes: BrokenNotes,
    replica: Replica,
    memory: Memory,
    tree: Tree,
    disks: Mapping[str, Disk],
    objects: Objects | None,
) -> Changed | None:
    if memory.state is not State.ACTIVE or memory.epoch is None:
        return None
    disk, losing = disks[replica.name], frozenset(name for name, _ in _losing(memory))
    lacking = {name: content for name, content in memory.lacking if any(part.name == name for part in memory.held)}
    registered = {part.name: tree.get(layout.part(replica, part.name)) for part in memory.held}
    for name, node in registered.items():
        if node is not None and name not in losing and disk.content(name) != content_of(node.value):
            lacking.setdefault(name, content_of(node.value))
    wanted = tuple(sorted((name, content) for name, content in lacking.items() if name not in losing))
    changes_notes = notes.epoch != memory.epoch or any(name not in lacking for name in notes.parts)
    # What the store has not told is looked for again.
    after = replace(memory, lacking=tuple(sorted(lacking.items())), shares=replace(memory.shares, undecided=()))
    if (
        not changes_notes
        and after == memory
        and not any(_has_chance(each, notes, replica, tree, disks) for each in wanted)
        and not any(_share_of(name, replica, memory, tree, objects) for name, _ in wanted)
    ):
        return None
    return Changed(MendTurn(wanted), after, disk)


def _has_chance(
    lacking: PartContent, notes: BrokenNotes, replica: Replica, tree: Tree, disks: Mapping[str, Disk]
) -> bool:
    """Whether a round would get a part that is lacking, or note that it is broken."""
    name, _ = lacking
    disk, node = disks[replica.name], tree.get(layout.part(replica, name))
    if node is None:
        return False
    content = content_of(node.value)
    if disk.content(name) == content or content in disk.aside:
        return True
    if name not in notes.parts or not has_searched(node.value):
        return True
    others = (other for other, its in disks.items() if other != replica.name and its.content(name) == content)
    nodes = (tree.get(layout.part(Replica(replica.table, other), name)) for other in others)
    return any(each is not None and each.value.decode() == content for each in nodes)


def _share_of(name: str, replica: Replica, memory: Memory, tree: Tree, objects: Objects | None) -> ShareId | None:
    """Return a share with a mark of a part of this replica whose objects are all there."""
    if objects is None or not tree.exists(layout.part(replica, name)):
        return None
    mark = sharer_of(replica, memory.shares).mark
    for share in map(ShareId, tree.children(layout.shares(replica.table)) or ()):
        if tree.exists(mark(SharedPart(name, share, is_new=False))) and objects.is_whole(share):
            return share
    return None


def publish_marked(
    parts: tuple[PartContent, ...], marked: MarkedShares, disk: SharedDisk, can_use: Callable[[ShareId], bool]
) -> tuple[tuple[str, ...], SharedDisk]:
    """Publish parts, each with the first of its marked shares that can be used; return their names, and the disk."""
    shares, found = dict(marked), list[str]()
    for name, content in parts:
        share = next(filter(can_use, shares.get(name, ())), None)
        if share is not None:
            disk = disk.with_part(name, content).having(name, share)
            found.append(name)
    return tuple(found), disk


def _losing(memory: Memory) -> tuple[PartContent, ...]:
    entries = (item.entry for item in memory.queue)
    return tuple((entry.part, entry.content_hash) for entry in entries if isinstance(entry, LostEntry))
