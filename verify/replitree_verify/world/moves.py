"""What one process knows of parts that move between its disk and the object store, as a value; a crash loses all of it.

As `replica.parts.moving.Moves` of the running replica; explorer and simulator have it in a process's memory.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum

from replitree.protocol.shares.share import ShareId


class Place(Enum):
    """Where parts belong: new ones, and those that are there."""

    STORE = "in the store"
    DISK = "on the disks"
    TIERED = "on the disks while they are new, then in the store"


@dataclass(frozen=True, slots=True)
class MovesKnown:
    """What a process knows of its moves.

    Attributes
    ----------
    begun
        The moves under way: the share, and the part.
    doubtful
        The shares of moves that ended in doubt: their notes stay until the process has a newer epoch.
    places, tries, made
        Where parts belong, one place after the other: each when parts were moved to the one before.  How many moves are made to
        each place at the most, and how many were made to the first of these places.
    refused
        The last move into the store failed: the next one waits until no replica claims the part.
    """

    begun: tuple[tuple[ShareId, str], ...] = ()
    doubtful: frozenset[ShareId] = frozenset()
    places: tuple[Place, ...] = ()
    tries: int = 0
    made: int = 0
    refused: bool = False

    @property
    def shares(self) -> frozenset[ShareId]:
        """The shares whose notes have to stay: a move is under way with them, or has ended in doubt."""
        return self.doubtful.union(share for share, _ in self.begun)

    def beginning(self, part: str, share: ShareId) -> MovesKnown:
        """Begin a move."""
        return replace(self, begun=tuple(sorted({*self.begun, (share, part)})))

    def settled(self, shares: Collection[ShareId]) -> MovesKnown:
        """End the moves with these shares."""
        return replace(self, begun=tuple(each for each in self.begun if each[0] not in shares))

    def doubting(self, shares: Collection[ShareId]) -> MovesKnown:
        """End the moves with these shares, of which an answer was lost."""
        return replace(self.settled(shares), doubtful=self.doubtful.union(shares))

    def broken_off(self) -> MovesKnown:
        """End the moves under way at an unknown step."""
        return self.doubting([share for share, _ in self.begun])
