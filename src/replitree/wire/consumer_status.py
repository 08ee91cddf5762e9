"""What a replica says of the consumers of a table's change feed."""

from __future__ import annotations

import msgspec


class ConsumerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer as one replica sees it.

    Attributes
    ----------
    name, index
        Its name, and the first entry that it has not read.
    idle_s, hold_s
        For how long it has not moved although there was something to read, and for how long it holds then, in seconds.
    bytes, bytes_max
        The bytes of parts that the replica keeps for it alone, and at most.
    expired
        Why its hold has ended; empty: it holds.
    """

    name: str
    index: int
    idle_s: float
    hold_s: float
    bytes: int
    bytes_max: int
    expired: str = ""

    @property
    def used(self) -> float:
        """Which share of its limits it has used up, from 0 to 1."""
        return min(1.0, max(0.0, self.idle_s / self.hold_s, self.bytes / self.bytes_max))


__all__ = ["ConsumerStatus"]
