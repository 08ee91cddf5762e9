"""A long life: what waits and works beside the threads of `life` when the log is cleaned and replicas are lost.

*Duties* are asked for by a model, each once: a replica cleans the log, an operator drops a replica or declares one the
survivor.  An operator sits at a seat of its own, whose replica never joins the table.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from replitree.coordination.tree import Tree
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Epoch
from replitree.protocol.core.layout import Replica, Table
from replitree.protocol.membership.table import NOT_LOST, drop_replica
from replitree.protocol.program.stages import AwaitIdle, AwaitSource, Forget, Missed
from replitree.protocol.rescue.recover import survive
from replitree.protocol.upkeep.clean_log import Keep, clean_log
from replitree_verify.world.memory import Memory, State

Duty: TypeAlias = Generator[Any, Any, None]
"""A thread of one stage: effects of the protocol and of this module."""

# --- effects on the memory of the process -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AwaitTurn:
    """Wait until the process is active.  Outcome: the epoch."""


EFFECTS = (AwaitIdle, AwaitSource, AwaitTurn, Forget, Missed)


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
            return Remembered(Memory(memory.incarnation, memory.session, state=memory.state, staging=memory.staging))
        case AwaitIdle():
            return None if memory.running else Remembered(memory)
        case AwaitSource():
            return Remembered(memory) if any_good(tree, replica.table) else None
        case AwaitTurn():
            is_active = memory.state is State.ACTIVE and memory.epoch is not None
            return Remembered(memory, memory.epoch) if is_active else None
    raise AssertionError(effect)


def any_good(tree: Tree, table: Table) -> bool:
    """Whether a replica of the table is not lost."""
    names = tree.children(layout.replicas(table)) or ()
    marks = (tree.get(layout.is_lost(Replica(table, name))) for name in names)
    return any(mark is not None and mark.value == NOT_LOST for mark in marks)


# --- duties -------------------------------------------------------------------------------------------------------------------


def clean(replica: Replica, at_least: int, at_most: int) -> Duty:
    """Clean the log once."""
    epoch: Epoch = yield AwaitTurn()
    yield from clean_log(replica, epoch, Keep(at_least, at_most))


def drop_other(operator: Replica, name: str, shared: bool = False) -> Duty:
    """Take a replica out of the table, with its shares if the table lies in an object store."""
    yield from drop_replica(Replica(operator.table, name), shared=shared)


def declare_survivor(operator: Replica, name: str, behind: bool = False) -> Duty:
    """Declare a replica's state the table's."""
    yield from survive(operator.table, name, behind=behind)


DUTIES: dict[str, Callable[..., Duty]] = {"clean": clean, "drop": drop_other, "survive": declare_survivor}
"""What can be asked for, by name."""
