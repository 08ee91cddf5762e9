"""The inner loops of the compiled search, as templates: they call a model's functions by names that have no value here.

`compiling.bound` gives them their values, in a copy of the template for each model.

The table is open addressing in one array: a slot is 0, or a state plus one.  Successors go through it block by block, and not
one by one as they are made: the processor then waits for several slots at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from replitree_published.packed.bits import sorted_blocks
from replitree_published.packed.model import Limits

if TYPE_CHECKING:  # those of every other model have the same shape
    from replitree_published.packed.models.truncate_log import broken, seen, successors

MIX = -7046029254386353131
"""Odd, and without a pattern: 2**64 divided by the golden ratio, as a signed number."""


class Buffers(NamedTuple):
    """The successors of a block of states, as arrays.

    Attributes
    ----------
    out, by, origin
        Each successor, who made it, and the number of the state that it is a successor of.
    at
        Of each state that was new: its position among the successors.
    """

    out: Any
    by: Any
    origin: Any
    at: Any


def expand(
    states: Any, first: int, last: int, limits: Limits, symmetric: tuple[int, int], buffers: Buffers, tally: Any
) -> int:
    """Write the successors of the states from `first` up to and without `last`; return how many.

    `symmetric`: where the blocks of replicas begin that are put in order, and how wide they are; 0 if they stay as they are.
    `tally` has three rows: successors of each action; states in which it was enabled; stuck states (the first plus one, and
    how many).
    """
    out, by, origin, count = buffers.out, buffers.by, buffers.origin, 0
    for number in range(first, last):
        end = successors(states[number], limits, out, by, count)
        actions = 0
        for each in range(count, end):
            origin[each] = number
            action = by[each] >> 8
            tally[0, action] += 1
            actions |= 1 << action
            if symmetric[1] and out[each] >= 0:
                out[each] = sorted_blocks(out[each], symmetric[0], symmetric[1], limits.replicas)
        action = 0
        while actions:
            tally[1, action] += actions & 1
            actions >>= 1
            action += 1
        if end == count:
            tally[2, 1] += 1
            if tally[2, 0] == 0:
                tally[2, 0] = number + 1
        count = end
    return count


def home(state: int, bits: int) -> int:
    """Return the slot where the search for a state begins, in a table of 2**bits slots."""
    mixed = (state ^ (state >> 29)) * MIX
    mixed = (mixed ^ (mixed >> 32)) * MIX
    return (mixed >> (64 - bits)) & ((1 << bits) - 1)


def enter(buffers: Buffers, count: int, table: Any, bits: int, states: Any, parents: Any, known: int) -> int:
    """Append those of the successors that are new to the states; return how many states are known then."""
    out, mask, begin = buffers.out, (1 << bits) - 1, known
    for each in range(count):
        state = out[each]
        if state < 0:
            continue
        slot = home(state, bits)
        while table[slot] != 0 and table[slot] != state + 1:
            slot = (slot + 1) & mask
        if table[slot] == 0:
            table[slot] = state + 1
            states[known] = state
            parents[known] = buffers.origin[each]
            buffers.at[known - begin] = each
            known += 1
    return known


def fill(states: Any, known: int, table: Any, bits: int) -> None:
    """Enter states, all different, into an empty table."""
    mask = (1 << bits) - 1
    for number in range(known):
        slot = home(states[number], bits)
        while table[slot] != 0:
            slot = (slot + 1) & mask
        table[slot] = states[number] + 1


def judge(states: Any, first: int, last: int, limits: Limits, wanted: int, found: Any) -> int:
    """Look at new states up to the first violation; return its number, or -1.

    `found` is told what was broken, and all probes that were seen.
    """
    for number in range(first, last):
        found[1] |= seen(states[number], limits)
        bad = broken(states[number], limits) & wanted
        if bad:
            found[0] = bad
            return number
    return -1
