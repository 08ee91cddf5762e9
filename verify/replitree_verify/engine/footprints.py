"""Footprints: what the next step of a thread looks at; its moves are worked out once for all states that agree in that."""

from __future__ import annotations

from typing import Any

from replitree.protocol.core import effects as fx
from replitree.protocol.program.mender_effects import AwaitLacking, AwaitLoss, PutBack, TakeOut, WholeAgain
from replitree.protocol.program.stages import (
    Accept,
    AwaitElection,
    AwaitPull,
    AwaitReplica,
    AwaitSource,
    AwaitStrays,
    AwaitWork,
)
from replitree_verify.process.lost_parts import (
    AwaitBroken,
    Break,
    Heal,
    KeepCopy,
    declared_part,
)
from replitree_verify.process.read_requests import AwaitAnswers, AwaitReadable, ShowRows
from replitree_verify.process.restore_duties import LockDisk, OpenTable

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
        case AwaitBroken() | AwaitLacking() | AwaitLoss() | Heal():
            return ALL_DISKS
        case fx.Commit() if declared_part(effect) is not None:
            return ALL_DISKS
        case AwaitAnswers():
            return ANSWERED
        case LockDisk() | OpenTable() | AwaitReadable() | ShowRows():
            return EVERYTHING
        case fx.Get() | fx.GetMany() | fx.Exists() | fx.Children() | fx.NextNumber() | fx.Commit():
            return COORDINATION
        case AwaitPull() | AwaitReplica() | AwaitSource() | AwaitStrays() | AwaitElection():
            return COORDINATION
        case (
            fx.Stage()
            | fx.Publish()
            | fx.ListStaging()
            | fx.RemoveStaging()
            | fx.ListParts()
            | fx.RemovePart()
            | Accept()
            | fx.Reveal()
        ):
            return DISK
        case (
            fx.Merge()
            | fx.Mutate()
            | fx.Link()
            | fx.MakeEmpty()
            | fx.FindPart()
            | fx.Detach()
            | Break()
            | KeepCopy()
            | PutBack()
            | TakeOut()
            | WholeAgain()
        ):
            return DISK
        case fx.FetchMany() | AwaitWork():
            return DISKS
        case fx.ProbeOwner():
            return MEMORIES
    return MEMORY
