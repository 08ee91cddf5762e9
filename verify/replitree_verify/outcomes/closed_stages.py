"""What a thread does when its procedure was closed because a read could not be had: as the running replica does.

The life thread is read-only and tries again, the puller waits for the next occasion, an executor puts its batch off and lets
go of what it was making, and the clients of an insert or of a command hear "outcome unknown" while the replica activates again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from replitree.protocol.core.effects import ClientAnswer, MaybeInserted, RequestId
from replitree.protocol.core.layout import Replica
from replitree.protocol.execute.making import MAKING
from replitree.protocol.program import (
    candidate,
    executor,
    keeper,
    life,
    mender,
    mover,
    puller,
    quorum_waiter,
    rewriter,
    tagger,
    upkeep,
)
from replitree.protocol.program.stages import Then, WorkTurn
from replitree_verify.process import uploads
from replitree_verify.world.kernel import Conversation, Stage
from replitree_verify.world.memory import Memory, State

ROUNDS: dict[str, Stage] = {
    "keeper": keeper.forget_next,
    "upkeep": upkeep.let_go_next,
    "mender": mender.mend,
    "mover": mover.move_next,
    "candidate": candidate.stand_next,
    "clearer": tagger.remove_next,
}
"""What threads begin with that have nothing to give back; all but the candidate begin so again."""

_UPLOADING = (uploads.begin_upload, uploads.take_upload, uploads.prepare_merge, uploads.take_result)
"""Stages of an upload that has answered nothing yet: its client asks again."""


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
        A kind of `process.seat_threads`, "mender" or "mover".
    replica, me, memory
        The process.
    told
        The stage that was closed.
    """
    match kind:
        case "life":
            state = State.READ_ONLY if memory.is_there else memory.state
            return Closed(Then(life.become_active, (replica, me)), replace(memory, state=state))
        case "puller":
            return Closed(Then(puller.pull_next, (replica, told.arguments[-1])), replace(memory, reload=True))
        case "executor":
            return Closed(Then(executor.execute_next, (replica,)), memory.executed(_batch(told), (), _batch(told)))
        case "maker":
            left = tuple(each for each in memory.staging if not each.startswith(MAKING))
            freed = replace(memory, staging=left)
            return Closed(Then(executor.make_next, (replica,)), freed.executed(_batch(told), (), _batch(told)))
        case "keeper" | "upkeep" | "mender" | "clearer":
            return Closed(Then(ROUNDS[kind], (replica,)), memory)
        case "mover":
            # The objects that it had begun to put are in doubt, and the part may still be claimed.
            ended = replace(memory, moves=memory.moves.broken_off())
            return Closed(Then(ROUNDS[kind], (replica,)), ended.with_trouble())
        case "candidate":
            return Closed(Then(ROUNDS[kind], (replica, told.arguments[1])), memory)
        case "upload" if told.stage in _UPLOADING:
            return Closed(None, memory)
        case "leader" | "kill" | "duty" | "read":
            return Closed(None, memory)
    return _after_request(kind, memory, told)


def _after_request(kind: str, memory: Memory, told: Conversation) -> Closed:
    """Return what the clients of a closed stage hear: what was sent may be in the log, so the process activates again."""
    if kind == "command":
        return Closed(None, memory.with_trouble(), ((told.arguments[2], MaybeInserted()),))
    if told.stage is rewriter.judge_rewrite:
        return Closed(None, memory.with_trouble(), ((told.arguments[1], MaybeInserted()),))
    if told.stage is quorum_waiter.await_quorum:
        waiting = (request for each in told.arguments[1] for request in each.requests)
        return Closed(None, memory, tuple((request, MaybeInserted()) for request in waiting))
    if kind == "rewrite":
        staging, *asked = told.arguments[2:4]
    else:
        staging, requests = told.arguments[-2:]
        asked = [request.id for request in requests]
    held = tuple(each for each in memory.staging if each != staging)
    answers = tuple((request, MaybeInserted()) for request in asked)
    return Closed(None, replace(memory, staging=held).with_trouble(), answers)


def _batch(told: Conversation) -> tuple[Any, ...]:
    """Return the indexes of the entries that an executor had taken."""
    turn = told.turns[0][1]
    assert isinstance(turn, WorkTurn)
    return tuple(item.index for item in turn.batch)
