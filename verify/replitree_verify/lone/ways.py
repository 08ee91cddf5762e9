"""Every way through a program that chooses: it is run again and again, each time another way.

The first way takes option 0 at every choice.  A step from a way takes another option at one choice after the last that the way
takes, and option 0 at those that follow: so each way is reached once, and the nearest breach has the fewest such options.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from typing_extensions import override

from replitree_verify.engine import small_search

R = TypeVar("R")


class Choices:
    """What is chosen in one run: the options that are given, then option 0; `options`: how many there were at each choice."""

    def __init__(self, taken: tuple[int, ...] = ()) -> None:
        self.options = list[int]()
        self._taken = taken

    def choose(self, options: int) -> int:
        """Return one of so many options."""
        number = len(self.options)
        self.options.append(options)
        return self._taken[number] if number < len(self._taken) else 0


@dataclass(frozen=True, slots=True)
class Way(Generic[R]):
    """The options that are taken up to the last that is not option 0, how many there were all along, and what came of it."""

    key: tuple[int, ...]
    options: tuple[int, ...]
    result: R


class Ways(small_search.Space[Way[R]]):
    """The ways through a program.

    Parameters
    ----------
    model
        What has a name.
    run
        Runs the program.
    """

    def __init__(self, model: Any, run: Callable[[Choices], R]) -> None:
        self.model = model
        self._run = run

    @override
    def first(self) -> Way[R]:
        return self._go(())

    @override
    def steps(self, way: Way[R], /) -> Iterator[tuple[str, Way[R]]]:
        for number in range(len(way.key), len(way.options)):
            # Only after the last option that is not 0: so each way has one parent, and is run once.
            before = (*way.key, *(0,) * (number - len(way.key)))
            for option in range(1, way.options[number]):
                yield f"choice {number} takes option {option}", self._go((*before, option))

    def _go(self, taken: tuple[int, ...]) -> Way[R]:
        choices = Choices(taken)
        result = self._run(choices)
        return Way(taken, tuple(choices.options), result)
