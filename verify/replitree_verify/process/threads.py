"""What a process of the checker does besides the stages of `replitree.protocol.program`: it starts, and mends.

The mender corresponds to `replica.table.mending`, which strings the same procedures together.
"""

from __future__ import annotations

from dataclasses import dataclass

from replitree.protocol.core.layout import Replica
from replitree.protocol.program import life
from replitree.protocol.program.stages import Stage, Then
from replitree.protocol.state.fetch import refetch

# --- effects on the memory of the process -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Appear:
    """A process starts where there was none."""


@dataclass(frozen=True, slots=True)
class AwaitLack:
    """Wait, while active, for parts that must be fetched again.  Outcome: (name, content hash) of each."""


@dataclass(frozen=True, slots=True)
class Mended:
    """These parts are whole again; others may have broken meanwhile."""

    parts: tuple[str, ...]


# --- the life thread ------------------------------------------------------------------------------------------------------


def appear(replica: Replica, me: bytes) -> Stage:
    """Start, some time."""
    yield Appear()
    return Then(life.become_active, (replica, me))


# --- the mender -------------------------------------------------------------------------------------------------------------


def mend_next(replica: Replica) -> Stage:
    """Fetch again what is registered and not whole on disk."""
    wanted: tuple[tuple[str, str], ...] = yield AwaitLack()
    still = yield from refetch(replica, wanted)
    yield Mended(tuple(name for name, _ in wanted if name not in still))
    return Then(mend_next, (replica,))
