"""Mappings, and the search for a way between the states that two outlines stand for."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping as Named
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from replitree.coordination.tree import Tree
from replitree.protocol.core.layout import TablePlace
from replitree_published.packed.model import DROPPED, Limits, PackedModel
from replitree_verify.process.read_requests import Shown, ShowRows, Told

STATES_MAX = 20_000
"""A search for a way that knows so many states ends undecided."""

FAN_OUT = 1 << 17
"""Room for the successors of one state; a cleaner may want any number of entries to be gone."""

Answers: TypeAlias = Named[int, Told | None]
"""What each request of a run was told, if anything; reads at the level eventual are left out."""

Way: TypeAlias = tuple[str, ...]
"""The actions of the packed model that lead from one state to another; none when they are the same."""


class Undecided(Exception):
    """A search for a way has reached its limit: nothing is said about the step."""


class NoState(Exception):
    """What coordination shows stands for no state of the packed model; says why."""


@dataclass(frozen=True, slots=True)
class Mapping:
    """How outlines stand for states of a packed model.

    Attributes
    ----------
    name, model
        Its name; onto what.
    kind, outline_of
        The class of its outlines; the outline of a table with these replicas, all that there ever are.
    limits
        The packed model's limits for so many replicas.
    state_of
        The state that an outline stands for.
    seen_of
        A state without what outlines don't show, and what is without effect where outlines stand.
    is_between
        Whether a way from one state to another may go through a third one.  It makes the search short: ways that it leaves out
        are not found, so it can make a step fail, and never make one pass.
    heard
        An outline with what clients were told; None where that does not count.
    read
        Of outlines before and after a read: those in which it is asked for, and done.  None where reads do not count.
    """

    name: str
    model: PackedModel
    kind: type[Any]
    outline_of: Callable[[Tree, TablePlace, tuple[str, ...]], Any]
    limits: Callable[[int], Limits]
    state_of: Callable[[Any, Limits], int]
    seen_of: Callable[[int, Limits], int]
    is_between: Callable[[int, int, int, Limits], bool]
    heard: Callable[[Any, Answers], Any] | None = None
    read: Callable[[Any, Any, ShowRows, Shown], tuple[Any, Any]] | None = None


@dataclass(slots=True)
class Follower:
    """Follows runs of so many replicas, step by step; ways that were found once are remembered.

    Attributes
    ----------
    taken
        How many different steps took each action of the packed model.
    """

    mapping: Mapping
    replicas: int
    taken: dict[str, int] = field(default_factory=dict)
    _ways: dict[tuple[int, int], Way | None] = field(default_factory=dict)
    _out: list[int] = field(default_factory=lambda: [0] * FAN_OUT)
    _by: list[int] = field(default_factory=lambda: [0] * FAN_OUT)

    @property
    def limits(self) -> Any:
        """The packed model's limits."""
        return self.mapping.limits(self.replicas)

    @property
    def steps(self) -> int:
        """How many different steps were looked at that change the packed model's state."""
        return len(self._ways)

    def state(self, outline: Any) -> int:
        """Return the state that an outline stands for."""
        return self.mapping.state_of(outline, self.limits)

    def broken(self, outline: Any) -> tuple[str, ...]:
        """Return the invariants of the packed model that don't hold of the state that an outline stands for."""
        bad = self.mapping.model.broken(self.state(outline), self.limits)
        model = self.mapping.model
        return tuple(each.name for number, each in enumerate(model.invariants) if bad >> number & 1)

    def way(self, before: Any, after: Any) -> Way | None:
        """Return how the packed model takes a step of a run; None if it can't.

        Raises
        ------
        Undecided
            The search has reached its limit.
        """
        start, goal = self.state(before), self.state(after)
        if start == goal:
            return ()
        if (start, goal) not in self._ways:
            way = self._ways[start, goal] = self._search(start, goal)
            for action in sorted(set(way or ())):
                self.taken[action] = self.taken.get(action, 0) + 1
        return self._ways[start, goal]

    def why_not(self, before: Any, after: Any) -> str:
        """Say a step that has no way."""
        model, limits = self.mapping.model, self.limits
        said = [model.describe(self.state(outline), limits) for outline in (before, after)]
        return f"{model.name} has no way from [{said[0]}] to [{said[1]}]"

    def _search(self, start: int, goal: int) -> Way | None:
        """Search breadth first among the states between."""
        mapping, limits = self.mapping, self.limits
        found: dict[int, Way] = {start: ()}
        todo = [start]
        for state in todo:
            count = mapping.model.successors(state, limits, self._out, self._by, 0)
            for after, by in zip(self._out[:count], self._by[:count], strict=True):
                way = (*found[state], mapping.model.actions[by >> 8])
                if after != DROPPED and mapping.seen_of(after, limits) == goal:
                    return way
                if after != DROPPED and after not in found and mapping.is_between(after, start, goal, limits):
                    found[after] = way
                    todo.append(after)
            if len(found) > STATES_MAX:
                raise Undecided(f"no way found among {len(found):,} states")
        return None
