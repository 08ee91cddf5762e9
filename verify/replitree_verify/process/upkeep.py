"""Upkeep: what a leader and a cleaner do now and then besides merging, as duties of a model.

Results that have left are forgotten and the log goes on below a fresh parent by the leader's own stages
(`replitree.protocol.program.leader`).  Deduplication ids are forgotten, and the log is cleaned with them, by counterparts of
`replica.table.cleaner`, each of one turn or a few.

*Times.*  Ids are forgotten by age too.  In a model that says how long they stay (`Model.window`) coordination has a clock that
moves with every entry of the log: the time of an id is the number of entries before it was written.  It is kept beside the tree
(`past`), and read with the node.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from replitree.coordination.tree import Tree
from replitree.protocol.core import layout
from replitree.protocol.core.effects import BlockId
from replitree.protocol.core.layout import Replica
from replitree.protocol.program import leader
from replitree.protocol.program.stages import AwaitPlace, PlaceTurn, Stage, Then
from replitree.protocol.upkeep.clean_blocks import Block, Window, clean_blocks
from replitree.protocol.upkeep.clean_log import Keep, clean_log
from replitree_verify.process.longlife import Remembered
from replitree_verify.world.memory import Memory, State

# --- effects ------------------------------------------------------------------------------------------------------------------


EFFECTS = (AwaitPlace,)


def perform(effect: AwaitPlace, memory: Memory, tree: Tree, replica: Replica) -> Remembered | None:
    """Perform the effect; None while what it waits for is not there."""
    del tree, replica
    epoch, place = memory.epoch, memory.place
    if memory.state is not State.ACTIVE or epoch is None or place is None:
        return None
    below = place.pointer.index % layout.PARENT_ENTRIES
    return Remembered(memory, PlaceTurn(epoch, place)) if below >= effect.pulled else None


# --- duties -------------------------------------------------------------------------------------------------------------------


def forget_ids(
    replica: Replica, count: int, age_ms: int, rounds: int = 1, known: tuple[tuple[BlockId, Block], ...] = ()
) -> Stage:
    """Clean the deduplication ids, so many times; what was read is remembered in between."""
    turn: PlaceTurn = yield AwaitPlace()
    cleaned = yield from clean_blocks(replica, turn.epoch, Window(count, age_ms), dict(known))
    if rounds == 1:
        return None
    left = tuple(sorted(cleaned.blocks.items()))
    return Then(forget_ids, (replica, count, age_ms, rounds - 1, left))


def tidy(replica: Replica, count: int, age_ms: int, at_least: int, at_most: int) -> Generator[Any, Any, None]:
    """Clean the deduplication ids, then the log."""
    turn: PlaceTurn = yield AwaitPlace()
    yield from clean_blocks(replica, turn.epoch, Window(count, age_ms), {})
    yield from clean_log(replica, turn.epoch, Keep(at_least, at_most))


DUTIES: dict[str, Callable[..., Generator[Any, Any, Any]]] = {
    "roll": leader.roll,
    "ids": forget_ids,
    "tidy": tidy,
    "results": leader.note_results,
}
"""What a model can ask for, by name."""
