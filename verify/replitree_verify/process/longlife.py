"""A long life: what waits and works beside the threads of `life` when the log is cleaned and replicas are lost.

*Duties* are asked for by a model, each once: a replica cleans the log, an operator drops a replica or declares one the
survivor.  An operator sits at a seat of its own, whose replica never joins the table.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
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
from replitree.protocol.program import cleaner, life
from replitree.protocol.program.stages import Stage, Then
from replitree.protocol.rescue.recover import survive
from replitree.protocol.shares.share import work_off
from replitree.protocol.shares.table_store import sharing_nodes
from replitree_verify.world.model import REMADE


def any_good(tree: Tree, table: TablePlace) -> bool:
    """Whether a replica of the table is not lost."""
    names = tree.children(layout.replicas(table)) or ()
    marks = (tree.get(layout.is_lost(Replica(table, name))) for name in names)
    return any(mark is not None and mark.value == NOT_LOST for mark in marks)


@dataclass(frozen=True, slots=True)
class Appear(fx.Effect):
    """A process starts where there was none."""


def appear(replica: Replica, me: bytes) -> Stage:
    """Start, some time."""
    yield Appear()
    return Then(life.become_active, (replica, me))


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
