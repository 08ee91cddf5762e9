"""What the mender asks of the memory of its process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from replitree.protocol.core.effects import Epoch, Procedure
from replitree.protocol.program.stages import MemoryEffect
from replitree.protocol.upkeep.lost import LostOutcome, declare_lost


@dataclass(frozen=True, slots=True)
class AwaitLoss(MemoryEffect):
    """Wait, while active, until this replica can't get a part.  Outcome: `Loss`.

    Attributes
    ----------
    part
        The part.
    is_again
        This process has tried to declare the part lost before.  A checker waits until it would succeed: it explores the first
        try at any moment, and no more tries in vain.
    declares
        Declares a part lost; a mutant does it otherwise.
    """

    part: str
    is_again: bool
    declares: Callable[..., Procedure[LostOutcome]] = declare_lost


@dataclass(frozen=True, slots=True)
class Loss:
    """What a part is declared lost with: the epoch; the content and the columns of the empty part."""

    epoch: Epoch
    empty: str
    schema_version: int


__all__ = ["AwaitLoss", "Loss"]
