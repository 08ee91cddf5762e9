"""What is in a model of tables on an object store: coordination, the store, disks and processes, what is on its way.

A share has `PIECES` objects, of which a crash or a lost answer may leave any number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from replitree.coordination.tree import Tree
from replitree.protocol.core.effects import Epoch, StagingId
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.shares.share import ShareId
from replitree.protocol.shares.share_effects import Sharer
from replitree_verify.world.faults import NO_FAULTS, Budget, Fault, spent
from replitree_verify.world.kernel import END

PIECES = 2
SESSION = 1
ME = b"here"
"""What the processes of a replica write into `host`: each knows that those before it have ended."""
CLEANER = "cleaner"
"""The seat that works the garbage off whenever there is some."""
WRITTEN = b"1"
"""The log pointer of a replica that has pulled the entry of the part that is there at the beginning."""

TABLE = TablePlace("/t")
INCARNATION = "i1"
STORE_ID = "s1"
STAGING = StagingId("staged")
CONTENT = "c1"


def replica_of(name: str) -> Replica:
    """Return a replica of the models' table."""
    return Replica(TABLE, name)


def sharer_of(name: str) -> Sharer:
    """Return who a replica is to coordination."""
    return Sharer(replica_of(name), INCARNATION)


Task = tuple[Callable[..., Any], tuple[Any, ...]]
Shares = tuple[ShareId, ...]
"""What a part has: its own share, then those that it borrows of."""


@dataclass(frozen=True, slots=True)
class Model:
    """A world to search.

    Attributes
    ----------
    name, description
        For people.
    tasks
        What each seat's processes do, one after another, by the seat's name; a replica's is its name.
    faults
        How many of each kind.
    replicas
        Those that exist at the beginning.
    written
        The part that the first replica has registered by then, alone; empty: nothing is written.
    store
        Id of the store, as coordination has it at the beginning; empty: the table has none yet.
    struck
        Seats whose processes may be killed, whose answers may be lost, and whose sessions may end; empty: all.
    """

    name: str
    description: str
    tasks: dict[str, tuple[Task, ...]]
    faults: dict[Fault, int]
    replicas: tuple[str, ...] = ("r1", "r2")
    written: str = ""
    store: bytes = STORE_ID.encode()
    struck: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Disk:
    """What survives a crash: published parts and their shares (none: the rows are here), what is staged, what has left.

    What is staged has its own share, or None before that is put, and those that it borrows of.
    """

    parts: tuple[tuple[str, Shares], ...] = ()
    staged: tuple[ShareId | None, ...] = ()
    leaving: tuple[tuple[str, Shares], ...] = ()

    def has(self, part: str) -> bool:
        """Whether a part is published here."""
        return part in dict(self.parts)

    def shares_of(self, part: str) -> Shares:
        """Return the shares of a published part; none when it is not there."""
        return dict(self.parts).get(part, ())

    @property
    def staged_shares(self) -> Shares:
        """What the folder of what is staged says that it has: nothing before its own share was put."""
        own = self.staged[:1]
        return tuple(share for share in self.staged if share is not None) if own != (None,) else ()

    @property
    def shares(self) -> Shares:
        """All shares that something here has, ascending."""
        here = {share for _, shares in (*self.parts, *self.leaving) for share in shares}
        return tuple(sorted(here.union(self.staged_shares)))

    def with_part(self, part: str, shares: Shares) -> Disk:
        """Publish a part; one that is there stays."""
        found = {part: shares, **dict(self.parts)}
        return replace(self, parts=tuple(sorted(found.items())))

    def without_part(self, part: str) -> Disk:
        """Remove a part and leave nothing of it."""
        return replace(self, parts=tuple(each for each in self.parts if each[0] != part))

    def left(self, part: str, shares: Shares) -> Disk:
        """Note something that has left and is to be let go of."""
        return replace(self, leaving=tuple(sorted({*self.leaving, (part, shares)})))


@dataclass(frozen=True, slots=True)
class Seat:
    """Where the processes of one replica run: which task, the place in it, their memory, what is read from; and the disk.

    `waiting` is the place of a task that goes on when the process is active: meanwhile the life thread is at `place`.
    `in_trouble`: the process must activate, for the first time or again.  `named` is the share that was given to what is
    staged, `new` what this process has written and not registered, `shown` the parts that reads may see; `count` how many
    shares were ever named here: a name is used once.
    """

    task: int = 0
    place: int = END
    waiting: int = END
    in_trouble: bool = True
    view: Tree | None = None
    epoch: Epoch | None = None
    named: ShareId | None = None
    new: frozenset[ShareId] = frozenset()
    shown: frozenset[str] = frozenset()
    count: int = 0
    disk: Disk = Disk()

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells seats apart."""
        view = None if self.view is None else hash(self.view)
        place = self.task, self.place, self.waiting, self.in_trouble
        return *place, view, self.epoch, self.named, self.new, self.shown, self.count, self.disk

    @property
    def is_active(self) -> bool:
        """Whether the process is active."""
        return self.waiting == END and not self.in_trouble


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
    stray
        Shares of which a put was on its way when its process stopped to wait, or whose replica was dropped: their objects may
        come when no process knows them.
    """

    tree: Tree
    objects: frozenset[tuple[ShareId, int]]
    seats: tuple[Seat, ...]
    late: tuple[Any, ...] = ()
    budget: Budget = NO_FAULTS
    stray: frozenset[ShareId] = frozenset()

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells worlds apart."""
        seats = tuple(seat.key for seat in self.seats)
        return hash(self.tree), self.objects, seats, self.late, self.budget, self.stray

    def with_seat(self, number: int, seat: Seat) -> World:
        """Return the world with another seat."""
        seats = list(self.seats)
        seats[number] = seat
        return replace(self, seats=tuple(seats))

    def with_disk(self, number: int, disk: Disk) -> World:
        """Return the world with another disk of a seat."""
        return self.with_seat(number, replace(self.seats[number], disk=disk))

    def spend(self, fault: Fault) -> World | None:
        """Take one fault from the budget; None when there is none left."""
        left = spent(self.budget, fault)
        return None if left is None else replace(self, budget=left)

    def sent(self, request: Any) -> World:
        """Let a request be on its way."""
        return replace(self, late=tuple(sorted((*self.late, request), key=repr)))

    def is_whole(self, share: ShareId) -> bool:
        """Whether all objects of a share are there."""
        return all((share, piece) in self.objects for piece in range(PIECES))


__all__ = [
    "CLEANER",
    "CONTENT",
    "INCARNATION",
    "ME",
    "PIECES",
    "SESSION",
    "STAGING",
    "STORE_ID",
    "TABLE",
    "WRITTEN",
    "Disk",
    "Model",
    "Seat",
    "Shares",
    "Task",
    "World",
    "replica_of",
    "sharer_of",
]
