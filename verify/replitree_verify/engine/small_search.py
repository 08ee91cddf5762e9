"""Searches every world of a small model, nearest first, and tells the way to the first that breaks an invariant.

For models that need no reduction: of shared storage (`replitree_verify.sharing`), of the tables on it
(`replitree_verify.shared_tables`), of parts that move (`replitree_verify.moving`) and of merges there
(`replitree_verify.merging`, `replitree_verify.prepared`); of replicas that join again (`replitree_verify.rejoining`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Generic, Protocol, TypeVar

from replitree_verify.patches.patch import Patch
from replitree_verify.world.kernel import ProcedureFailed

STATES_MAX = 3_000_000


@dataclass(frozen=True, slots=True)
class Searched:
    """What a search found: worlds and steps, the violation if there is one, and the shortest way to it."""

    states: int
    transitions: int
    violation: str = ""
    trace: tuple[str, ...] = ()


class World(Protocol):
    """A state; worlds with one key are the same."""

    @property
    def key(self) -> Any:
        """What tells it apart."""


W = TypeVar("W", bound=World)


class Named(Protocol):
    """What has a name."""

    @property
    def name(self) -> str:
        """For people."""


class Scene(Protocol[W]):
    """What may happen in a model."""

    @property
    def model(self) -> Named:
        """The model."""

    def first(self) -> W:
        """Return the world at the beginning."""

    def steps(self, world: W) -> Iterable[tuple[str, W]]:
        """Give what may happen next: in words, and the world after it."""

    def is_at_rest(self, world: W) -> bool:
        """Whether nothing is left to do."""


@dataclass(frozen=True, slots=True)
class Rules(Generic[W]):
    """What must hold: each rule gives what does not, beginning with the name of the invariant.

    Attributes
    ----------
    always
        In every world.
    at_rest
        Where nothing is left to do.
    before_rest
        Where something is.
    """

    always: Callable[[W], Iterable[str]]
    at_rest: Callable[[W], Iterable[str]]
    before_rest: Callable[[W], Iterable[str]] = lambda _: ()


def search_all(scene: Scene[W], rules: Rules[W], mutant: Patch | None = None, states_max: int = STATES_MAX) -> Searched:
    """Search a model, with a mutant's patches if one is given.

    Parameters
    ----------
    scene, rules
        What may happen in the model, and what must hold.
    mutant
        A broken rule; None: the protocol as it is.
    states_max
        How many worlds there may be.

    Raises
    ------
    RuntimeError
        There are more than `states_max` worlds.
    """
    with nullcontext() if mutant is None else mutant.mutated():
        return _search(scene, rules, states_max)


def _search(scene: Scene[W], rules: Rules[W], states_max: int) -> Searched:
    first = scene.first()
    came_from: dict[Any, tuple[Any, str]] = {first.key: (None, "")}
    level, transitions = [first], 0
    while level:
        following: list[W] = []
        for world in level:
            problem, found = _look(scene, rules, world)
            transitions += len(found)
            for text, after in found:
                if after.key not in came_from:
                    came_from[after.key] = (world.key, text)
                    following.append(after)
            if problem:
                return Searched(len(came_from), transitions, problem, _way_to(world.key, came_from))
        if len(came_from) > states_max:
            raise RuntimeError(f"{scene.model.name} has more than {states_max} states")
        level = following
    return Searched(len(came_from), transitions)


def _look(scene: Scene[W], rules: Rules[W], world: W) -> tuple[str, list[tuple[str, W]]]:
    """Return what does not hold in a world, and what may happen next."""
    problem = next(iter(rules.always(world)), "")
    if problem:
        return problem, []  # a broken world ends the search: its steps are not worked out
    try:
        found = list(scene.steps(world))
    except ProcedureFailed as error:
        return f"FAILED: {error}", []
    rest = rules.at_rest if scene.is_at_rest(world) else rules.before_rest
    return next(iter(rest(world)), ""), found


def _way_to(key: Any, came_from: Mapping[Any, tuple[Any, str]]) -> tuple[str, ...]:
    steps: list[str] = []
    while (before := came_from[key])[0] is not None:
        key, text = before
        steps.append(text)
    return tuple(reversed(steps))


@contextmanager
def patched(patches: Mapping[tuple[ModuleType, str], Any]) -> Iterator[None]:
    """Let other functions stand in for those of modules, by module and name."""
    originals = {place: getattr(*place) for place in patches}
    try:
        for (module, name), broken in patches.items():
            setattr(module, name, broken)
        yield
    finally:
        for (module, name), original in originals.items():
            setattr(module, name, original)
