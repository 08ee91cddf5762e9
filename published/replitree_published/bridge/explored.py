"""Follow every run of a model's exploration, and no matter which invariants hold.

Looked at is each change of coordination in each state; where a mapping asks for it, also what clients are told, and reads.
"""

from __future__ import annotations

from collections.abc import Mapping as Named
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from replitree_published.bridge.mapping import Follower, Mapping, NoState
from replitree_verify.engine.ample import Ample
from replitree_verify.engine.explore import way_to, whole_step
from replitree_verify.engine.initial import first_world
from replitree_verify.engine.moves import TREE, Expansion, Found, World
from replitree_verify.engine.space import Space
from replitree_verify.process.read_requests import Shown, ShowRows, Told
from replitree_verify.world.kernel import Stage
from replitree_verify.world.model import TABLE, Model

Seen: TypeAlias = tuple[int, tuple[int, ...]]
"""What a mapping looks at in a state, by numbers: the tree, and what clients were told."""


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
    _outlines: dict[Seen, Any] = field(default_factory=dict)
    _known: set[tuple[Seen, Seen]] = field(default_factory=set)

    def seen(self, world: World) -> Seen:
        """Return what the mapping looks at in a state: the number of the tree, and those of the answers if they count."""
        is_heard = self.follower.mapping.heard is not None
        return world[TREE], tuple(world[at] for at in self.space.answer_at.values()) if is_heard else ()

    def outline(self, seen: Seen) -> Any:
        """Return the outline of what is looked at."""
        if seen not in self._outlines:
            mapping, space = self.follower.mapping, self.space
            found = mapping.outline_of(space.trees[seen[0]], TABLE, space.model.replicas)
            if mapping.heard is not None:
                found = mapping.heard(found, self._told(seen[1]))
            self._outlines[seen] = found
        return self._outlines[seen]

    def _told(self, answers: tuple[int, ...]) -> dict[int, Told | None]:
        eventual = {read.number for read in self.space.model.reads if read.level == "eventual"}
        told = zip(self.space.answer_at, answers, strict=True)
        return {request: self.space.replies[number] for request, number in told if request not in eventual}

    def judge(self, world: World, found: Found) -> str | None:
        """Return what is wrong with a step from a state, or None."""
        before, after = self.seen(world), self.seen(found[0])
        if before == after:
            return None
        shown = self._read(found)
        if shown is None and (before, after) in self._known:
            return None
        self._known.add((before, after))
        try:
            outlines = self.outline(before), self.outline(after)
            if shown is not None and self.follower.mapping.read is not None:
                outlines = self.follower.mapping.read(*outlines, *shown)
            return wrong_step(self.follower, *outlines)
        except NoState as why:
            return f"BRIDGE: {why}"

    def _read(self, found: Found) -> tuple[ShowRows, Shown] | None:
        """Return the strict read that ends with a step, and what it shows."""
        if self.follower.mapping.read is None:
            return None
        for turn in found[1].turns:
            if isinstance(turn.effect, ShowRows) and turn.effect.level != "eventual":
                told = self.space.replies[found[0][self.space.answer_at[turn.effect.number]]]
                return (turn.effect, told) if isinstance(told, Shown) else None
        return None


def wrong_step(follower: Follower, before: Any, after: Any) -> str | None:
    """Return what is wrong with a step, or None: it has no way, or leads to where the packed model's invariants don't hold."""
    if follower.way(before, after) is None:
        return f"BRIDGE: {follower.why_not(before, after)}"
    broken = follower.broken(after)
    return f"BRIDGE: {', '.join(broken)} of {follower.mapping.model.name} does not hold" if broken else None


def follow_model(model: Model, mapping: Mapping, stages: Named[str, Stage] | None = None) -> Followed:
    """Explore a model up to the first change of coordination that the mapping has no way for.

    Where steps are taken at once that nothing else can meet (`Model.ample`), coordination changes as without: such a step
    does not change it, and those that do keep their order.  A client is told earlier, which asks for more.

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
    choice, follower = Ample(space) if model.ample else None, Follower(mapping, len(model.replicas))
    while True:
        result = Followed(space, follower)
        if _Walk(result, choice).is_whole():
            return result


class _Walk:
    """One walk through all states of a model.

    Parameters
    ----------
    result
        What it finds.
    choice
        Which steps are taken at once; None: every state is visited.
    """

    def __init__(self, result: Followed, choice: Ample | None) -> None:
        self._result = result
        self._space = result.space
        self._choice = choice
        self._fingerprint = result.space.fingerprints.of
        self._visited: dict[int, int] = {}
        self._passed: set[int] = set()

    def is_whole(self) -> bool:
        """Go through all of them, or until the first step that is wrong; return whether that counts (`Ample.is_outdated`)."""
        result, first = self._result, first_world(self._space)
        broken = result.follower.broken(result.outline(result.seen(first)))
        assert not broken, f"{self._space.model.name} begins where {broken} does not hold"
        begun, taken = (first, []) if self._choice is None else self._choice.settle(first)
        result.wrong, result.trace = self._first_wrong(first, taken)
        self._visited[self._fingerprint(begun)] = 0
        level = [begun]
        while level and result.wrong is None:
            level = self._next_level(level)
            if self._is_outdated(is_over=not level):
                return False
        result.states = len(self._visited)
        return True

    def _is_outdated(self, *, is_over: bool) -> bool:
        return self._choice is not None and self._choice.is_outdated(len(self._visited), is_over=is_over)

    def _next_level(self, level: list[World]) -> list[World]:
        """Return the states after these that are new; none when a step is wrong."""
        result, found = self._result, list[World]()
        for world in level:
            step = Expansion(world, self._fingerprint(world), (), set())
            self._space.expand(step)
            for each, passed in zip(step.found, step.fingerprints, strict=True):
                way = [each] if passed in self._passed else whole_step(each, self._choice)
                result.wrong, bad = self._first_wrong(world, way)
                if result.wrong is not None:
                    result.trace = (*way_to(self._space, self._visited, step.fingerprint, self._choice), *bad)
                    return []
                if passed not in self._passed and each[1].breach is None:
                    self._passed.add(passed)
                    self._visit(way[-1][0], step.fingerprint, found)
        return found

    def _visit(self, world: World, before: int, found: list[World]) -> None:
        fingerprint = self._fingerprint(world)
        if fingerprint not in self._visited:
            self._visited[fingerprint] = before
            found.append(world)

    def _first_wrong(self, world: World, way: list[Found]) -> tuple[str | None, tuple[Found, ...]]:
        """Return what is wrong first on a way from a state, and the way up to there."""
        for number, each in enumerate(way, 1):
            wrong = self._result.judge(world, each)
            if wrong is not None:
                return wrong, tuple(way[:number])
            world = each[0]
        return None, ()
