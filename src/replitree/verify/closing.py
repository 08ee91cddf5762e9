"""What a thread does when its procedure was closed because a read could not be had: as the running replica does.

The life thread is read-only and tries again, the puller waits for the next occasion, the executor puts its batch off, and the
clients of an insert hear "outcome unknown" while the replica activates again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from replitree.protocol.effects import ClientAnswer, OutcomeUnknown, RequestId
from replitree.protocol.layout import Replica
from replitree.verify import life
from replitree.verify.kernel import Conversation
from replitree.verify.life import Then, WorkTurn
from replitree.verify.memory import Memory, State


@dataclass(frozen=True, slots=True)
class Closed:
    """How a thread goes on (not at all without `then`), with which memory, and what its clients heard."""

    then: Then | None
    memory: Memory
    answers: tuple[tuple[RequestId, ClientAnswer], ...] = ()


def after_close(kind: str, replica: Replica, me: bytes, memory: Memory, told: Conversation) -> Closed:
    """Return how a thread goes on after its stage was closed.

    Parameters
    ----------
    kind
        "life", "puller", "executor" or "insert".
    replica, me, memory
        The process.
    told
        The stage that was closed.
    """
    match kind:
        case "life":
            state = State.READ_ONLY if memory.running else memory.state
            return Closed(Then(life.become_active, (replica, me)), replace(memory, state=state))
        case "puller":
            return Closed(Then(life.pull_next, (replica, told.arguments[-1])), memory)
        case "executor":
            return Closed(Then(life.execute_next, (replica,)), memory.executed((), _batch(told)))
    staging, requests = told.arguments[-2:]
    held = tuple(each for each in memory.held if each != staging)
    answers = tuple((request.id, OutcomeUnknown()) for request in requests)
    return Closed(None, replace(memory, held=held).with_trouble(), answers)


def _batch(told: Conversation) -> tuple[Any, ...]:
    """Return the indexes of the entries that an executor had taken."""
    turn = told.turns[0][1]
    assert isinstance(turn, WorkTurn)
    return tuple(item.index for item in turn.batch)
