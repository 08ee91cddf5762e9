"""The upkeep of shares: a replica lets go of what has left its disk, gives up its work marks, and works the garbage off.

The garbage comes last: what the replica has just let go of is in it.
"""

from __future__ import annotations

from replitree.protocol.core.effects import Epoch
from replitree.protocol.core.layout import Replica
from replitree.protocol.program.stages import AwaitUpkeep, LetGoEnded, Stage, Then, UpkeepTurn
from replitree.protocol.shares import letting_go
from replitree.protocol.shares.share import work_off
from replitree.protocol.shares.share_effects import Sharer
from replitree.protocol.state import work_mark


def let_go_next(replica: Replica) -> Stage:
    """Let go of one part that has left the disk; when there is none, see to the garbage."""
    turn: UpkeepTurn = yield AwaitUpkeep()
    if turn.left is None:
        return Then(work_garbage_off, (replica, turn.sharer, turn.epoch))
    is_gone = yield from letting_go.let_go_of_all(turn.sharer, turn.epoch, turn.left.part, turn.left.shares)
    yield LetGoEnded(turn.left, is_gone)
    return Then(let_go_next, (replica,))


def work_garbage_off(replica: Replica, sharer: Sharer, epoch: Epoch) -> Stage:
    """Give up the work marks under which this replica makes nothing, then delete what no replica owns."""
    yield from work_mark.give_up_left(sharer, epoch)
    yield from work_off(replica.table)
    return Then(let_go_next, (replica,))


__all__ = ["let_go_next", "work_garbage_off"]
