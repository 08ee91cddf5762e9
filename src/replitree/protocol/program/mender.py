"""The mender: declares parts lost that no replica has."""

from __future__ import annotations

from replitree.protocol.core.layout import Replica
from replitree.protocol.core.parts import parse_part
from replitree.protocol.program.mender_effects import AwaitLoss, Loss
from replitree.protocol.program.stages import Stage, Then
from replitree.protocol.upkeep.lost import declare_lost


def declare(replica: Replica, part: str, is_again: bool = False) -> Stage:
    """Declare a part lost, if no replica can have it.

    Parameters
    ----------
    replica, part
        The replica, and a part that it can't get.
    is_again
        This process has tried before.
    """
    loss: Loss = yield AwaitLoss(part, is_again)
    outcome = yield from declare_lost(replica, loss.epoch, parse_part(part), loss.empty, loss.schema_version)
    return Then(declare, (replica, part, True), outcome)


__all__ = ["declare"]
