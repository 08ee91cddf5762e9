"""Random histories of random models of a tablet: every seed is one, and always the same one.

Seeds share a model, `HISTORIES_OF_ONE` of them, so that what the members answer need not be worked out anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from multiprocessing import get_context
from random import Random

from replitree_verify.engine.fingerprints import summand_of
from replitree_verify.patches.patch import find_patch
from replitree_verify.tablets.drawing import draw_model
from replitree_verify.tablets.invariants.catalog import Checker
from replitree_verify.tablets.space import Space
from replitree_verify.tablets.state import Move

HISTORIES_OF_ONE = 10


@dataclass(slots=True)
class Simulated:
    """What came of some histories.

    Attributes
    ----------
    histories, moves
        How many.
    violations
        Seed, and what is wrong at the end of its history.
    trace
        The way to the first of them, for people.
    probes
        Rare branches, and in how many histories they were seen.
    digest
        The same for the same seeds and the same code.
    """

    histories: int = 0
    moves: int = 0
    violations: list[tuple[int, str]] = field(default_factory=list)
    trace: tuple[str, ...] = ()
    probes: Counter[str] = field(default_factory=Counter)
    digest: int = 0

    def add(self, other: Simulated) -> None:
        """Take what came of others."""
        self.histories += other.histories
        self.moves += other.moves
        self.violations += other.violations
        self.trace = self.trace or other.trace
        self.probes += other.probes
        self.digest ^= other.digest


def simulate(first: int, end: int, mutant: str | None = None, workers: int = 1) -> Simulated:
    """Go through the histories of the seeds from `first` up to and without `end`.

    Parameters
    ----------
    first, end
        The seeds.
    mutant
        What is broken, or None.
    workers
        Processes that share the seeds; what is found does not depend on it.
    """
    blocks = [list(seeds) for _, seeds in groupby(range(first, end), lambda seed: seed // HISTORIES_OF_ONE)]
    result, run = Simulated(), partial(_simulate_block, mutant)
    if workers == 1:
        _add_all(result, map(run, blocks))
    else:
        with get_context("spawn").Pool(workers) as pool:
            _add_all(result, pool.imap(run, blocks))
    return result


def _add_all(result: Simulated, found: Iterable[Simulated]) -> None:
    for each in found:
        result.add(each)


def _simulate_block(mutant: str | None, seeds: list[int]) -> Simulated:
    if mutant is None:
        return _histories(seeds)
    with find_patch("tablets", mutant).mutated():
        return _histories(seeds)


def _histories(seeds: list[int]) -> Simulated:
    """Go through the histories of one model; the order of moves is that of the numbers of what the members were asked before.

    So a seed's history comes after those of the earlier seeds of its model, whether they are asked for or not.
    """
    result, block = Simulated(), _Block(seeds[0] // HISTORIES_OF_ONE)
    for seed in range(block.first, seeds[-1] + 1):
        found = block.history(seed)
        if seed in seeds:
            result.add(found)
    return result


class _Block:
    """The histories of one model, one after the other.

    Parameters
    ----------
    number
        Of the model.
    """

    def __init__(self, number: int) -> None:
        self.first = number * HISTORIES_OF_ONE
        self._space = Space(draw_model(number))
        self._checker = Checker(self._space)

    def history(self, seed: int) -> Simulated:
        """Go through the next history; if it violates anything, tell the way there."""
        result, way = Simulated(histories=1), list[Move]()
        for move, wrong in self._moves(seed):
            way.append(move)
            result.probes |= Counter(dict.fromkeys(move.probes, 1))
            if wrong is not None:
                result.violations.append((seed, wrong))
                result.trace = tuple(map(str, way))
        result.moves, result.digest = len(way), summand_of(seed, len(way))
        return result

    def _moves(self, seed: int) -> Iterator[tuple[Move, str | None]]:
        """Yield move by move what is wrong after it; the first thing that is wrong ends it."""
        draw, state, wrong = Random(seed), self._space.first(), None  # noqa: S311 - drawn to be drawn again
        while wrong is None and (moves := list(self._space.successors(state))):
            before, (state, move) = state, draw.choice(moves)
            wrong = self._checker.broken_step(before, move, state)
            yield move, wrong
