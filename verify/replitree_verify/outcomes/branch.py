"""A process at one effect, and one way in which that may end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from replitree.coordination.tree import Tree
from replitree.protocol.core import effects as fx
from replitree.protocol.core.layout import Replica
from replitree_verify.outcomes.local import Here
from replitree_verify.process.read_requests import Told
from replitree_verify.world.faults import NO_FAULTS, Budget, Fault
from replitree_verify.world.memory import Memory


@dataclass(frozen=True, slots=True)
class Request:
    """A commit on its way: who sent it, in which session, under which epoch (as far as the sender knew)."""

    replica: Replica
    me: bytes
    session: int
    epoch: fx.Epoch | None
    operations: tuple[fx.Operation, ...]


class Scene(NamedTuple):
    """A process at one effect, and what may happen to it.

    Attributes
    ----------
    here
        The process.
    view
        What its session sees, when that is not the present.
    memories
        Of all processes, by seat.
    faults
        The kinds of faults that the model has.
    answers
        What clients were told so far, by request.
    still, alone
        Whether no replica is ever marked, added or dropped and the log is never cleaned; whether no process writes below
        another one's replica.
    """

    here: Here
    view: Tree | None
    memories: Mapping[str, Memory]
    faults: frozenset[Fault]
    still: bool = False
    alone: bool = True
    answers: Mapping[int, Told | None] = MappingProxyType({})


@dataclass(slots=True)
class Branch:
    """One way in which an effect ends.

    Attributes
    ----------
    outcome
        What the procedure is sent.
    here
        The process, its disk and the tree afterwards.
    cost
        The faults that it takes.
    fate
        What the outcome alone does not tell, for people.
    fresh
        Whether the session's view is the present now.
    doubtful
        Whether an own commit took place unseen, so that the session's view may be older than it.
    answers
        What clients were told.
    sent
        A request that stays in flight.
    dies, closes
        The process dies now; the procedure was closed.
    breach
        The invariant that this step breaks, and how.
    """

    outcome: Any
    here: Here
    cost: Budget = NO_FAULTS
    fate: str = ""
    fresh: bool = False
    doubtful: bool = False
    answers: tuple[tuple[fx.RequestId, Told], ...] = ()
    sent: Request | None = None
    dies: bool = False
    closes: bool = False
    breach: str | None = None
