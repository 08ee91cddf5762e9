"""Footprints: what the next step of a thread looks at; its moves are worked out once for all states that agree in that."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from replitree.protocol.core import effects as fx
from replitree.protocol.program.stages import AwaitWork
from replitree_verify.effects.row import (
    ALL_DISKS,
    ALONE,
    ALONE_ANSWERED,
    ANSWERED,
    COORDINATION,
    DISK,
    DISKS,
    EVERYTHING,
    MEMORIES,
    MEMORY,
    STORED,
)
from replitree_verify.effects.table import ROW_OF
from replitree_verify.engine.moves import OBJECTS, TREE
from replitree_verify.process.lost_parts import declared_part

WHEN_ALONE = {
    DISKS: ALL_DISKS,
    ALL_DISKS: ALL_DISKS,
    MEMORIES: EVERYTHING,
    EVERYTHING: EVERYTHING,
    ANSWERED: ALONE_ANSWERED,
    STORED: STORED,
}
"""What becomes of a footprint when the process is alone; of all others `ALONE`."""


def footprint_of(effect: Any, *, loses: bool = False, stored: bool = False) -> int:
    """Return the kind of footprint of an effect; `loses` as in `local.Here`, `stored` as in `Model`."""
    match effect:
        case AwaitWork() if loses or stored:
            return ALL_DISKS
        case fx.FetchMany() if stored:  # a replica gives the shares of what it has registered
            return ALL_DISKS
        case fx.Commit() if declared_part(effect) is not None:
            return ALL_DISKS
    return ROW_OF[type(effect)].footprint


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
