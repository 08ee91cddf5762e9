"""Kinds of faults, and how many of each kind may still happen: the one budget of all models.

A budget is an integer with a few bits for each kind, so a state that has one hashes and compares at the cost of an integer.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NewType

Budget = NewType("Budget", int)
"""How many faults of each kind are left, packed: a few bits for each kind."""

NO_FAULTS = Budget(0)

# Four bits count, and the fifth is the guard (`GUARDS`).
_BITS = 5


class Fault(Enum):
    """Kinds of faults, each with its place in a budget.

    `CRASH`: a process loses its memory and what it has not synced, at any moment, also within an effect on its disk or a
    request to the store.  `UNKNOWN`: the answer to a commit, or of a member of a blob group, is lost; the request took place,
    or is still on its way.  `STALE`: a session's view stays behind until it syncs or commits.  `EXPIRY`: a session ends; its
    process goes on with another one.  `CLOSED`: a read can't be had.  `DISK`: a disk takes no more.  `FETCH`: a part can't be
    fetched now.  `DIFFERS`: a merge or a mutation gives other bytes than elsewhere.  `DEPOSED`: a leader of coordination that
    was replaced answers a `Sync`, so that the session's view stays behind.  `STORE`: an answer of the object store is lost.
    `SILENT`: a replica does not answer, or a member of a blob group does not until it is back.  `ROT`: a copy of a blob
    becomes unreadable.  `SWAP`: an old copy takes the place of what a member has.

    Attributes
    ----------
    cost
        One fault of this kind.
    mask
        All faults of this kind that are in a budget: ``budget & fault.mask`` is 0 when none is left.
    """

    CRASH = 0
    UNKNOWN = 1
    STALE = 2
    EXPIRY = 3
    CLOSED = 4
    DISK = 5
    FETCH = 6
    DIFFERS = 7
    DEPOSED = 8
    STORE = 9
    SILENT = 10
    ROT = 11
    SWAP = 12

    cost: Budget
    mask: int

    __hash__ = object.__hash__  # `Enum`'s is a Python function, and the explorer asks for faults in every state

    def __init__(self, place: int) -> None:
        self.cost = Budget(1 << (_BITS * place))
        # Without the guard, which is no part of the count.
        self.mask = self.cost * ((1 << (_BITS - 1)) - 1)


GUARDS = sum(1 << (_BITS * fault.value + _BITS - 1) for fault in Fault)
"""The highest bit of each kind: stays set as long as no more is taken than there is."""


def budget_of(faults: Mapping[Fault, int]) -> Budget:
    """Pack a budget.

    >>> budget_of({Fault.CRASH: 2, Fault.UNKNOWN: 1}) == 2 * Fault.CRASH.cost + Fault.UNKNOWN.cost
    True
    """
    assert all(0 <= count < 1 << (_BITS - 1) for count in faults.values())
    return Budget(sum(fault.cost * count for fault, count in faults.items()))


def remaining(budget: Budget, fault: Fault) -> int:
    """Return how many faults of a kind are left.

    >>> remaining(budget_of({Fault.CRASH: 2, Fault.UNKNOWN: 1}), Fault.CRASH)
    2
    """
    return (budget & fault.mask) // fault.cost


def spent(budget: Budget, fault: Fault) -> Budget | None:
    """Take one fault of a kind from a budget; None when there is none left.

    >>> one = budget_of({Fault.STORE: 1})
    >>> spent(one, Fault.STORE), spent(one, Fault.CRASH)
    (0, None)
    """
    # A kind of which some are left borrows no bit of the kind above it.
    return Budget(budget - fault.cost) if budget & fault.mask else None
