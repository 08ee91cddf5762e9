"""The explorer: every state of a model, nearest first.

Breadth-first, so the first violation has a shortest way to it.  A state that was visited is remembered by its fingerprint, the
hash of its tuple of integers (64 bits, the same in every run), together with the fingerprint of the state that it was
found from; a trace is found again by walking forward along the fingerprints.  That two states of a model with n states share a
fingerprint, so that one is overlooked, has a probability of about n²/2⁶⁵: 3·10⁻⁸ for a million states.

Only the states of the present depth and of the next one are kept in memory.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from replitree.verify.history import Log
from replitree.verify.initial import first_world
from replitree.verify.invariants import READS, Invariant, Look, quiet_states_agree
from replitree.verify.kernel import Stage
from replitree.verify.model import Model
from replitree.verify.space import TREE, Found, Space, World

STATES_MAX = 50_000_000
"""Where an exploration gives up; about 8 GB."""


@dataclass(slots=True)
class Explored:
    """What an exploration found.

    Attributes
    ----------
    space
        What was explored: it knows what the numbers in a state stand for.
    states, transitions, depth
        Distinct states, moves between them, the longest of the shortest ways.
    quiet
        The states in which nothing is left to do.
    seconds
        How long it took.
    violation, trace
        What is wrong in the nearest bad state, and the way to it; None and empty when nothing is.
    probes
        The rare branches that were seen.
    """

    space: Space
    states: int = 0
    transitions: int = 0
    depth: int = 0
    quiet: list[World] = field(default_factory=list)
    seconds: float = 0.0
    violation: str | None = None
    trace: tuple[Found, ...] = ()
    probes: set[str] = field(default_factory=set)

    @property
    def missing_probes(self) -> tuple[str, ...]:
        """The rare branches that the model should have taken and did not."""
        return tuple(probe for probe in self.space.model.probes if probe not in self.probes)


class Checker:
    """The invariants over the states of a space, each worked out once for each value of what it looks at."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._logs: dict[int, Log] = {}
        self._groups = [self._group(names) for names in dict.fromkeys(READS.values())]

    def _group(self, names: tuple[str, ...]) -> tuple[itemgetter[Any], dict[Any, str | None], list[Invariant]]:
        space = self._space
        positions = [TREE]
        if "answers" in names:
            positions += sorted(space.answer_at.values())
        if "disks" in names:
            positions += space.disk_at
        if "memories" in names:
            positions += space.memory_at
        return itemgetter(*positions), {}, [invariant for invariant, reads in READS.items() if reads == names]

    def broken(self, world: World) -> str | None:
        """Return what is wrong in a state, or None."""
        for parts, verdicts, invariants in self._groups:
            key = parts(world)
            try:
                verdict = verdicts[key]
            except KeyError:
                look = self.look(world)
                found = [wrong for invariant in invariants if (wrong := invariant(look)) is not None]
                verdict = verdicts[key] = found[0] if found else None
            if verdict is not None:
                return verdict
        return None

    def broken_quiet(self, world: World) -> str | None:
        """Return what is wrong in a state in which nothing is left to do, or None."""
        return quiet_states_agree(self.look(world))

    def look(self, world: World) -> Look:
        """Return the values of a state."""
        space = self._space
        model = space.model
        log = self._logs.get(world[TREE])
        if log is None:
            log = self._logs[world[TREE]] = Log(space.trees[world[TREE]], killed=model.killed)
        seats = [name for name, _ in model.seats]
        return Look(
            model,
            log,
            {request: space.replies[world[position]] for request, position in space.answer_at.items()},
            {name: space.disks[world[position]] for name, position in zip(model.replicas, space.disk_at, strict=True)},
            {name: space.memories[world[position]] for name, position in zip(seats, space.memory_at, strict=True)},
        )


def explore(
    model: Model,
    replaced: Mapping[str, Stage] | None = None,
    *,
    reduce: bool = True,
    states_max: int = STATES_MAX,
) -> Explored:
    """Visit every state of a model, or go until the first violation.

    Parameters
    ----------
    model
        What to explore.
    replaced
        Stages to run instead of others, by name: a mutant.
    reduce
        Whether steps are joined (`reduction`).
    states_max
        Where to stop.

    Raises
    ------
    RuntimeError
        There are more than `states_max` states.
    """
    begun = time.perf_counter()
    space = Space(model, replaced, reduce=reduce)
    result = Explored(space)
    _visit(space, result, states_max)
    result.seconds = time.perf_counter() - begun
    return result


def _visit(space: Space, result: Explored, states_max: int) -> None:
    first = first_world(space)
    checker = Checker(space)
    visited: dict[int, int] = {hash(first): 0}
    level = [first]
    while level:
        next_level: list[World] = []
        for world in level:
            _expand(space, checker, world, visited, next_level, result)
            if result.violation is not None:
                break
        result.states = len(visited)
        if result.violation is not None:
            return
        if len(visited) > states_max:
            raise RuntimeError(f"more than {states_max} states")
        result.depth += bool(next_level)
        level = next_level


def _expand(
    space: Space, checker: Checker, world: World, visited: dict[int, int], next_level: list[World], result: Explored
) -> None:
    """Visit the successors of a state; the first that is bad ends it."""
    fingerprint = hash(world)
    found, quiet = space.successors(world)
    result.transitions += len(found)
    if quiet:
        result.quiet.append(world)
        wrong = checker.broken_quiet(world)
        if wrong is not None:
            result.violation, result.trace = wrong, way_to(space, visited, fingerprint)
            return
    for each in found:
        after, move, _ = each
        if move.probes:
            result.probes.update(move.probes)
        mark = hash(after)
        if mark in visited and move.breach is None:
            continue
        wrong = move.breach or checker.broken(after)
        if wrong is not None:
            result.violation, result.trace = wrong, (*way_to(space, visited, fingerprint), each)
            return
        visited[mark] = fingerprint
        next_level.append(after)


def way_to(space: Space, visited: Mapping[int, int], fingerprint: int) -> tuple[Found, ...]:
    """Return a shortest way from the first state to the one with this fingerprint."""
    marks = []
    while fingerprint:
        marks.append(fingerprint)
        fingerprint = visited[fingerprint]
    world = first_world(space)
    way: list[Found] = []
    assert marks.pop() == hash(world)
    while marks:
        mark = marks.pop()
        step = next(each for each in space.successors(world)[0] if hash(each[0]) == mark)
        way.append(step)
        world = step[0]
    return tuple(way)
