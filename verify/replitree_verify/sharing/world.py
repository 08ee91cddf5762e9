"""What is: coordination, the object store, disks, processes, requests that are still on their way.

A share has `PIECES` objects, of which a crash or a lost answer may leave any number.  What may happen next: `scene`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from replitree.coordination.tree import Tree
from replitree.protocol.core.effects import Epoch
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.shares.share import ShareId
from replitree.protocol.state.registration import content_of
from replitree_verify.world.faults import NO_FAULTS, Budget, Fault, spent
from replitree_verify.world.kernel import END, Stage

TABLE = TablePlace("/t")
INCARNATION = "i1"
STORE_ID = "store"
PIECES = 2
CLEANER = "cleaner"
"""The seat that works the garbage off whenever there is some."""

FSCK = "fsck"
"""The seat that runs fsck."""

UNANSWERED = "no answer"
"""What is said of objects that the store did not tell of."""

Task = tuple[Stage, tuple[Any, ...]]


def replica_of(name: str) -> Replica:
    """Return a replica of the models' table."""
    return Replica(TABLE, name)


def shares_in(value: bytes) -> tuple[ShareId, ...]:
    """Return the shares of a registered part; the models' registrations name them."""
    return tuple(ShareId(name) for name in content_of(value).split())


@dataclass(frozen=True, slots=True)
class Model:
    """A world to search.

    Attributes
    ----------
    name, description
        For people.
    tasks
        What each seat's processes do, one after another, by the seat's name.
        A process acts for the replica of its seat's name, which is active at the beginning.
    faults
        How many of each kind.
    replicas
        Those that exist at the beginning.
    nodes, objects, disks
        What is there at the beginning: nodes with their values, objects, and (replica, part, share) on disks.
    damage
        Nodes that should not be there, with their values; `violations` overlooks them, and fsck has to end them.
    rivals
        Seats whose processes act for the replica of another name: the session of the process that is active there has ended,
        and that process has not noticed it.
    """

    name: str
    description: str
    tasks: dict[str, tuple[Task, ...]]
    faults: dict[Fault, int]
    replicas: tuple[str, ...] = ("r1", "r2")
    nodes: Mapping[str, bytes] = field(default_factory=dict)
    objects: frozenset[tuple[ShareId, int]] = frozenset()
    disks: frozenset[tuple[str, str, str]] = frozenset()
    damage: Mapping[str, bytes] = field(default_factory=dict)
    rivals: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Seat:
    """Where the processes of one replica run.

    Attributes
    ----------
    replica
        The replica that they act for; empty: operators, tasks and the cleaner act for none.
    task, attempt, place
        Which task, how many processes have ended, and the place in the task.
    epoch
        Under which the process is active, as far as it knows.
    is_activating, has_trouble
        Whether the place is one of the life thread's, before the task; whether that is to be run again when the place is over.
    """

    replica: str = ""
    task: int = 0
    attempt: int = 0
    place: int = END
    epoch: Epoch | None = None
    is_activating: bool = False
    has_trouble: bool = False

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells seats apart that act for one replica."""
        return self.task, self.attempt, self.place, self.epoch, self.is_activating, self.has_trouble


@dataclass(frozen=True, slots=True)
class World:
    """One moment.

    Attributes
    ----------
    tree, objects
        Coordination, and what is in the store.
    seats
        In the order of the model's.
    late
        Requests that are on their way: commits, puts and deletes.
    budget
        Faults that are left.
    owned
        Shares that ever had a node.
    young
        Shares of which something was begun since the grace passed last.
    disks
        (replica, part, share) of what is on disks, or in memory for a disk (`handed`); an upload has no part.
    damage
        Paths of nodes that were there at the beginning and should not be.
    handed
        (replica, share) of uploads that the disk has forgotten and that are not staged yet: only the process has them.
    heard
        Shares of which clients have heard the names.
    broken
        What a process has done or said that it must not.
    """

    tree: Tree
    objects: frozenset[tuple[ShareId, int]]
    seats: tuple[Seat, ...]
    late: tuple[Any, ...] = ()
    budget: Budget = NO_FAULTS
    owned: frozenset[str] = frozenset()
    young: frozenset[str] = frozenset()
    disks: frozenset[tuple[str, str, str]] = frozenset()
    damage: frozenset[str] = frozenset()
    handed: frozenset[tuple[str, ShareId]] = frozenset()
    heard: frozenset[ShareId] = frozenset()
    broken: str = ""

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells worlds apart."""
        seats = tuple(seat.key for seat in self.seats)
        more = self.young, self.disks, self.damage, self.handed, self.heard, self.broken
        return hash(self.tree), self.objects, seats, self.late, self.budget, self.owned, more


Step = tuple[str, World]


def spend(world: World, fault: Fault) -> World | None:
    """Take one fault from the budget; None when there is none left."""
    left = spent(world.budget, fault)
    return None if left is None else replace(world, budget=left)


__all__ = [
    "CLEANER",
    "FSCK",
    "INCARNATION",
    "PIECES",
    "STORE_ID",
    "TABLE",
    "UNANSWERED",
    "Model",
    "Seat",
    "Step",
    "Task",
    "World",
    "replica_of",
    "shares_in",
    "spend",
]
