"""What is in a model of replicas that join again: coordination, processes with disks of their own, and what is on its way.

All processes but the operator's act for the replica `NAME`, each with another disk.  A *life* is the time from one joining of
the replica to its drop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from replitree.coordination.tree import Tree
from replitree.protocol.core import effects as fx
from replitree.protocol.core.effects import Epoch, LogIndex
from replitree.protocol.core.entries import GetEntry
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.shares.share import ShareId
from replitree_verify.world.faults import NO_FAULTS, Budget, Fault, spent
from replitree_verify.world.kernel import END

OPERATOR = "operator"
"""The seat that drops the replica, or makes the table anew."""
HELPER = "helper"
"""The seat that helps to drop the table."""

TABLE = TablePlace("/t", incarnation="a")
ONE, OTHER = Replica(TABLE, "r1"), Replica(TABLE, "r2")
"""The replica that is dropped and joins again, and another one, which is good."""
LATER = "later"
"""The seat of the replica in the table that is made anew: by the process of the first seat, which hosts both of them."""
REMADE = TablePlace(TABLE.path, incarnation="b")
"""The table that is made anew."""
STORE_ID = "store"

PART, CONTENT = "all_0_0_0", "c1"
SHARE = ShareId("s1")
PULLED = LogIndex(0)
INSERT = GetEntry(
    OTHER.name, fx.StagingId("open"), (fx.StagedPart("all", 1, 1, CONTENT),), (fx.BlockId("o"),), format=3, quorum=4
)
"""An insert of the other replica with a quorum, and its place in the log: the replica has it in its queue."""


def is_remade(tree: Tree) -> bool:
    """Whether the table that is there is the one that was made anew."""
    made = tree.get(TABLE.path)
    return made is not None and made.value == REMADE.incarnation.encode()


def replica_of(name: str) -> Replica:
    """Return the replica that a seat acts for."""
    return Replica(REMADE, ONE.name) if name == LATER else ONE


def me_of(name: str) -> bytes:
    """Return what a process writes into `host`."""
    return b"old" if name == LATER else name.encode()


Task = tuple[Callable[..., Any], tuple[Any, ...]]
Disk = tuple[tuple[str, ShareId], ...]
"""The parts of a disk, each with its share."""


@dataclass(frozen=True, slots=True)
class Model:
    """A world to search.

    Attributes
    ----------
    name, description
        For people.
    tasks
        What each seat does, one after another, by the seat's name.
    is_joined
        Whether the process of the first seat is the replica at the beginning; otherwise no process is.
    had
        How often the name was activated before all that, by a replica that was dropped.
    has_log
        Whether the table has a log entry, as another one of its name may have.
    is_lost
        Whether coordination has lost everything since the first seat's process became the replica.
    is_marked
        Whether the first seat's process has let the part go, and not yet its share.
    counted
        The replicas that are counted for the insert, whose quorum is open; none: it was reached before.
    faults
        How many of each kind; a process does not notice that its session ends.
    """

    name: str
    description: str
    tasks: dict[str, tuple[Task, ...]]
    is_joined: bool = False
    had: int = 0
    has_log: bool = False
    is_lost: bool = False
    is_marked: bool = False
    counted: tuple[str, ...] = ()
    faults: dict[Fault, int] = field(default_factory=lambda: {Fault.EXPIRY: 1})


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a process stands.

    Attributes
    ----------
    task, place
        Which of its tasks, and where in it.
    session
        How many sessions it has had.
    epoch, life
        The epoch that it has, and the life of the replica in which it took it.
    incarnation
        Which replica of its name it is, as it has found out with its epoch.
    disk, leaving
        What is on its disk, and what has left it and is to be let go of.
    """

    task: int = 0
    place: int = END
    session: int = 0
    epoch: Epoch | None = None
    life: int = 0
    incarnation: str = ""
    disk: Disk = ()
    leaving: Disk = ()


@dataclass(frozen=True, slots=True)
class World:
    """One moment.

    Attributes
    ----------
    tree
        Coordination.
    seats
        In the order of the model's.
    life
        How often the replica has joined.
    late
        Commits that are on their way: seat, session, operations.
    budget
        Faults that are left.
    changed
        What was changed by processes of earlier lives.
    """

    tree: Tree
    seats: tuple[Seat, ...]
    life: int = 0
    late: tuple[tuple[int, Any], ...] = ()
    budget: Budget = NO_FAULTS
    changed: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells worlds apart."""
        return hash(self.tree), self.seats, self.life, self.late, self.budget, self.changed

    def with_seat(self, number: int, seat: Seat) -> World:
        """Return the world with another seat."""
        return replace(self, seats=(*self.seats[:number], seat, *self.seats[number + 1 :]))

    def spend(self, fault: Fault) -> World | None:
        """Take one fault from the budget; None when there is none left."""
        left = spent(self.budget, fault)
        return None if left is None else replace(self, budget=left)


__all__ = [
    "CONTENT",
    "HELPER",
    "INSERT",
    "LATER",
    "ONE",
    "OPERATOR",
    "OTHER",
    "PART",
    "PULLED",
    "REMADE",
    "SHARE",
    "STORE_ID",
    "TABLE",
    "Disk",
    "Model",
    "Seat",
    "Task",
    "World",
    "is_remade",
    "me_of",
    "replica_of",
]
