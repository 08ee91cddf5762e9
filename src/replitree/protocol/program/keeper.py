"""The keeper: takes back the registrations that another registration covers, while the replica works."""

from __future__ import annotations

from replitree.protocol.core.effects import Epoch
from replitree.protocol.core.layout import Replica
from replitree.protocol.program.stages import AwaitStrays, Stage, Then
from replitree.protocol.state.pull import Fenced, load
from replitree.protocol.state.start import forget_covered


def forget_next(replica: Replica) -> Stage:
    """Take back what is covered, now and then."""
    epoch: Epoch = yield AwaitStrays()
    loaded = yield from load(replica)
    if isinstance(loaded, Fenced):
        return Then(forget_next, (replica,), loaded)
    done = yield from forget_covered(replica, epoch, loaded)
    return Then(forget_next, (replica,), done)


__all__ = ["forget_next"]
