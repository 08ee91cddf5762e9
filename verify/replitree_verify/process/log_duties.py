"""What a replica does with the log of its table beside inserting: it counts itself, gives up, and lets the log go on."""

from __future__ import annotations

from replitree.protocol.core import effects as fx
from replitree.protocol.core.entries import GetEntry
from replitree.protocol.core.layout import Replica
from replitree.protocol.insert.quorum import give_up, join
from replitree.protocol.program.stages import Stage
from replitree.protocol.propose.roll_over import roll_over


def count(replica: Replica, epoch: fx.Epoch, index: fx.LogIndex, entry: GetEntry) -> Stage:
    """Count a replica for an insert that it has executed."""
    yield from join(replica, epoch, index, entry)
    return None


def lose_patience(replica: Replica, epoch: fx.Epoch, index: fx.LogIndex, entry: GetEntry) -> Stage:
    """Give up an insert whose quorum is open."""
    yield from give_up(replica, epoch, index, entry)
    return None


def roll(replica: Replica, epoch: fx.Epoch) -> Stage:
    """Let a log go on below another parent."""
    yield from roll_over(replica, epoch)
    return None


__all__ = ["count", "lose_patience", "roll"]
