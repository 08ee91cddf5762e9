"""Footprints: what the next step of a thread looks at; its moves are worked out once for all states that agree in that."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from replitree.protocol.core import effects as fx
from replitree.protocol.program.stages import AwaitWork
from replitree_verify.effects import row
from replitree_verify.effects.table import ROW_OF
from replitree_verify.engine.moves import OBJECTS, TREE
from replitree_verify.process.lost_parts import declared_part

WHEN_ALONE = {
    row.DISKS: row.ALL_DISKS,
    row.ALL_DISKS: row.ALL_DISKS,
    row.MEMORIES: row.EVERYTHING,
    row.EVERYTHING: row.EVERYTHING,
    row.ANSWERED: row.ALONE_ANSWERED,
    row.STORED: row.STORED,
}
"""What becomes of a footprint when the process is alone; of all others `ALONE`."""


WITH_DISK = {
    row.MEMORY: row.DISK,
    row.COORDINATION: row.ALONE,
    row.MEMORIES: row.EVERYTHING,
    row.ANSWERED: row.ALONE_ANSWERED,
}
"""What becomes of a footprint without the own disk when a step that looks there is joined (`FindPart`, after a commit)."""


def footprint_of(effect: Any, *, loses: bool = False, stored: bool = False) -> int:
    """Return the kind of footprint of an effect; `loses` as in `local.Here`, `stored` as in `Model`."""
    match effect:
        case AwaitWork() if loses or stored:
            return row.ALL_DISKS
        case fx.FetchMany() if stored:  # a replica gives the shares of what it has registered
            return row.ALL_DISKS
        case fx.Commit() if declared_part(effect) is not None:
            return row.ALL_DISKS
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
        row.MEMORY: (),
        row.COORDINATION: (TREE,),
        row.DISK: (disk,),
        row.DISKS: disks,
        row.MEMORIES: memories,
        row.ALONE: (TREE, disk),
        row.ALL_DISKS: (TREE, *disks),
        row.EVERYTHING: (TREE, *disks, *memories),
        row.ANSWERED: answers,
        row.ALONE_ANSWERED: (TREE, disk, *answers),
        row.STORED: (TREE, disk, OBJECTS),
    }
    if stored:
        # What is fetched has to be there.  A step that asks the own disk for shares is joined to any other one, and a maker
        # that gives its work back removes what it has staged in vain.
        more |= {kind: (*more[kind], OBJECTS) for kind in (row.DISKS, row.ALL_DISKS, row.EVERYTHING)}
        more = {kind: (*positions, disk) for kind, positions in more.items()}
    return tuple(itemgetter(*own, *more[kind]) for kind in range(len(more)))
