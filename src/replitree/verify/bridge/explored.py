"""Follow every run of a model's exploration: each change of coordination in each state, and no matter which invariants hold."""

from __future__ import annotations

from collections.abc import Mapping as Named
from dataclasses import dataclass, field
from typing import Any

from replitree.verify.bridge.mapping import Follower, Mapping, NoState
from replitree.verify.explore import way_to
from replitree.verify.initial import first_world
from replitree.verify.kernel import Stage
from replitree.verify.model import TABLE, Model
from replitree.verify.space import TREE, Found, Space, World


@dataclass(slots=True)
class Followed:
    """What became of following a model's exploration.

    Attributes
    ----------
    states
        States of the model.
    wrong, trace
        What has no way, and the shortest way to it; None and empty when everything has one.
    """

    space: Space
    follower: Follower
    states: int = 0
    wrong: str | None = None
    trace: tuple[Found, ...] = ()
    _outlines: dict[int, Any] = field(default_factory=dict)
    _known: set[tuple[int, int]] = field(default_factory=set)

    def outline(self, tree: int) -> Any:
        """Return the outline of a tree, by its number."""
        if tree not in self._outlines:
            self._outlines[tree] = self.follower.mapping.outline_of(
                self.space.trees[tree], TABLE, self.space.model.replicas
            )
        return self._outlines[tree]

    def judge(self, before: int, after: int) -> str | None:
        """Return what is wrong with a change from one tree to another, or None."""
        if before == after or (before, after) in self._known:
            return None
        try:
            wrong = wrong_step(self.follower, self.outline(before), self.outline(after))
        except NoState as why:
            wrong = f"BRIDGE: {why}"
        self._known.add((before, after))
        return wrong


def wrong_step(follower: Follower, before: Any, after: Any) -> str | None:
    """Return what is wrong with a step, or None: it has no way, or leads to where the packed model's invariants don't hold."""
    if follower.way(before, after) is None:
        return f"BRIDGE: {follower.why_not(before, after)}"
    broken = follower.broken(after)
    return f"BRIDGE: {', '.join(broken)} of {follower.mapping.model.name} does not hold" if broken else None


def follow_model(model: Model, mapping: Mapping, stages: Named[str, Stage] | None = None) -> Followed:
    """Explore a model up to the first change of coordination that the mapping has no way for.

    Parameters
    ----------
    stages
        Stages to run instead of others, by name: a mutant.

    Raises
    ------
    Undecided
        A search for a way has reached its limit.
    """
    space = Space(model, stages)
    result = Followed(space, Follower(mapping, len(model.replicas)))
    first = first_world(space)
    broken = result.follower.broken(result.outline(first[TREE]))
    assert not broken, f"{model.name} begins where {broken} does not hold"
    visited, level = {hash(first): 0}, [first]
    while level and result.wrong is None:
        level = _next_level(result, level, visited)
    result.states = len(visited)
    return result


def _next_level(result: Followed, level: list[World], visited: dict[int, int]) -> list[World]:
    found: list[World] = []
    for world in level:
        mark = hash(world)
        for each in result.space.successors(world)[0]:
            after, move, _ = each
            result.wrong = result.judge(world[TREE], after[TREE])
            if result.wrong is not None:
                result.trace = (*way_to(result.space, visited, mark), each)
                return []
            if hash(after) not in visited and move.breach is None:
                visited[hash(after)] = mark
                found.append(after)
    return found
