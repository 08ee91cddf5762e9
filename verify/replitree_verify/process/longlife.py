"""A long life: what waits and works beside the threads of `life` when the log is cleaned and replicas are lost.

*Duties* are asked for by a model, each once: a replica cleans the log, an operator drops a replica or declares one the
survivor.  An operator sits at a seat of its own, whose replica never joins the table.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any

from replitree.coordination.tree import Tree
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.membership.table import NOT_LOST, drop_replica
from replitree.protocol.program import cleaner
from replitree.protocol.program.stages import AwaitCleaning, AwaitIdle, AwaitSource, Forget, Missed
from replitree.protocol.rescue.recover import survive
from replitree_verify.world.memory import Memory, State

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
            return Remembered(replace(begun, staging=memory.staging, shares=memory.shares))
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


DUTIES: dict[str, Callable[..., Generator[Any, Any, Any]]] = {
    "clean": cleaner.clean_entries,
    "drop": drop_other,
    "survive": declare_survivor,
}
"""What can be asked for, by name."""
