"""Random histories of random models of a tablet: every seed is one, and always the same one.

Seeds share a model, `HISTORIES_OF_ONE` of them, so that what the members answer need not be worked out anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from multiprocessing import get_context
from random import Random

from replitree_verify.engine.fingerprints import summand_of
from replitree_verify.patches.patch import find_patch
from replitree_verify.tablets.drawing import draw_model
from replitree_verify.tablets.invariants.catalog import TabletChecker
from replitree_verify.tablets.space import Space
from replitree_verify.tablets.state import Move

HISTORIES_OF_ONE = 10


@dataclass(slots=True)
class SimulatedTablets:
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

    def add(self, other: SimulatedTablets) -> None:
        """Take what came of others."""
        self.histories += other.histories
        self.moves += other.moves
        self.violations += other.violations
        self.trace = self.trace or other.trace
        self.probes += other.probes
        self.digest ^= other.digest


def simulate(first: int, end: int, mutant: str | None = None, workers: int = 1) -> SimulatedTablets:
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
    result, run = SimulatedTablets(), partial(_histories, mutant)
    if workers == 1:
        _add_all(result, map(run, blocks))
    else:
        with get_context("spawn").Pool(workers) as pool:
            _add_all(result, pool.imap(run, blocks))
    return result


def _add_all(result: SimulatedTablets, found: Iterable[SimulatedTablets]) -> None:
    for each in found:
        result.add(each)


def _histories(mutant: str | None, seeds: list[int]) -> SimulatedTablets:
    """Go through the histories of one model."""
    result = SimulatedTablets()
    with nullcontext() if mutant is None else find_patch("tablets", mutant).mutated():
        block = _Block(seeds[0] // HISTORIES_OF_ONE)
        # The order of moves is that of the numbers of what the members were asked before.  So a seed's history comes after
        # those of the earlier seeds of its model, whether they are asked for or not.
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
        self._checker = TabletChecker(self._space)

    def history(self, seed: int) -> SimulatedTablets:
        """Go through the next history; if it violates anything, tell the way there."""
        result, way = SimulatedTablets(histories=1), list[Move]()
        draw, state = Random(seed), self._space.first()  # noqa: S311 - drawn to be drawn again
        while not result.violations and (moves := list(self._space.successors(state))):
            before, (state, move) = state, draw.choice(moves)
            way.append(move)
            # Once for each history, however often the move was made: the probes count histories.
            result.probes |= Counter(dict.fromkeys(move.probes, 1))
            wrong = self._checker.broken_step(before, move, state)
            if wrong is not None:
                result.violations.append((seed, wrong))
                result.trace = tuple(map(str, way))
        result.moves, result.digest = len(way), summand_of(seed, len(way))
        return result
