"""What the checkers of several tables in one tree have in common: how commits end, and what a log says.

They search with `small_search`: a state has the tree, the commits that are on their way, and a budget of faults.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from replitree.coordination.tree import Tree
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import Entry, decode_entry
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.core.log import next_index
from replitree_verify.world.faults import Budget, Fault, spent


class CommitEnd(NamedTuple):
    """One way in which a commit ends.

    Attributes
    ----------
    told
        In words.
    tree, outcome, budget
        The tree after it, what the procedure is told, and the faults that are left.
    late
        The operations, if they are on their way; otherwise nothing.
    """

    told: str
    tree: Tree
    outcome: fx.Committed
    budget: Budget
    late: tuple[tuple[fx.Operation, ...], ...] = ()


def ends_of(tree: Tree, operations: tuple[fx.Operation, ...], budget: Budget) -> Iterator[CommitEnd]:
    """Give each way in which a commit may end; the first one has no fault."""
    after, outcome = tree.commit(operations, 1)
    told = f"-> {type(outcome).__name__}"
    if isinstance(outcome, fx.Refused):
        told = f"{told} by {type(outcome.operation).__name__} {outcome.operation.path}"
    yield CommitEnd(told, after, outcome, budget)
    # A lost answer leaves the procedure in doubt in two ways: the commit is applied, or it may be at any later moment.
    left = spent(budget, Fault.UNKNOWN)
    if left is not None:
        yield CommitEnd("applied, not told", after, fx.Unknown(), left)
        yield CommitEnd("on its way", tree, fx.Unknown(), left, (operations,))


class Arrival(NamedTuple):
    """A late commit arrives: the tree after it, what is still on its way, and whether it was applied."""

    tree: Tree
    late: tuple[tuple[fx.Operation, ...], ...]
    is_applied: bool


def arrivals(tree: Tree, late: tuple[tuple[fx.Operation, ...], ...]) -> Iterator[Arrival]:
    """Give each way in which one of the commits on their way arrives."""
    for number, operations in enumerate(late):
        after, outcome = tree.commit(operations, 1)
        yield Arrival(after, (*late[:number], *late[number + 1 :]), isinstance(outcome, fx.Applied))


def committed(tree: Tree, operations: tuple[fx.Operation, ...]) -> Tree:
    """Return the tree after a commit that is certainly applied."""
    after, outcome = tree.commit(operations, 1)
    assert isinstance(outcome, fx.Applied), outcome
    return after


@lru_cache(4096)
def log_of(tree: Tree, table: TablePlace) -> tuple[tuple[fx.LogIndex, Entry], ...]:
    """Return the entries of a table's log, as a replica pulls them: what comes below a closed parent is never pulled."""
    index, found = fx.LogIndex(0), list[tuple[fx.LogIndex, Entry]]()
    while (node := tree.get(layout.log_entry(table, index))) is not None:
        entry = decode_entry(node.value, "")
        found.append((index, entry))
        index = next_index(index, entry)
    return tuple(found)


def put(values: tuple[Any, ...], at: int, value: Any) -> tuple[Any, ...]:
    """Return some values with another one at a place."""
    return (*values[:at], value, *values[at + 1 :])
