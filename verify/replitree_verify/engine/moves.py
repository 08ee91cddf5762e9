"""What a state of a model is made of, and what leads from one to another: plain values for `space`."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, TypeAlias

from replitree.protocol.core.effects import Answer, Commit, Refused
from replitree_verify.engine.resources import HIDDEN, LOCAL
from replitree_verify.engine.steps import Ending, Turn
from replitree_verify.world.faults import Fault
from replitree_verify.world.model import Model

World: TypeAlias = tuple[int, ...]
"""A state."""

TREE, LEFT, FLIGHT, OBJECTS, ANSWERS = 0, 1, 2, 3, 4
"""Positions in a state: the tree, the faults that are left, the requests in flight, the object store, the first answer."""

_CALM = LOCAL | HIDDEN | {Answer}
"""Effects by whose step no procedure decides, as far as it takes no fault."""

PRESENT = 0
"""A view that does not lag."""


@dataclass(slots=True, eq=False)  # frozen, its many fields take three times as long
class Move:
    """A way from one state to another.

    Attributes
    ----------
    who, kind, seat
        The thread or the seat that something happens to; "step", "crash", "expiry" or "late" (a request in flight is applied).
    cost
        The faults that it takes.
    changes
        What the state holds afterwards: (position, number).
    answers
        Answers that count if they are the first: (position, number).
    sent
        The number of a request that stays in flight, or -1.
    dies
        Whether the process dies.
    moves_tree, own_lag
        Whether the tree changes; whether then the session of the thread itself may stay behind.
    turns
        What happened, for people.
    breach, probes
        The invariant that it breaks, and the rare branches that it takes.
    is_local, is_plain
        Whether it changes nothing that an invariant looks at (`ample`); whether there is nothing to it but `changes`.
    has_seen, has_thought
        Of a plain one: whether it changes a disk; whether it changes its process's memory.
    delta, calm
        What it does to the fingerprint of a state; the same where no request is in flight.  0: that depends on more.
    """

    who: str
    kind: str
    seat: int
    cost: int = 0
    changes: tuple[tuple[int, int], ...] = ()
    answers: tuple[tuple[int, int], ...] = ()
    sent: int = -1
    dies: bool = False
    moves_tree: bool = False
    own_lag: bool = False
    turns: tuple[Turn, ...] = ()
    breach: str | None = None
    probes: tuple[str, ...] = ()
    is_local: bool = False
    is_plain: bool = False
    has_seen: bool = False
    has_thought: bool = False
    delta: int = 0
    calm: int = 0


Found: TypeAlias = tuple[World, Move, int]
"""A state that a move leads to, the move, and the seat whose view stays behind with it (or -1)."""


@dataclass(slots=True, eq=False)
class Expansion:
    """What one move leads to from a state.

    Attributes
    ----------
    world, fingerprint, known
        The state, its fingerprint, and the fingerprints of the states that are known.
    probes
        Takes the rare branches that are seen.
    found, fingerprints
        What is not known, or breaks an invariant on the way, with its fingerprint.
    more, count
        What is still to be looked at; how many moves there are in all.
    """

    world: World
    fingerprint: int
    known: Container[int]
    probes: set[str]
    found: list[Found] = field(default_factory=list)
    fingerprints: list[int] = field(default_factory=list)
    more: list[Found] = field(default_factory=list)
    count: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Thread:
    """A thread of a seat.

    Attributes
    ----------
    name, kind, seat
        For people; what it does (the keys of `TITLES`); the number of its seat.
    position, memory
        Where its place and its process's memory are in a state.
    arguments
        What it begins with, after its replica: what it inserts, asks for, proposes or kills.
    parts, known, alone
        What takes each kind of footprint out of a state; the moves of the footprints that were met, in company and alone.
    """

    name: str
    kind: str
    seat: int
    position: int
    memory: int
    arguments: tuple[Any, ...]
    parts: tuple[itemgetter[Any], ...]
    known: dict[tuple[int, ...], tuple[Move, ...]]
    alone: dict[tuple[int, ...], tuple[Move, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class Met:
    """A footprint of a thread that was met: in a state, with the moves that the thread has in it."""

    thread: Thread
    world: World
    moves: tuple[Move, ...]


def faults_of(model: Model, seat: str) -> frozenset[Fault]:
    """Return the faults that may happen to a seat."""
    return frozenset(fault for fault in model.faults if model.can_strike(fault, seat))


def is_local(ending: Ending, *, moves_tree: bool) -> bool:
    """Whether a step takes no fault, and no procedure decides by what happens in it."""
    branch = ending.branch
    if ending.cost or branch.dies or branch.sent is not None or branch.breach is not None or moves_tree:
        return False
    return all(
        type(turn.effect) in _CALM or (isinstance(turn.effect, Commit) and isinstance(turn.outcome, Refused))
        for turn in ending.turns
    )
