"""What a state of a model of a tablet is made of: plain values, and what is asked of them and done to them everywhere.

`space` says how states follow each other.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from typing_extensions import override

from replitree.tablet.core.election import NotElected, Won
from replitree.tablet.core.losses import Assessment
from replitree.tablet.group.ids import BlobId, Channel
from replitree.tablet.group.quorum import Ask
from replitree_verify.world.faults import Budget

PENDING, SILENT, UNASKED, NAMED = -1, -2, -3, -4
"""What a column says in the place of a reply.

It may still come; it is not waited for any more; nothing was asked; nothing is asked ever, for an operator has named the member
as one that is away.
"""

Position: TypeAlias = tuple[Any, ...]
"""A seat: `IDLE`, `OVER`, (ASKING, place in `stand`, place in `carry_out`, columns), (LEADING, leader, commits, works).

An operator is a seat that asks as candidates do, in `looking` and `accepting`; when it is asked itself, it is nowhere in
`carry_out`.
"""

IDLE: Position = (0,)
OVER: Position = (3,)
ASKING, LEADING = 1, 2

Waiting: TypeAlias = tuple[int, tuple[int, ...]]
"""A place in `carry_out` and the columns of what it asked."""


class TabletState(NamedTuple):
    """A state.

    Attributes
    ----------
    held
        The number of what each member holds.
    absent
        The members that are away.
    seats
        Where each candidate is.
    late
        (member, request) of late messages: no seat waits for the answer.
    acked
        (generation, step) that clients have heard to be committed.
    elected
        (generation, the places that it accepted), in the order in which zero entries were stored.
    left
        Faults that are left.
    """

    held: tuple[int, ...]
    absent: tuple[int, ...]
    seats: tuple[Position, ...]
    late: tuple[tuple[int, int], ...]
    acked: tuple[tuple[int, int], ...]
    elected: tuple[tuple[int, tuple[tuple[int, int], ...]], ...]
    left: Budget

    @property
    def key(self) -> int:
        """The fingerprint by which a search remembers it: 64 bits, the same in every run."""
        # Integers, and tuples of them: their hash depends on no seed.
        return hash(self)


class Work(NamedTuple):
    """What a leader waits for: a blob that is to be stored, or one of the two things below, which have ids of no blob.

    `carry`, `columns`: as of a seat that asks.  `seen`: what clients had heard when a read began.
    """

    blob: BlobId
    carry: int
    columns: tuple[int, ...]
    seen: tuple[tuple[int, int], ...] = ()


Told: TypeAlias = tuple[object, ...]

COLLECTING, READING = Channel(254), Channel(255)


class Loss(NamedTuple):
    """What an operator has accepted: `agreed`, as it was shown; `asked`: what each member holds that was not named as away."""

    agreed: Assessment
    asked: tuple[int, ...]


class Move(NamedTuple):
    """What happened, for people and for the invariants.

    `told`: the parts of the text, which few moves are asked for.  `is_asked`: whether it is a client's wish; `committed`: the
    steps that clients heard of; `election`: how a candidate or an operator ended; `probes`: rare branches that were taken;
    `read`: what clients had heard when a read began, and what it showed; `loss`: what an operator gave up by its election.
    """

    told: Told
    committed: tuple[tuple[int, int], ...] = ()
    election: Won | NotElected | None = None
    probes: tuple[str, ...] = ()
    is_asked: bool = False
    read: tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]] | None = None
    loss: Loss | None = None

    @override
    def __str__(self) -> str:
        """Return what happened, for people."""
        # Only here: most moves are never told, and their texts would cost more than their states.
        return "".join(str(part) for part in self.told)


Found: TypeAlias = tuple[TabletState, Move]


def questions(position: Position) -> list[Waiting]:
    """Return what a seat has asked and waits for: place in `carry_out`, columns."""
    if position[0] == ASKING:
        return [(position[2], position[3])]
    return [(work.carry, work.columns) for work in position[3]] if position[0] == LEADING else []


def columns_of(ask: Ask, before: tuple[int, ...] = ()) -> tuple[int, ...]:
    """Return the columns of a question that was just asked; who was named before is not asked."""
    asked = tuple(UNASKED if request is None else PENDING for request in ask.requests)
    return tuple(NAMED if old == NAMED else new for new, old in zip(asked, before, strict=True)) if before else asked


def replaced(values: tuple[int, ...], index: int, value: int) -> tuple[int, ...]:
    """Return values with one of them replaced."""
    return (*values[:index], value, *values[index + 1 :])


def with_seat(state: TabletState, seat: int, position: Position) -> TabletState:
    """Return a state with a seat at another position."""
    return state._replace(seats=(*state.seats[:seat], position, *state.seats[seat + 1 :]))
