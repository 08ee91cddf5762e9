"""Footprints: what the next step of a thread looks at; its moves are worked out once for all states that agree in that."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from replitree.protocol.core import effects as fx
from replitree.protocol.program.mender_effects import (
    AwaitLacking,
    AwaitLoss,
    PutBack,
    TakeFromStore,
    TakeOut,
    WholeAgain,
    WriteAnew,
)
from replitree.protocol.program.stages import (
    Accept,
    AwaitElection,
    AwaitMove,
    AwaitPull,
    AwaitReplica,
    AwaitSource,
    AwaitStrays,
    AwaitUpkeep,
    AwaitWork,
    LetGoEnded,
)
from replitree.protocol.rescue.fsck_look import AskReferences, ListAges, ListObjects
from replitree.protocol.shares.moving import BringRows, FindShare, PutPart
from replitree.protocol.shares.share import DeleteObjects, LookAtObjects
from replitree.protocol.shares.share_effects import ForgetParts, HasPart, NameShares, PutShares, SharesHere, SharesOf
from replitree_verify.engine.moves import OBJECTS, TREE
from replitree_verify.process import uploads
from replitree_verify.process.fsck import AwaitOrphans, RepairCommit, ReportFindings
from replitree_verify.process.lost_parts import (
    AwaitBroken,
    Break,
    Heal,
    KeepCopy,
    declared_part,
)
from replitree_verify.process.moves import ON_DISK, HearPlaces
from replitree_verify.process.read_requests import AwaitAnswers, AwaitReadable, ShowRows
from replitree_verify.process.restore_duties import LockDisk, OpenTable
from replitree_verify.world.objects import PutObjects

MEMORY, COORDINATION, DISK, DISKS, MEMORIES, ALONE, ALL_DISKS, EVERYTHING, ANSWERED, ALONE_ANSWERED, STORED = range(11)
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
    STORED: STORED,
}
"""What becomes of a footprint when the process is alone; of all others `ALONE`."""


_KINDS: dict[type, int] = {
    **dict.fromkeys((AwaitBroken, AwaitLacking, AwaitLoss, FindShare, Heal, uploads.HearName), ALL_DISKS),
    AwaitAnswers: ANSWERED,
    **dict.fromkeys((LockDisk, OpenTable, AwaitReadable, ShowRows), EVERYTHING),
    **dict.fromkeys((ListObjects, AskReferences, RepairCommit, ReportFindings), EVERYTHING),
    **dict.fromkeys((fx.Get, fx.GetMany, fx.Exists, fx.Children, fx.ChildrenMany, fx.NextNumber, fx.Commit), COORDINATION),
    **dict.fromkeys((ListAges, uploads.TellName), COORDINATION),
    **dict.fromkeys((AwaitPull, AwaitReplica, AwaitSource, AwaitStrays, AwaitElection), COORDINATION),
    **dict.fromkeys(
        (
            fx.Stage, fx.Publish, fx.ListStaging, fx.RemoveStaging, fx.ListParts, fx.RemovePart, Accept, fx.Reveal, fx.Merge,
            fx.Mutate, fx.Link, fx.MakeEmpty, fx.Untouched, fx.FindPart, fx.Detach, Break, KeepCopy, PutBack, TakeOut,
            WholeAgain,
        ),
        DISK,
    ),
    **dict.fromkeys((NameShares, SharesOf, SharesHere, HasPart, ForgetParts, LetGoEnded, fx.Discard, *ON_DISK), DISK),
    **dict.fromkeys(uploads.EFFECTS, DISK),
    **dict.fromkeys((fx.FetchMany, AwaitWork), DISKS),
    fx.ProbeOwner: MEMORIES,
    **dict.fromkeys((PutShares, DeleteObjects, LookAtObjects, PutPart, BringRows, TakeFromStore, WriteAnew), STORED),
    **dict.fromkeys((PutObjects, AwaitOrphans), STORED),
    **dict.fromkeys((AwaitUpkeep, AwaitMove, HearPlaces), ALONE),
}  # fmt: skip
"""Of each type of effects; of all others `MEMORY`."""


def footprint_of(effect: Any, *, loses: bool = False, stored: bool = False) -> int:
    """Return the kind of footprint of an effect; `loses` as in `local.Here`, `stored` as in `Model`."""
    match effect:
        case AwaitWork() if loses or stored:
            return ALL_DISKS
        case fx.FetchMany() if stored:  # a replica gives the shares of what it has registered
            return ALL_DISKS
        case fx.Commit() if declared_part(effect) is not None:
            return ALL_DISKS
    return _KINDS.get(type(effect), MEMORY)


def takers(
    own: Sequence[int],
    disk: int,
    disks: Sequence[int],
    memories: Sequence[int],
    answers: Sequence[int],
    *,
    stored: bool,
) -> tuple[itemgetter[Any], ...]:
    """Return what takes each kind of footprint of a thread out of a state.

    Parameters
    ----------
    own, disk
        The positions of its place, its process's memory and view; of its replica's disk.
    disks, memories, answers
        The positions of all disks, of all memories, and of what clients have heard.
    stored
        As in `Model`.
    """
    more: dict[int, Sequence[int]] = {
        MEMORY: (),
        COORDINATION: (TREE,),
        DISK: (disk,),
        DISKS: disks,
        MEMORIES: memories,
        ALONE: (TREE, disk),
        ALL_DISKS: (TREE, *disks),
        EVERYTHING: (TREE, *disks, *memories),
        ANSWERED: answers,
        ALONE_ANSWERED: (TREE, disk, *answers),
        STORED: (TREE, disk, OBJECTS),
    }
    if stored:
        # What is fetched has to be there; and a step that asks the own disk for shares is joined to any other one.
        more |= {kind: (*more[kind], OBJECTS) for kind in (DISKS, ALL_DISKS, EVERYTHING)}
        more = {kind: (*positions, disk) for kind, positions in more.items()}
    return tuple(itemgetter(*own, *more[kind]) for kind in range(len(more)))
