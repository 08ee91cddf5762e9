"""Every world that a model can reach, nearest first; the way to the first that breaks an invariant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from replitree.verify.kernel import ProcedureFailed
from replitree.verify.shared_tables.invariants import in_the_end, violations
from replitree.verify.shared_tables.scene import Scene
from replitree.verify.shared_tables.world import Model, World


@dataclass(frozen=True, slots=True)
class Mutant:
    """A broken rule: what stands in for functions, by module and name; which model catches it, which invariant notices."""

    name: str
    description: str
    model: str
    breaks: str
    patches: Mapping[tuple[ModuleType, str], Any]


@dataclass(frozen=True, slots=True)
class Searched:
    """What a search found: worlds and steps, the violation if there is one, and the shortest way to it."""

    states: int
    transitions: int
    violation: str = ""
    trace: tuple[str, ...] = ()


def search(model: Model, mutant: Mutant | None = None, states_max: int = 3_000_000) -> Searched:
    """Search a model, with a mutant's patches if one is given.

    Raises
    ------
    RuntimeError
        There are more than `states_max` worlds.
    """
    with _patched({} if mutant is None else mutant.patches):
        return _search(Scene(model), states_max)


def _search(scene: Scene, states_max: int) -> Searched:
    first = scene.first()
    came_from: dict[Any, tuple[Any, str]] = {first.key: (None, "")}
    level, transitions = [first], 0
    while level:
        following: list[World] = []
        for world in level:
            problem, found = _look(scene, world)
            for text, after in found:
                transitions += 1
                if after.key not in came_from:
                    came_from[after.key] = (world.key, text)
                    following.append(after)
            if problem:
                return Searched(len(came_from), transitions, problem, _way_to(world.key, came_from))
        if len(came_from) > states_max:
            raise RuntimeError(f"{scene.model.name} has more than {states_max} states")
        level = following
    return Searched(len(came_from), transitions)


def _look(scene: Scene, world: World) -> tuple[str, list[tuple[str, World]]]:
    """Return what does not hold in a world, and what may happen next."""
    problem = next(violations(world, scene.names), "")
    if problem:
        return problem, []
    try:
        found = list(scene.steps(world))
    except ProcedureFailed as error:
        return f"FAILED: {error}", []
    if scene.is_at_rest(world):
        problem = next(in_the_end(world, scene.names), "")
    return problem, found


def _way_to(key: Any, came_from: Mapping[Any, tuple[Any, str]]) -> tuple[str, ...]:
    steps: list[str] = []
    while (before := came_from[key])[0] is not None:
        key, text = before
        steps.append(text)
    return tuple(reversed(steps))


@contextmanager
def _patched(patches: Mapping[tuple[ModuleType, str], Any]) -> Iterator[None]:
    originals = {place: getattr(*place) for place in patches}
    try:
        for (module, name), broken in patches.items():
            setattr(module, name, broken)
        yield
    finally:
        for (module, name), original in originals.items():
            setattr(module, name, original)


__all__ = ["Mutant", "Searched", "search"]
