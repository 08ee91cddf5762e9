"""The mover: brings the rows of one part after another to where the table's storage policy wants them."""

from __future__ import annotations

from replitree.protocol.core.effects import InDoubt
from replitree.protocol.core.layout import Replica
from replitree.protocol.program.stages import AwaitMove, MoveEnded, MoveTurn, ReportTrouble, Stage, Then
from replitree.protocol.shares import moving


def move_next(replica: Replica) -> Stage:
    """Move one part; a move in doubt is settled by a new epoch."""
    turn: MoveTurn = yield AwaitMove()
    if turn.share is None:
        outcome = yield from moving.move_to_store(turn.sharer, turn.part)
    else:
        outcome = yield from moving.move_to_disk(turn.sharer, turn.part, turn.share)
    yield MoveEnded(turn, outcome)
    if isinstance(outcome, InDoubt):
        yield ReportTrouble()
    return Then(move_next, (replica,))


__all__ = ["move_next"]
