"""The breadth-first search of the models that need no reduction: it visits every state and returns a shortest way to a breach.

A model is a `Space`: its first state, and the steps from each.  States with one key are one.  The search remembers for each key
the key of the state before it and nothing else: a way is told by going it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Generic, Protocol, TypeVar

from replitree_verify.patches.patch import Patch
from replitree_verify.world.faults import Fault
from replitree_verify.world.kernel import ProcedureFailed

STATES_MAX = 3_000_000
"""Where a search gives up."""


@dataclass(frozen=True, slots=True)
class Searched:
    """What a search found.

    Attributes
    ----------
    states, transitions, depth
        Distinct states, steps between them, and the longest of the shortest ways.
    violation, trace
        What does not hold, and a shortest way to it; empty when everything holds.
    probes
        The rare branches that were seen, of a model that names some.
    """

    states: int
    transitions: int
    violation: str = ""
    trace: tuple[str, ...] = ()
    depth: int = 0
    probes: frozenset[str] = frozenset()


class Named(Protocol):
    """What has a name."""

    @property
    def name(self) -> str:
        """For people."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """What every model of a room declares.

    Attributes
    ----------
    name, description
        For people.
    faults
        How many of each kind may happen.
    probes
        The rare branches that must be seen: a model that never gets there proves nothing.
    """

    name: str
    description: str
    faults: Mapping[Fault, int] = field(default_factory=dict, kw_only=True)
    probes: tuple[str, ...] = field(default=(), kw_only=True)


class State(Protocol):
    """A state; states with one key are the same."""

    @property
    def key(self) -> Any:
        """What tells it apart."""


S = TypeVar("S", bound=State)


class Space(Protocol[S]):
    """The states of a model."""

    model: Any
    """The model, which has a name."""

    def first(self) -> S:
        """Return the state at the beginning."""

    def steps(self, state: S, /) -> Iterable[tuple[Any, S]]:
        """Give what may happen next, of which `str` is for people, and the state after it."""

    def is_at_rest(self, _state: S, /) -> bool:
        """Whether nothing is left to do; False in a model that asks nothing of such states."""
        return False


def _nothing(_: Any) -> Iterable[str]:
    return ()


@dataclass(frozen=True, slots=True)
class Rules(Generic[S]):
    """What must hold: each rule gives what does not, beginning with the name of the invariant.

    Attributes
    ----------
    always
        In every state.
    at_rest
        Where nothing is left to do.
    before_rest
        Where something is.
    step
        Of each step: the state before, what happens, the state after as the step gives it, and whether it is a new one.
    """

    always: Callable[[S], Iterable[str]] = _nothing
    at_rest: Callable[[S], Iterable[str]] = _nothing
    before_rest: Callable[[S], Iterable[str]] = _nothing
    step: Callable[[S, Any, S, bool], str | None] | None = None


def search_all(
    space: Space[S],
    rules: Rules[S],
    mutant: Patch | None = None,
    states_max: int = STATES_MAX,
    canonical: Callable[[S], S] = lambda state: state,
) -> Searched:
    """Search a model, with a mutant's patches if one is given.

    Parameters
    ----------
    space, rules
        What may happen in the model, and what must hold.
    mutant
        A broken rule; None: the protocol as it is.
    states_max
        How many states there may be.
    canonical
        Returns the state that stands for all those that differ from it in nothing that matters.

    Raises
    ------
    RuntimeError
        There are more than `states_max` states.
    """
    with nullcontext() if mutant is None else mutant.mutated():
        return _search(space, rules, states_max, canonical)


def _search(space: Space[S], rules: Rules[S], states_max: int, canonical: Callable[[S], S]) -> Searched:
    first = canonical(space.first())
    came_from: dict[Any, Any] = {first.key: None}
    level, transitions, depth = {first.key: first}, 0, 0
    while level:
        following: dict[Any, S] = {}
        for key, state in level.items():
            # A broken state ends the search: its steps are not worked out.
            problem, last = next(iter(rules.always(state)), ""), ""
            try:
                for happened, found in () if problem else space.steps(state):
                    transitions += 1
                    after = canonical(found)
                    reached = after.key
                    is_new = reached not in came_from
                    # Of known states too: what a step does wrong need not be seen in the state after it.
                    if rules.step is not None and (broken := rules.step(state, happened, found, is_new)):
                        problem, last = broken, str(happened)
                        break
                    if is_new:
                        came_from[reached] = key
                        following[reached] = after
            except ProcedureFailed as error:
                problem = f"FAILED: {error}"
            if not problem:
                rest = rules.at_rest if space.is_at_rest(state) else rules.before_rest
                problem = next(iter(rest(state)), "")
            if problem:
                way = _way_to(space, first, key, came_from, canonical)
                return Searched(len(came_from), transitions, problem, (*way, last) if last else way, depth)
        if len(came_from) > states_max:
            raise RuntimeError(f"{space.model.name} has more than {states_max} states")
        depth += bool(following)
        level = following
    return Searched(len(came_from), transitions, depth=depth)


def _way_to(
    space: Space[S], first: S, key: Any, came_from: Mapping[Any, Any], canonical: Callable[[S], S]
) -> tuple[str, ...]:
    """Go the way to a state once more, and tell it."""
    keys: list[Any] = []
    while (before := came_from[key]) is not None:
        keys.append(key)
        key = before
    state, way = first, list[str]()
    for key in reversed(keys):
        steps = ((happened, canonical(found)) for happened, found in space.steps(state))
        happened, state = next(each for each in steps if each[1].key == key)
        way.append(str(happened))
    return tuple(way)


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
