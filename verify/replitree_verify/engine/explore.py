"""The explorer: every state of a model, nearest first.

Breadth-first, so the first violation has a shortest way to it.  A state that was visited is remembered by its fingerprint
(`fingerprints`: 64 bits, the same in every run), together with that of the state that it was found from; a trace is found
again by walking forward along the fingerprints.

With *ample sets* (`ample`) a search is repeated until it has met no way of a thread that it had not reckoned with; the last
one counts: what an earlier one has found wrong is wrong, and maybe not what is nearest.  It asks for that whenever it has found
twice as many states, so that it does not go on in vain.

Only the states of the present depth and of the next one are kept in memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from replitree.tablet.runtime.collector import without_collector
from replitree_verify.engine.ample import Ample
from replitree_verify.engine.checker import Checker
from replitree_verify.engine.initial import first_world
from replitree_verify.engine.moves import Expansion, Found, World
from replitree_verify.engine.space import Space
from replitree_verify.engine.symmetry import NotSymmetric, Symmetry
from replitree_verify.world.kernel import Stage
from replitree_verify.world.model import Model

Known: TypeAlias = tuple[World, int]
"""A state and its fingerprint."""

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
    permutations, asymmetry
        Under how many permutations of names states are one; why not, where a symmetry was looked for and does not hold.
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
    permutations: int = 1
    asymmetry: str = ""

    @property
    def missing_probes(self) -> tuple[str, ...]:
        """The rare branches that the model should have taken and did not."""
        return tuple(probe for probe in self.space.model.probes if probe not in self.probes)


def explore(
    model: Model,
    replaced: Mapping[str, Stage] | None = None,
    *,
    reduce: bool = True,
    ample: bool | None = None,
    symmetric: bool = False,
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
    symmetric
        Whether states that differ by names only are one (`symmetry`), where that can be proved.
    states_max
        Where to stop.

    Raises
    ------
    RuntimeError
        There are more than `states_max` states.
    """
    begun, begun_cpu = time.perf_counter(), time.process_time()
    is_ample = reduce and model.ample if ample is None else ample
    if model.stored:  # what the reductions know of effects and of names says nothing of shares
        is_ample = symmetric = False
    # Interned values live as long as the space: the collector would walk through millions of them and free none.
    with without_collector():
        try:
            result = _explored(
                Space(model, replaced, reduce=reduce), states_max, is_ample=is_ample, symmetric=symmetric
            )
        except NotSymmetric as difference:
            result = _explored(Space(model, replaced, reduce=reduce), states_max, is_ample=is_ample, symmetric=False)
            result.asymmetry = str(difference)
    result.seconds, result.cpu_seconds = time.perf_counter() - begun, time.process_time() - begun_cpu
    return result


def _explored(space: Space, states_max: int, *, is_ample: bool, symmetric: bool) -> Explored:
    """Search a space, with ample steps until all ways were reckoned with."""
    choice = Ample(space) if is_ample else None
    if symmetric:  # before the first state is worked out: its moves are to be proved too
        space.met = []
    found = Symmetry(space) if symmetric else None
    names = found if found is not None and found.permutations else None
    if names is None:
        space.met = None
    checker = Checker(space)
    while True:
        result = Explored(space, permutations=1 if names is None else len(names.permutations) + 1)
        if _Search(result, checker, choice, names, states_max).run():
            return result


class _Search:
    """One search through the states of a space.

    Parameters
    ----------
    result
        What it finds.
    checker
        What must hold.
    choice
        Which steps are taken at once; None: every state is visited.
    names
        Which states are one but for their names; None: none.
    states_max
        Where it stops.
    """

    def __init__(
        self, result: Explored, checker: Checker, choice: Ample | None, names: Symmetry | None, states_max: int
    ) -> None:
        self._space = result.space
        self._result = result
        self._choice = choice
        self._states_max = states_max
        self._checker = checker
        self._names = names
        self._is_plain = choice is None and names is None
        self._fingerprint = result.space.fingerprints.of if names is None else names.fingerprint
        self._visited: dict[int, int] = {}
        self._passed: set[int] = set()
        self._begins_well = True

    def run(self) -> bool:
        """Go through all of them, or until the first violation; return whether no way was met that was not reckoned with."""
        result = self._result
        first = self._after(first_world(self._space))
        # No state comes before the first one: 0 ends a way that is walked back (`way_to`).
        self._visited[self._fingerprint(first)] = 0
        level = [(first, self._fingerprint(first))]
        self._begins_well = self._checker.broken(first) is None
        while level:
            next_level: list[Known] = []
            for each in level:
                self._expand(each, next_level)
                if result.violation is not None:
                    break
            result.states = len(self._visited)
            # Before this level's states are believed: a violation counts only if names do not matter.
            if self._names is not None:
                self._names.prove()
            is_over = not next_level or result.violation is not None
            if self._choice is not None and self._choice.is_outdated(len(self._visited), is_over=is_over):
                return False
            if result.violation is not None:
                return True
            if len(self._visited) > self._states_max:
                raise RuntimeError(f"more than {self._states_max} states")
            result.depth += bool(next_level)
            level = next_level
        return True

    def _expand(self, marked: Known, next_level: list[Known]) -> None:
        """Visit the successors of a state; the first that is bad ends it."""
        result, (world, fingerprint) = self._result, marked
        # With ample steps a state that was met is not yet visited: the state after its ample steps is.
        known: Container[int] = self._visited if self._is_plain else self._passed if self._names is None else ()
        step = Expansion(world, fingerprint, known, result.probes)
        quiet = self._space.expand(step)
        result.transitions += step.count
        if quiet:
            result.quiet.append(world)
            result.violation = self._checker.broken_quiet(world)
            if result.violation is not None:
                result.trace = self._way_to(fingerprint)
                return
        if not self._is_plain:
            self._visit_after(step, next_level)
            return
        visited, checker, begins_well = self._visited, self._checker, self._begins_well
        for each, reached in zip(step.found, step.fingerprints, strict=True):
            after, move, _ = each
            # Two moves from one state may lead to the same: neither was known when they were found.
            if reached in visited and move.breach is None:
                continue
            # A move that changes nothing that an invariant reads needs no check, unless the first state is bad already.
            wrong = move.breach or checker.broken(after, move if begins_well else None)
            if wrong is not None:
                self._stop(wrong, fingerprint, [each])
                return
            visited[reached] = fingerprint
            next_level.append((after, reached))

    def _visit_after(self, step: Expansion, next_level: list[Known]) -> None:
        """Visit what is new, each after the steps that are taken at once, and one of those that differ by names only."""
        for each, found in zip(step.found, step.fingerprints, strict=True):
            after, move, _ = each
            fingerprint = found if self._names is None else self._fingerprint(after)
            if fingerprint in self._passed and move.breach is None:
                continue
            self._passed.add(fingerprint)
            way = whole_step(each, self._choice)
            wrong, bad = self._first_wrong(way, begins_well=self._begins_well)
            if wrong is not None:
                self._stop(wrong, step.fingerprint, bad)
                return
            after = way[-1][0]
            fingerprint = self._fingerprint(after)
            if fingerprint in self._visited:
                continue
            self._passed.add(fingerprint)
            self._visited[fingerprint] = step.fingerprint
            next_level.append((after, fingerprint))

    def _first_wrong(self, way: list[Found], *, begins_well: bool = False) -> tuple[str | None, list[Found]]:
        """Return what is wrong first on a way, and the way up to there; `begins_well`: nothing is wrong before it."""
        for number, (world, move, _) in enumerate(way, 1):
            if move.probes:
                self._result.probes.update(move.probes)
            wrong = move.breach or self._checker.broken(world, move if begins_well or number > 1 else None)
            if wrong is not None:
                return wrong, way[:number]
        return None, way

    def _stop(self, wrong: str, before: int, last: list[Found]) -> None:
        """End with a violation on the last way, which begins at a state that was visited."""
        if self._names is not None:
            self._names.prove()  # raises where names matter: then the search begins again without them
        way = self._way_to(before)
        if self._names is not None:  # the way ends in a state with other names: which is the last one there?
            fingerprint, world = (
                self._fingerprint(last[0][0]),
                way[-1][0] if way else self._after(first_world(self._space)),
            )
            steps = (each for each in self._space.successors(world)[0] if self._fingerprint(each[0]) == fingerprint)
            found = (self._first_wrong(whole_step(each, self._choice)) for each in steps)
            wrong, last = next((text, bad) for text, bad in found if text is not None)
        self._result.violation, self._result.trace = wrong, (*way, *last)

    def _after(self, world: World) -> World:
        """Return the state after the steps that are taken at once."""
        return world if self._choice is None else self._choice.settle(world)[0]

    def _way_to(self, fingerprint: int) -> tuple[Found, ...]:
        return way_to(self._space, self._visited, fingerprint, self._choice, self._fingerprint)


def way_to(
    space: Space,
    visited: Mapping[int, int],
    fingerprint: int,
    choice: Ample | None = None,
    fingerprint_of: Callable[[World], int] | None = None,
) -> tuple[Found, ...]:
    """Return a shortest way from the first state to the one with this fingerprint."""
    fingerprints, fingerprint_of = [], fingerprint_of or space.fingerprints.of
    while fingerprint:
        fingerprints.append(fingerprint)
        fingerprint = visited[fingerprint]
    world, way = first_world(space), list[Found]()
    if choice is not None:
        world, way = choice.settle(world)
    # States were not kept: the way is walked again, from fingerprint to fingerprint.
    assert fingerprints.pop() == fingerprint_of(world)
    while fingerprints:
        fingerprint = fingerprints.pop()
        steps = (whole_step(each, choice) for each in space.successors(world)[0])
        step = next(step for step in steps if fingerprint_of(step[-1][0]) == fingerprint)
        way += step
        world = step[-1][0]
    return tuple(way)


def whole_step(found: Found, choice: Ample | None) -> list[Found]:
    """Return a move with the steps that are taken at once after it."""
    return [found] if choice is None else [found, *choice.settle(found[0])[1]]
