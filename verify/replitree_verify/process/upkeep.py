"""Upkeep: what a leader and a cleaner do now and then besides merging, as duties of a model.

Deduplication ids are forgotten, results that have left are forgotten, and the log goes on below a fresh parent.  The duties are
the counterparts of `replica.table.cleaner` and `replica.table.leader`, each of one turn or a few.

*Times.*  Ids are forgotten by age too.  In a model that says how long they stay (`Model.window`) coordination has a clock that
moves with every entry of the log: the time of an id is the number of entries before it was written.  It is kept beside the tree
(`past`), and read with the node.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from replitree.coordination.tree import Tree
from replitree.protocol.core import layout
from replitree.protocol.core.effects import BlockId, Children, Epoch, LogIndex
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.parts import parse_part
from replitree.protocol.program.stages import Stage, Then
from replitree.protocol.propose.roll_over import roll_over
from replitree.protocol.state.pull import Place
from replitree.protocol.upkeep.clean_blocks import Block, Window, clean_blocks
from replitree.protocol.upkeep.clean_log import Keep, clean_log
from replitree.protocol.upkeep.clean_results import clean_results, has_left, lowest_need
from replitree_verify.process.longlife import Remembered
from replitree_verify.process.threads import following
from replitree_verify.world.memory import Memory, State

# --- effects ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AwaitPlace:
    """Wait, while active, until so many entries below the present parent of the log are pulled.  Outcome: `PlaceTurn`."""

    pulled: int = 0


@dataclass(frozen=True, slots=True)
class PlaceTurn:
    """What an upkeep works with."""

    epoch: Epoch
    place: Place


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


def roll(replica: Replica, pulled: int) -> Generator[Any, Any, None]:
    """Let the log go on below the next parent as soon as so many entries below the present one are pulled."""
    turn: PlaceTurn = yield AwaitPlace(pulled)
    yield from roll_over(following(replica, turn.place.pointer.index), turn.epoch)


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


def note_results(replica: Replica) -> Stage:
    """Note the results that have left, to forget them later."""
    turn: PlaceTurn = yield AwaitPlace()
    names: tuple[str, ...] = (yield Children(layout.results(replica.table))) or ()
    left = tuple(name for name in names if has_left(parse_part(name), turn.place))
    return Then(forget_results, (replica, turn.place.pointer.index, left)) if left else None


def forget_results(replica: Replica, pointer: LogIndex, names: tuple[str, ...]) -> Stage:
    """Forget results that had left below `pointer`, if every replica is past it; once."""
    turn: PlaceTurn = yield AwaitPlace()
    need = yield from lowest_need(replica.table)
    if need is not None and need.lowest >= pointer:
        yield from clean_results(replica, turn.epoch, names, need.added)
    return None


DUTIES: dict[str, Callable[..., Generator[Any, Any, Any]]] = {
    "roll": roll,
    "ids": forget_ids,
    "tidy": tidy,
    "results": note_results,
}
"""What a model can ask for, by name."""
