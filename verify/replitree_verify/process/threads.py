"""What a process of the checker does besides the stages of `replitree.protocol.program`: it starts."""

from __future__ import annotations

from dataclasses import dataclass

from replitree.protocol.core.effects import Effect
from replitree.protocol.core.layout import Replica
from replitree.protocol.program import life
from replitree.protocol.program.stages import Stage, Then


@dataclass(frozen=True, slots=True)
class Appear(Effect):
    """A process starts where there was none."""


def appear(replica: Replica, me: bytes) -> Stage:
    """Start, some time."""
    yield Appear()
    return Then(life.become_active, (replica, me))
