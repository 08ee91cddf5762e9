"""Bits of a packed state: fields in the low bits, then one block of equal width for each replica.

Everything that belongs to a replica is in its block, so that two states are the same up to the names of replicas when their
sorted blocks are equal.  A state has at most `WORD` bits: it is never negative, whether numba or Python adds it up.
"""

from __future__ import annotations

WORD = 62


def get(state: int, at: int, width: int) -> int:
    """Return the field of `width` bits that begins at bit `at`."""
    return (state >> at) & ((1 << width) - 1)


def put(state: int, at: int, width: int, value: int) -> int:
    """Return the state with another value in a field."""
    return (state & ~(((1 << width) - 1) << at)) | (value << at)


def ones(mask: int) -> int:
    """Return how many bits are set."""
    count = 0
    while mask:
        mask &= mask - 1
        count += 1
    return count


def highest(mask: int) -> int:
    """Return the number of the highest bit that is set, -1 of none."""
    number = -1
    while mask:
        mask >>= 1
        number += 1
    return number


def blocks_with(state: int, low: int, width: int, blocks: int, mask: int) -> int:
    """Return how many blocks have all these bits set; parameters as of `sorted_blocks`."""
    count = 0
    for number in range(blocks):
        count += int(get(state, low + number * width, width) & mask == mask)
    return count


def without_in_blocks(state: int, low: int, width: int, blocks: int, mask: int) -> int:
    """Return the state with these bits cleared in every block; parameters as of `sorted_blocks`."""
    for number in range(blocks):
        state &= ~(mask << (low + number * width))
    return state


def sorted_blocks(state: int, low: int, width: int, blocks: int) -> int:
    """Return the state with its blocks in order: the same for all states that differ by names of replicas only.

    Parameters
    ----------
    low
        Bits below the first block.
    width, blocks
        Bits of a block; how many there are.
    """
    for done in range(1, blocks):
        at = low + done * width
        while at > low:
            here, before = get(state, at, width), get(state, at - width, width)
            if before <= here:
                break
            state = put(put(state, at, width, before), at - width, width, here)
            at -= width
    return state
