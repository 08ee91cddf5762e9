"""Follow every run of a model's exploration, and no matter which invariants hold.

Looked at is each change of coordination in each state; where a mapping asks for it, also what clients are told, and reads.
"""

from __future__ import annotations

from collections.abc import Mapping as Named
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from replitree.verify.bridge.mapping import Follower, Mapping, NoState
from replitree.verify.explore import way_to
from replitree.verify.initial import first_world
from replitree.verify.kernel import Stage
from replitree.verify.model import TABLE, Model
from replitree.verify.moves import TREE, Found, World
from replitree.verify.reading import Shown, ShowRows, Told
from replitree.verify.space import Space

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
    broken = result.follower.broken(result.outline(result.seen(first)))
    assert not broken, f"{model.name} begins where {broken} does not hold"
    visited, level = {space.fingerprints.of(first): 0}, [first]
    while level and result.wrong is None:
        level = _next_level(result, level, visited)
    result.states = len(visited)
    return result


def _next_level(result: Followed, level: list[World], visited: dict[int, int]) -> list[World]:
    found: list[World] = []
    for world in level:
        fingerprint = result.space.fingerprints.of(world)
        for each in result.space.successors(world)[0]:
            after, move, _ = each
            result.wrong = result.judge(world, each)
            if result.wrong is not None:
                result.trace = (*way_to(result.space, visited, fingerprint), each)
                return []
            after_fingerprint = result.space.fingerprints.of(after)
            if after_fingerprint not in visited and move.breach is None:
                visited[after_fingerprint] = fingerprint
                found.append(after)
    return found
