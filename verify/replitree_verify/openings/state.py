"""What a state of a model of openings is made of: plain values."""

from __future__ import annotations

from typing import NamedTuple

from replitree_verify.world.faults import Budget, Fault, spent
from replitree_verify.world.kernel import END

IDLE = -1
"""The place of a process that has not begun."""

NOT_OPEN = -1

Column = tuple[int, ...]
"""What became of one member's question: (UNASKED,), (SENT, message, place in `ask_admitted`), (HEARD, reply), (TOLD, place)."""

UNASKED, SENT, HEARD, TOLD = 0, 1, 2, 3
"""`TOLD`: that the group was opened again; who asked is to look how all stand, one at a time."""


class Looking(NamedTuple):
    """A process looks how all members stand: for which column, where in `look_again`, and the columns of that."""

    column: int
    place: int
    columns: tuple[Column, ...]


class Position(NamedTuple):
    """Where a process stands.

    Attributes
    ----------
    place
        In its life.
    opening
        The number of the `Opening` that it has; `NOT_OPEN`.
    is_new
        Whether it has read the group's file when that named the new member.
    columns
        What became of what it asked.
    looking
        The process that looks again; at most one.
    """

    place: int = IDLE
    opening: int = NOT_OPEN
    is_new: bool = False
    columns: tuple[Column, ...] = ()
    looking: Looking | None = None

    @property
    def is_over(self) -> bool:
        """Whether it does nothing more."""
        return self.place == END


class GroupState(NamedTuple):
    """A state.

    Attributes
    ----------
    places
        The number of what each member is; the new one is the last.
    forgot
        The members that have lost a blob or a fence that they had said to have.
    away
        The member that is away; -1: none.
    is_named
        Whether the group's file names the new member.
    seats
        Where each process stands; the operator is the last.
    late
        (member, message) that arrive late: no process waits for the answer.
    acked, fenced, found
        The seats whose blobs were acknowledged; those whose fence held; for each seat that has read everything, whose blobs it
        found, else None.
    ended
        The last session of an opening that has ended with member 0.
    copy
        The copy of member 0; -1: none was made yet.
    left
        Faults that are left.
    wrong
        What is wrong with how it came to this state; empty when nothing is.
    """

    places: tuple[int, ...]
    forgot: tuple[int, ...]
    away: int
    is_named: bool
    seats: tuple[Position, ...]
    late: tuple[tuple[int, int], ...]
    acked: tuple[int, ...]
    fenced: tuple[int, ...]
    found: tuple[tuple[int, ...] | None, ...]
    ended: int
    copy: int
    left: Budget
    wrong: str = ""

    @property
    def key(self) -> GroupState:
        """What tells it apart."""
        return self

    def spend(self, fault: Fault) -> GroupState | None:
        """Take one fault from those that are left; None when there is none."""
        left = spent(self.left, fault)
        return None if left is None else self._replace(left=left)
