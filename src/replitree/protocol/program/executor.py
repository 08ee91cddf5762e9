"""The executors: each executes the queue's entries of one lane, a batch at a time."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from replitree.protocol.core.effects import LogIndex
from replitree.protocol.core.layout import Replica
from replitree.protocol.execute.execute import execute
from replitree.protocol.program.stages import AskReload, AwaitWork, GiveBack, ReportTrouble, Stage, Then, WorkTurn
from replitree.protocol.state.pull import Fenced
from replitree.protocol.state.registration import Executed, Postponed, QueueMoved


def execute_next(replica: Replica) -> Stage:
    """Execute what is in the queue, but for merges and mutations."""
    turn: WorkTurn = yield AwaitWork(makes=False)
    yield from execute_turn(replica, turn)
    return Then(execute_next, (replica,))


def make_next(replica: Replica) -> Stage:
    """Execute a merge or a mutation."""
    turn: WorkTurn = yield AwaitWork(makes=True)
    yield from execute_turn(replica, turn)
    return Then(make_next, (replica,))


def execute_turn(replica: Replica, turn: WorkTurn) -> Generator[Any, Any, tuple[LogIndex, ...]]:
    """Execute a batch and give it back; return what is done."""
    outcome = yield from execute(replica, turn.epoch, turn.view, turn.batch)
    batch = tuple(item.index for item in turn.batch)
    done: tuple[LogIndex, ...] = ()
    postponed: tuple[Postponed, ...] = ()
    match outcome:
        case Executed(done, postponed):
            pass
        case QueueMoved():
            postponed = tuple(Postponed(index, "the queue is read again") for index in batch)
            yield AskReload()
        case Fenced():
            yield ReportTrouble()
    yield GiveBack(batch, done, postponed)
    return done


__all__ = ["execute_next", "execute_turn", "make_next"]
