"""A long life: what waits and works beside the threads of `life` when the log is cleaned and replicas are lost.

*Duties* are asked for by a model, each once: a replica cleans the log, an operator drops a replica or declares one the
survivor.  An operator sits at a seat of its own, whose replica never joins the table.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any

from replitree.coordination.tree import Tree
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.membership.table import (
    NOT_LOST,
    TableOutcome,
    create_table,
    drop_replica,
    mark_dropped,
    remove_table,
)
from replitree.protocol.membership.table import (
    leave_table as take_out,  # a stage of the program has the same name
)
from replitree.protocol.program import cleaner
from replitree.protocol.program.stages import AwaitCleaning, AwaitIdle, AwaitSource, Forget, Missed, Stage, Then
from replitree.protocol.rescue.recover import survive
from replitree.protocol.shares.share import work_off
from replitree.protocol.shares.table_store import sharing_nodes
from replitree_verify.world.memory import Memory, State
from replitree_verify.world.model import REMADE

# --- effects on the memory of the process -------------------------------------------------------------------------------------


EFFECTS = (AwaitCleaning, AwaitIdle, AwaitSource, Forget, Missed)


@dataclass(frozen=True, slots=True)
class Remembered:
    """What became of an effect on memory."""

    memory: Memory
    outcome: Any = None


def perform(effect: Any, memory: Memory, tree: Tree, replica: Replica) -> Remembered | None:
    """Perform one of `EFFECTS`; None while what it waits for is not there."""
    match effect:
        case Missed(index):
            return Remembered(replace(memory.with_trouble(), missed=index))
        case Forget():
            begun = Memory(memory.incarnation, memory.session, state=memory.state)
            return Remembered(replace(begun, staging=memory.staging, shares=memory.shares, moves=memory.moves))
        case AwaitIdle():
            return None if memory.running else Remembered(memory)
        case AwaitSource():
            return Remembered(memory) if any_good(tree, replica.table) else None
        case AwaitCleaning():
            is_active = memory.state is State.ACTIVE and memory.epoch is not None
            return Remembered(memory, memory.epoch) if is_active else None
    raise AssertionError(effect)


def any_good(tree: Tree, table: TablePlace) -> bool:
    """Whether a replica of the table is not lost."""
    names = tree.children(layout.replicas(table)) or ()
    marks = (tree.get(layout.is_lost(Replica(table, name))) for name in names)
    return any(mark is not None and mark.value == NOT_LOST for mark in marks)


# --- duties -------------------------------------------------------------------------------------------------------------------


def drop_other(operator: Replica, name: str, shared: bool = False) -> Generator[Any, Any, None]:
    """Take a replica out of the table, with its shares if the table lies in an object store."""
    yield from drop_replica(Replica(operator.table, name), shared=shared)


def declare_survivor(operator: Replica, name: str, behind: bool = False) -> Generator[Any, Any, None]:
    """Declare a replica's state the table's."""
    yield from survive(operator.table, name, behind=behind)


def remake_table(operator: Replica, names: tuple[str, ...]) -> Stage:
    """Drop the table, whose replicas are taken out of it wherever they are, and create another one; try again in doubt."""
    table, again = operator.table, Then(remake_table, (operator, names))
    shared: bool = yield fx.Exists(layout.sharing(table))
    match (yield from mark_dropped(table)):
        case TableOutcome.MISSING:
            return None
        case TableOutcome.UNSETTLED:
            return again
    for name in names:
        yield from take_out(Replica(table, name), shared=shared)
    if shared:
        yield from work_off(table)
    if (yield from remove_table(table)) is not TableOutcome.DONE:
        return again
    yield from create_table(REMADE, b"", b"", sharing_nodes(REMADE) if shared else ())
    return None


def remove_rest(operator: Replica) -> Generator[Any, Any, None]:
    """Remove what is left of a table whose drop has begun."""
    if (yield fx.Exists(layout.dropped(operator.table))):
        yield from remove_table(operator.table)


DUTIES: dict[str, Callable[..., Generator[Any, Any, Any]]] = {
    "clean": cleaner.clean_entries,
    "drop": drop_other,
    "remake": remake_table,
    "remove": remove_rest,
    "survive": declare_survivor,
}
"""What can be asked for, by name."""
