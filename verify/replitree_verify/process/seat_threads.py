"""The threads of a seat: which there are, what each begins with, and what the next process of the seat has of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from replitree.protocol.program import candidate, commands, executor, inserter, keeper, leader, life, puller, rewriter
from replitree.protocol.program import upkeep as share_upkeep
from replitree_verify.process import (
    consumers,
    fsck,
    longlife,
    lost_parts,
    moves,
    quorums,
    read_requests,
    restore_duties,
    shares,
    tags,
    upkeep,
    uploads,
)
from replitree_verify.process.requests import asked_of
from replitree_verify.world.kernel import Stage
from replitree_verify.world.model import Model, me_of

Beginning: TypeAlias = tuple[Stage, tuple[Any, ...]]
"""A stage and its arguments."""

TITLES = {
    "life": "life",
    "puller": "pull",
    "executor": "work",
    "maker": "make",
    "keeper": "keep",
    "candidate": "elect",
    "upkeep": "free",
    "mover": "move",
    "insert": "ins ",
    "upload": "upl ",
    "command": "ask ",
    "rewrite": "rew ",
    "leader": "lead",
    "kill": "kill",
    "read": "read",
    "duty": "",
}
"""What threads are called in traces."""

_ASKED: dict[str, Stage] = {
    "insert": inserter.accept_insert,
    "command": commands.accept_command,
    "rewrite": rewriter.accept_rewrite,
    "leader": leader.lead,
    "kill": commands.kill,
    "read": read_requests.begin_read,
}
_WORKING: dict[str, Callable[..., Any]] = {
    "executor": executor.execute_next,
    "maker": executor.make_next,
    "keeper": keeper.forget_next,
    "upkeep": share_upkeep.let_go_next,
}
WORKING = ("puller", *_WORKING, "candidate", "mover")
"""The threads that work on whatever comes, beside the life thread."""
_DUTIES = longlife.DUTIES | lost_parts.DUTIES | quorums.DUTIES | upkeep.DUTIES | restore_duties.DUTIES
_DUTIES |= shares.DUTIES | fsck.DUTIES | uploads.DUTIES | tags.DUTIES | consumers.DUTIES
_GOES_ON = (*lost_parts.GOES_ON, *restore_duties.DUTIES, *uploads.DUTIES, *tags.GOES_ON)
"""Duties that the next process of a seat does as well."""


def work_of(model: Model, seat: str) -> Iterator[tuple[str, str, tuple[Any, ...]]]:
    """Return the threads of a seat: kind, number for people, arguments."""
    works = seat in model.workers
    for kind, is_there in (
        ("life", seat not in model.operators),
        ("puller", works),
        ("executor", works),
        ("maker", works and model.has_makers),
        ("keeper", seat in model.keepers),
        ("candidate", seat in model.candidates),
        ("upkeep", seat in model.upkeepers),
    ):
        if is_there:
            yield kind, "", ()
    for mover in model.movers:
        if mover.seat == seat:
            yield "mover", "", (mover.places, mover.tries)
    yield from asked_of(model, seat)


def begins_again(kind: str, arguments: tuple[Any, ...]) -> bool:
    """Whether the next process of a seat has this thread too."""
    return kind not in _ASKED and (kind != "duty" or arguments[0] in _GOES_ON)


def beginning(
    model: Model, seat: int, kind: str, arguments: tuple[Any, ...], incarnation: int, *, is_there: bool
) -> Beginning:
    """Return what a thread begins with in the n-th process of its seat.

    Parameters
    ----------
    model, seat
        The model, and the number of the seat.
    kind, arguments
        The thread.
    incarnation, is_there
        Which process it is; whether it starts at once.
    """
    name, _ = model.seats[seat]
    replica, me = model.place(name), me_of(name, incarnation)
    match kind:
        case "life" if is_there and (incarnation or name in model.started):
            return life.become_active, (replica, me)
        case "life":
            is_opened = model.is_restoring or name in model.remade
            return (restore_duties.open_table if is_opened else longlife.appear), (replica, me)
        case "puller":
            return puller.pull_next, (replica, model.pull_count)
        case "candidate":
            return candidate.stand_next, (replica, None)
        case "mover":
            return moves.begin_moves, (replica, *arguments)
        case "upload":
            return uploads.begin_upload, (replica, me, *arguments)
        case "duty":
            duty, *rest = arguments
            if duty == "leave":
                return shares.leave_table, (replica, me, *rest)
            return _DUTIES[duty], (replica, *rest)
    if kind in _WORKING:
        return _WORKING[kind], (replica,)
    return _ASKED[kind], (replica, *arguments)
