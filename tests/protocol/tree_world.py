"""Coordination in memory, for procedures that run to their end."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from replitree.coordination.tree import Tree, answer
from replitree.procedures import run
from replitree.protocol.core.effects import AdoptEpoch, Commit, CurrentEpoch, Operation, Sync


class TreeWorld:
    """A tree, and procedures whose effects take place on it at once.

    Whoever knows other effects, or lets something come between, answers in `perform`, and leaves the rest to this one.

    Parameters
    ----------
    tree
        What there is at first.
    """

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    def commit(self, *operations: Operation) -> Any:
        """Commit; return what came of it."""
        self.tree, outcome = self.tree.commit(operations, session=1)
        return outcome

    def run(self, procedure: Generator[Any, Any, Any]) -> Any:
        """Run a procedure to its end; return what it returns."""
        return run(procedure, self.perform)

    def perform(self, effect: Any) -> Any:
        """Return the outcome of an effect; there is no epoch."""
        match effect:
            case Commit(operations):
                return self.commit(*operations)
            case Sync() | AdoptEpoch() | CurrentEpoch():
                return None
        return answer(self.tree, effect)
