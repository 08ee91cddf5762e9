"""Every state of a model of a tablet, nearest first; the first violation has a shortest way to it.

A state is remembered by its fingerprint, the hash of its integers (64 bits, the same in every run), with that of the state
before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from replitree.tablet.core import commit
from replitree_verify.tablets.invariants.catalog import Checker
from replitree_verify.tablets.model import Model
from replitree_verify.tablets.space import Space
from replitree_verify.tablets.state import Found, World

STATES_MAX = 20_000_000
"""Where an exploration gives up."""


@dataclass(slots=True)
class Explored:
    """What an exploration found.

    Attributes
    ----------
    states, transitions, depth
        Distinct states, moves between them, the longest of the shortest ways.
    violation, trace
        What is wrong in the nearest bad state, and the way to it, for people; None and empty when nothing is.
    probes
        The rare branches that were seen.
    """

    states: int = 0
    transitions: int = 0
    depth: int = 0
    violation: str | None = None
    trace: tuple[str, ...] = ()
    probes: set[str] = field(default_factory=set)


def explore(model: Model, states_max: int = STATES_MAX) -> Explored:
    """Visit every state of a model, or go until the first violation.

    Parameters
    ----------
    model
        What to explore.
    states_max
        Where to stop.

    Raises
    ------
    RuntimeError
        There are more than `states_max` states.
    """
    with limited(model.steps_max):
        return _explore(model, states_max)


@contextmanager
def limited(steps_max: int) -> Iterator[None]:
    """Let leaders have so many entries on their way while the context lasts."""
    usual = commit.STEPS_MAX
    commit.STEPS_MAX = steps_max
    try:
        yield
    finally:
        commit.STEPS_MAX = usual


def _explore(model: Model, states_max: int) -> Explored:
    space, result = Space(model), Explored()
    checker = Checker(space)
    first = space.canonical(space.first())
    visited: dict[int, int] = {hash(first): 0}
    level = [first]
    while level:
        following: list[World] = []
        for world in level:
            bad = _expand(space, checker, world, visited, following, result)
            if bad is not None:
                result.states = len(visited)
                result.trace = (*way_to(space, visited, hash(world)), bad[1].text)
                return result
        result.states = len(visited)
        if result.states > states_max:
            raise RuntimeError(f"more than {states_max} states")
        result.depth += bool(following)
        level = following
    return result


def _expand(
    space: Space, checker: Checker, world: World, visited: dict[int, int], following: list[World], result: Explored
) -> Found | None:
    """Visit the successors of a state; return the first that is bad."""
    fingerprint = hash(world)
    for found, move in space.successors(world):
        after = space.canonical(found)
        result.transitions += 1
        # With the numbers that members had before: the state that stands for it may have others.
        changed = checker.broken_between(world, found)
        if changed is not None:
            result.violation = changed
            return after, move
        result.probes.update(move.probes)
        mark = hash(after)
        is_new = mark not in visited
        # A known state was checked, but an election, a commit and a read are checked with what led to them.
        if not is_new and move.election is None and not move.committed and move.read is None:
            continue
        wrong = checker.broken(after, move)
        if wrong is not None:
            result.violation = wrong
            return after, move
        if is_new:
            visited[mark] = fingerprint
            following.append(after)
    return None


def way_to(space: Space, visited: dict[int, int], fingerprint: int) -> tuple[str, ...]:
    """Return a shortest way from the first state to the one with this fingerprint, for people."""
    marks = []
    while fingerprint:
        marks.append(fingerprint)
        fingerprint = visited[fingerprint]
    world, way = space.canonical(space.first()), list[str]()
    marks.pop()
    while marks:
        mark = marks.pop()
        found = ((space.canonical(after), move) for after, move in space.successors(world))
        world, move = next(each for each in found if hash(each[0]) == mark)
        way.append(move.text)
    return tuple(way)
