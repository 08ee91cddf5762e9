"""Every way through a program that chooses: it is run again and again, each time another way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")


class Choices:
    """What is chosen in one run."""

    def __init__(self, path: list[list[int]]) -> None:
        self._path = path
        self._next = 0

    def choose(self, options: int) -> int:
        """Return one of so many options, 0 first."""
        if self._next == len(self._path):
            self._path.append([0, options])
        taken, known = self._path[self._next]
        assert known == options, "a run that chooses the same goes the same way"
        self._next += 1
        return taken


def every_way(run: Callable[[Choices], T]) -> Iterator[T]:
    """Run a program every way, the one in which nothing but option 0 is chosen first; yield what each run returns."""
    path = list[list[int]]()
    while True:
        yield run(Choices(path))
        # The last choice that has another option takes it; what was chosen after it is forgotten.
        while path and path[-1][0] == path[-1][1] - 1:
            path.pop()
        if not path:
            return
        path[-1][0] += 1
