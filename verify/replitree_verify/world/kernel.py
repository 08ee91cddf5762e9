"""Procedures as values: where a generator stands is a small integer.

A generator can't be copied or compared, but it is a pure function of the outcomes that it was sent.  So a place in a procedure
is (procedure, arguments, outcomes so far); the kernel gives each such place a number, remembers the effect that it asks for,
and rebuilds the generator by replay when a new place is needed.  Equal places have equal numbers, so a state of the world that
consists of such numbers hashes and compares at the cost of a tuple of integers.

A stage that ends in `Then` continues at the place where the next stage begins: what it did before is forgotten, and states that
differ only in that are one.

Guarantees: the numbers depend on the order in which places are asked for and on nothing else, so two runs that ask alike
number alike, under any ``PYTHONHASHSEED``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from replitree.protocol.program.stages import Then

END = 0
"""The place of a procedure that returned, or that died with its process."""

LIVE_GENERATORS_MAX = 20_000
"""Generators kept at the place where they stand, so that going on needs no replay."""

T = TypeVar("T", bound=Hashable)
Running: TypeAlias = Generator[Any, Any, Any]
Stage: TypeAlias = Callable[..., Running]


class Interner(Generic[T]):
    """Gives equal values equal small numbers, in the order in which they are first seen."""

    def __init__(self) -> None:
        self._numbers: dict[T, int] = {}
        self.values: list[T] = []

    def number(self, value: T) -> int:
        """Return the value's number."""
        found = self._numbers.get(value)
        if found is None:
            # In the order of first use, which a second run repeats: no number depends on a hash.
            found = len(self.values)
            self._numbers[value] = found
            self.values.append(value)
        return found

    def __getitem__(self, number: int) -> T:
        """Return the value of a number."""
        return self.values[number]

    def __len__(self) -> int:
        """Return how many values there are."""
        return len(self.values)


class ProcedureFailed(Exception):
    """A procedure raised: an assertion of it did not hold, or it could not read what it found."""


class Conversation(NamedTuple):
    """One stage up to where it stands."""

    stage: Stage
    arguments: tuple[Any, ...]
    turns: Sequence[tuple[Any, Any]]
    """(effect, outcome) of every step so far."""

    @property
    def outcomes(self) -> tuple[Any, ...]:
        """What the stage was sent."""
        return tuple(outcome for _, outcome in self.turns)


class Kernel:
    """All places of all procedures that were asked for.

    Parameters
    ----------
    replaced
        Stages to run instead of others, by the other's name: how a mutant gets in.
    """

    def __init__(self, replaced: Mapping[str, Stage] | None = None) -> None:
        self._replaced = dict(replaced or {})
        self._roots: dict[tuple[Stage, tuple[Any, ...]], int] = {}
        self._next: dict[tuple[int, Any], int] = {}
        # Number 0 is `END`, which asks for nothing and came from nowhere.
        self._effects: list[Any] = [None]
        self._before: list[tuple[int, Any]] = [(END, None)]
        self._begun: list[tuple[Stage, tuple[Any, ...]] | None] = [None]
        self._live: dict[int, Running] = {}

    def __len__(self) -> int:
        """Return the number of places."""
        return len(self._effects)

    def begin(self, stage: Stage, *arguments: Any) -> int:
        """Return the place where a stage begins."""
        key = (stage, arguments)
        # A stage with the same arguments begins at the same place, whatever the stage before it was told.
        place = self._roots.get(key)
        if place is None:
            generator = self._generator(stage, arguments)
            place = self._advance(generator, None, (END, None), key)
            self._roots[key] = place
        return place

    def effect(self, place: int) -> Any:
        """Return the effect that a place asks for; None at `END`."""
        return self._effects[place]

    def step(self, place: int, outcome: Any) -> int:
        """Return the place after the effect at `place` ended with `outcome`.

        Raises
        ------
        ProcedureFailed
            The procedure raised.
        """
        key = (place, outcome)
        after = self._next.get(key)
        if after is None:
            # The generator that stands here goes on, and stands at the next place; a second way from here needs a replay.
            generator = self._live.pop(place, None)
            if generator is None:
                told = self.conversation(place)
                generator = self._generator(told.stage, told.arguments)
                generator.send(None)
                for earlier in told.outcomes:
                    generator.send(earlier)
            after = self._next[key] = self._advance(generator, outcome, key, None)
        return after

    def came_from(self, place: int) -> tuple[int, Any] | tuple[Stage, tuple[Any, ...]]:
        """Return the place before one, and the outcome that led on from there; of a beginning the stage and its arguments."""
        return self._begun[place] or self._before[place]

    def conversation(self, place: int) -> Conversation:
        """Return the stage at a place and what it was told so far."""
        turns: list[tuple[Any, Any]] = []
        while self._begun[place] is None:
            place, outcome = self._before[place]
            turns.append((self._effects[place], outcome))
        begun = self._begun[place]
        assert begun is not None
        return Conversation(begun[0], begun[1], tuple(reversed(turns)))

    def _generator(self, stage: Stage, arguments: tuple[Any, ...]) -> Running:
        return self._replaced.get(stage.__name__, stage)(*arguments)

    def _advance(
        self,
        generator: Running,
        outcome: Any,
        before: tuple[int, Any],
        begun: tuple[Stage, tuple[Any, ...]] | None,
    ) -> int:
        try:
            effect = generator.send(outcome)
        except StopIteration as stop:
            # Not a place of its own: states that differ only in what the earlier stage was told are one.
            return self.begin(stop.value.stage, *stop.value.arguments) if isinstance(stop.value, Then) else END
        # Whatever a procedure raises is a finding, and most often an assertion that does not hold.
        except Exception as error:
            raise ProcedureFailed(f"{type(error).__name__}: {error}") from error
        place = len(self._effects)
        self._effects.append(effect)
        self._before.append(before)
        self._begun.append(begun)
        self._live[place] = generator
        if len(self._live) > LIVE_GENERATORS_MAX:  # the oldest: breadth first, the search has left it behind
            del self._live[next(iter(self._live))]
        return place
