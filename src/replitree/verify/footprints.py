"""Footprints: what the next step of a thread looks at; its moves are worked out once for all states that agree in that."""

from __future__ import annotations

from typing import Any

from replitree.protocol.effects import (
    Children,
    Commit,
    Detach,
    Exists,
    FetchMany,
    FindPart,
    Get,
    GetMany,
    Link,
    ListParts,
    ListStaging,
    MakeEmpty,
    Merge,
    Mutate,
    NextNumber,
    ProbeOwner,
    Publish,
    RemovePart,
    RemoveStaging,
    Reveal,
    Stage,
)
from replitree.verify.life import Accept, AwaitPull, AwaitReplica, AwaitWork
from replitree.verify.longlife import AwaitSource
from replitree.verify.losing import AwaitDamage, AwaitLoss, Break, Heal, declared_part
from replitree.verify.reading import AwaitAnswers, AwaitReadable, ShowRows
from replitree.verify.restoring import LockDisk, OpenTable
from replitree.verify.standing import AwaitElection, AwaitStrays

MEMORY, COORDINATION, DISK, DISKS, MEMORIES, ALONE, ALL_DISKS, EVERYTHING, ANSWERED, ALONE_ANSWERED = range(10)
"""Kinds of footprints: what a step looks at besides its place, and its process's memory and view.

Steps that are joined to it look at no more than memory and view, unless the process is alone: then also at the tree and
the disk.
"""

WHEN_ALONE = {
    DISKS: ALL_DISKS,
    ALL_DISKS: ALL_DISKS,
    MEMORIES: EVERYTHING,
    EVERYTHING: EVERYTHING,
    ANSWERED: ALONE_ANSWERED,
}
"""What becomes of a footprint when the process is alone; of all others `ALONE`."""


def footprint_of(effect: Any, *, loses: bool = False) -> int:
    """Return the kind of footprint of an effect; `loses` as in `local.Here`."""
    match effect:
        case AwaitWork() if loses:
            return ALL_DISKS
        case AwaitDamage() | AwaitLoss() | Heal():
            return ALL_DISKS
        case Commit() if declared_part(effect) is not None:
            return ALL_DISKS
        case AwaitAnswers():
            return ANSWERED
        case LockDisk() | OpenTable() | AwaitReadable() | ShowRows():
            return EVERYTHING
        case Get() | GetMany() | Exists() | Children() | NextNumber() | Commit():
            return COORDINATION
        case AwaitPull() | AwaitReplica() | AwaitSource() | AwaitStrays() | AwaitElection():
            return COORDINATION
        case Stage() | Publish() | ListStaging() | RemoveStaging() | ListParts() | RemovePart() | Accept() | Reveal():
            return DISK
        case Merge() | Mutate() | Link() | MakeEmpty() | FindPart() | Detach() | Break():
            return DISK
        case FetchMany() | AwaitWork():
            return DISKS
        case ProbeOwner():
            return MEMORIES
    return MEMORY
