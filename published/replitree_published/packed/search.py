"""The compiled search: breadth first, block by block, with the table and the states in numpy arrays.

Memory: 8 bytes for a state, 4 for its parent, and 8 for each slot of a table that is at most half full.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from replitree_published.packed import kernels
from replitree_published.packed.compiling import bound, compiled
from replitree_published.packed.model import Limits, PackedModel
from replitree_published.packed.raw import NOBODY, Raw

BLOCK = 512
"""States whose successors go through the table together: few enough for the caches, enough for the price of a call."""

BITS = 16
"""The first table has 2**16 slots."""

LARGE = 24
"""A table of 2**24 slots or more is doubled, a smaller one made four times as large."""


@dataclass(slots=True)
class Space:
    """The arrays of a search; they grow."""

    model: PackedModel
    states: Any
    parents: Any
    table: Any
    bits: int = BITS
    known: int = 1

    def room_for(self, more: int) -> None:
        """See to it that so many new states find room."""
        needed = self.known + more
        if needed > len(self.states):
            self.states = _longer(self.states, 2 * needed)
            self.parents = _longer(self.parents, 2 * needed)
        if 2 * needed > len(self.table):
            while 2 * needed > 1 << self.bits:
                self.bits += 2 if self.bits < LARGE else 1
            self.table = None  # before the next one is there: together they would be half as much again
            self.table = np.zeros(1 << self.bits, np.int64)
            compiled(kernels.fill)(self.states, self.known, self.table, self.bits)


def _longer(array: Any, length: int) -> Any:
    longer = np.empty(length, array.dtype)
    longer[: len(array)] = array
    return longer


def _space(model: PackedModel, limits: Limits) -> Space:
    states, parents = np.empty(1 << BITS, np.int64), np.empty(1 << BITS, np.int32)
    states[0], parents[0] = model.initial(limits), NOBODY
    space = Space(model, states, parents, np.zeros(1 << BITS, np.int64))
    compiled(kernels.fill)(states, 1, space.table, BITS)
    return space


class Compiled:
    """A model's kernels and the buffers between them."""

    def __init__(self, model: PackedModel, limits: Limits, wanted: int, symmetric: bool) -> None:
        self.limits, self.wanted, self.symmetric = limits, wanted, model.blocks if symmetric else (0, 0)
        name = model.successors.__module__.rpartition(".")[2]
        self.expand: Callable[..., int] = bound(kernels.expand, name, successors=model.successors)
        self.judge: Callable[..., int] = bound(kernels.judge, name, broken=model.broken, seen=model.seen)
        self.enter: Callable[..., int] = compiled(kernels.enter)
        size = BLOCK * model.fan_out
        self.buffers = kernels.Buffers(np.empty(size, np.int64), *(np.empty(size, np.int32) for _ in range(3)))
        self.tally = np.zeros((3, max(2, len(model.actions))), np.int64)

    def step(self, space: Space, first: int, last: int) -> int:
        """Enter the successors of a block of states; return how many there were."""
        count = self.expand(space.states, first, last, self.limits, self.symmetric, self.buffers, self.tally)
        space.room_for(count)
        space.known = self.enter(self.buffers, count, space.table, space.bits, space.states, space.parents, space.known)
        return count

    def look(self, raw: Raw, space: Space, first: int) -> None:
        """Judge the states from `first` on."""
        found = np.zeros(2, np.int64)
        number = self.judge(space.states, first, space.known, self.limits, self.wanted, found)
        raw.judge(max(number, 0), int(found[0]), int(found[1]), raw.depth + 1)


def search(model: PackedModel, limits: Limits, wanted: int, *, symmetric: bool, states_max: int) -> Raw:
    """Search a model's states breadth first, up to the first violation.

    Parameters
    ----------
    wanted
        Bits of the invariants that are asked for.
    symmetric
        Whether states that differ by names of replicas only count as one.
    states_max
        The search ends when more states than these are known.
    """
    space, inner = _space(model, limits), Compiled(model, limits, wanted, symmetric)
    raw = Raw(model, space.states, space.parents)
    inner.look(raw, space, 0)
    at = 0
    while at < space.known < states_max and raw.violating is None:
        raw.depth += 1
        at = _level(raw, space, inner, at)
    raw.states, raw.parents = space.states[: space.known], space.parents[: space.known]
    raw.fired, raw.enabled = inner.tally[0].tolist(), inner.tally[1].tolist()
    raw.stuck = [int(inner.tally[2, 0]) - 1, int(inner.tally[2, 1])]
    raw.cut_short = raw.violating is None and at < space.known
    return raw


def _level(raw: Raw, space: Space, inner: Compiled, at: int) -> int:
    """Go through the states of one level, beginning with number `at`; return the first number of the next."""
    end = space.known
    while at < end:
        last, before = min(at + BLOCK, end), space.known
        count = inner.step(space, at, last)
        inner.look(raw, space, before)
        if raw.violating is not None:
            raw.generated += int(inner.buffers.at[raw.violating - before]) + 1
            space.known = raw.violating + 1
            break
        raw.generated += count
        at = last
    return end
