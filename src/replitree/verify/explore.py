"""The explorer: every state of a model, nearest first.

Breadth-first, so the first violation has a shortest way to it.  A state that was visited is remembered by its fingerprint,
the hash of its tuple of integers (64 bits, the same in every run), together with the fingerprint of the state that it was
found from; a trace is found again by walking forward along the fingerprints.  That two states of a model with n states
share a fingerprint, so that one is overlooked, has a probability of about n²/2⁶⁵: 3·10⁻⁸ for a million states.

With *ample sets* (`ample`) a search is repeated until it has met no way of a thread that it had not reckoned with; the last
one counts.

Only the states of the present depth and of the next one are kept in memory.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from replitree.verify.ample import Ample
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
    seconds, cpu_seconds
        How long it took, by the clock and of one core.
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
    cpu_seconds: float = 0.0
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
    ample: bool | None = None,
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
        Whether steps are joined (`reduction`); without that every single step is a move.
    ample
        Whether steps that nothing else can meet are taken at once (`ample`); by default as the model says.
    states_max
        Where to stop.

    Raises
    ------
    RuntimeError
        There are more than `states_max` states.
    """
    begun, begun_cpu = time.perf_counter(), time.process_time()
    space = Space(model, replaced, reduce=reduce)
    choice = Ample(space) if (reduce and model.ample if ample is None else ample) else None
    result = Explored(space)
    _Search(result, choice, states_max).run()
    while choice is not None and result.violation is None and choice.reckon():
        result = Explored(space)
        _Search(result, choice, states_max).run()
    result.seconds, result.cpu_seconds = time.perf_counter() - begun, time.process_time() - begun_cpu
    return result


class _Search:
    """One search through the states of a space.

    Parameters
    ----------
    result
        What it finds.
    choice
        Which steps are taken at once; None: every state is visited.
    states_max
        Where it stops.
    """

    def __init__(self, result: Explored, choice: Ample | None, states_max: int) -> None:
        self._space = result.space
        self._result = result
        self._choice = choice
        self._states_max = states_max
        self._checker = Checker(result.space)
        self._visited: dict[int, int] = {}
        self._passed: set[int] = set()

    def run(self) -> None:
        """Go through all of them, or until the first violation."""
        result = self._result
        first = self._after(first_world(self._space))
        self._visited[hash(first)] = 0
        level = [first]
        while level:
            next_level: list[World] = []
            for world in level:
                self._expand(world, next_level)
                if result.violation is not None:
                    break
            result.states = len(self._visited)
            if result.violation is not None:
                return
            if len(self._visited) > self._states_max:
                raise RuntimeError(f"more than {self._states_max} states")
            result.depth += bool(next_level)
            level = next_level

    def _settled(self, world: World) -> tuple[World, list[Found]]:
        """Return the state after the steps that are taken at once, and these."""
        return (world, []) if self._choice is None else self._choice.settle(world)

    def _expand(self, world: World, next_level: list[World]) -> None:
        """Visit the successors of a state; the first that is bad ends it."""
        result, visited, checker = self._result, self._visited, self._checker
        fingerprint = hash(world)
        found, quiet = self._space.successors(world)
        result.transitions += len(found)
        if quiet:
            result.quiet.append(world)
            wrong = checker.broken_quiet(world)
            if wrong is not None:
                result.violation, result.trace = wrong, self._way_to(fingerprint)
                return
        for each in found:
            after, move, _ = each
            if move.probes:
                result.probes.update(move.probes)
            mark = hash(after)
            if mark in visited and move.breach is None:
                continue
            if self._choice is not None:
                if mark in self._passed and move.breach is None:
                    continue
                self._passed.add(mark)
                after = self._after(after)
                mark = hash(after)
                if mark in visited and move.breach is None:
                    continue
            wrong = move.breach or checker.broken(after)
            if wrong is not None:
                _, joined = self._settled(each[0])
                result.violation, result.trace = wrong, (*self._way_to(fingerprint), each, *joined)
                return
            visited[mark] = fingerprint
            next_level.append(after)

    def _after(self, world: World) -> World:
        """Return the state after the steps that are taken at once."""
        after, joined = self._settled(world)
        for _, move, _ in joined:
            self._result.probes.update(move.probes)
        return after

    def _way_to(self, fingerprint: int) -> tuple[Found, ...]:
        return way_to(self._space, self._visited, fingerprint, self._choice)


def way_to(
    space: Space, visited: Mapping[int, int], fingerprint: int, choice: Ample | None = None
) -> tuple[Found, ...]:
    """Return a shortest way from the first state to the one with this fingerprint."""
    marks = []
    while fingerprint:
        marks.append(fingerprint)
        fingerprint = visited[fingerprint]
    world, way = first_world(space), list[Found]()
    if choice is not None:
        world, way = choice.settle(world)
    assert marks.pop() == hash(world)
    while marks:
        mark = marks.pop()
        steps = (_whole_step(each, choice) for each in space.successors(world)[0])
        step = next(step for step in steps if hash(step[-1][0]) == mark)
        way += step
        world = step[-1][0]
    return tuple(way)


def _whole_step(found: Found, choice: Ample | None) -> list[Found]:
    """Return a move with the steps that are taken at once after it."""
    return [found] if choice is None else [found, *choice.settle(found[0])[1]]
