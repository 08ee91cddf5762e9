"""Fingerprints of states, which a move changes at the cost of what it changes.

The fingerprint of a state is the exclusive or of one number of 64 bits for each of its positions, the *summand* of what stands
there (Zobrist's hashing).  Summands are hashes of position and number, the same in every run.  So the fingerprint of a
successor follows from that of the state before it, and a successor that is known need not be written down.

That two states of a model with n states have the same one, so that one of them is overlooked, has a probability of about
n²/2⁶⁵: 3·10⁻⁸ for a million states.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xxhash import xxh3_64_intdigest


class Summands(dict[int, int]):
    """The summand of each number at one position, worked out when it is first asked for.

    Parameters
    ----------
    position
        Where the numbers stand.
    """

    # A dictionary by itself: a summand that is known, as nearly all are, costs one look-up and no call.

    def __init__(self, position: int) -> None:
        super().__init__()
        self._position = position

    def __missing__(self, number: int) -> int:
        """Work out the summand of a number."""
        summand = self[number] = summand_of(self._position, number)
        return summand


def summand_of(position: int, number: int) -> int:
    """Return the summand of a number at a position.

    >>> summand_of(1, 2) == summand_of(2, 1)
    False
    """
    return xxh3_64_intdigest(f"{position} {number}".encode())


class Fingerprints:
    """Fingerprints of the states of one space.

    Parameters
    ----------
    summands
        For each position the summand of each number, worked out when it is asked for (`Summands`).
    """

    def __init__(self, summands: Iterable[dict[int, int]]) -> None:
        self._summands = list(summands)

    def of(self, world: Iterable[int]) -> int:
        """Return the fingerprint of a state."""
        fingerprint = 0
        for summands, number in zip(self._summands, world, strict=True):
            fingerprint ^= summands[number]
        return fingerprint

    def delta(self, world: Sequence[int], changes: Iterable[tuple[int, int]]) -> int:
        """Return what changes, as (position, number), do to the fingerprint of a state; 0 for a change that is none."""
        delta = 0
        for position, number in changes:
            delta ^= self._summands[position][world[position]] ^ self._summands[position][number]
        return delta

    def after(self, fingerprint: int, world: Iterable[int], after: Iterable[int]) -> int:
        """Return the fingerprint of a state from that of another one."""
        for summands, before, now in zip(self._summands, world, after, strict=True):
            if before != now:
                fingerprint ^= summands[before] ^ summands[now]
        return fingerprint
