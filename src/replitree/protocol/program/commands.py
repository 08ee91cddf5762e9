"""Commands of users that take more than one step."""

from __future__ import annotations

from replitree.protocol.core.effects import EntryId
from replitree.protocol.core.layout import Replica
from replitree.protocol.execute.mutate import kill_mutation
from replitree.protocol.program.stages import AwaitMutation, End, KillTurn, Stage


def kill(replica: Replica, mutation: EntryId) -> Stage:
    """Kill a mutation that was pulled; find out how many parts it will not mutate any more."""
    turn: KillTurn = yield AwaitMutation(mutation)
    return End((yield from kill_mutation(replica, turn.epoch, turn.item)))


__all__ = ["kill"]
