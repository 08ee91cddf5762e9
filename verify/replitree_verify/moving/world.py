"""What is in a model of parts that move: coordination, the store, replicas with disks and memory, threads, what is on its way.

A replica is one process with several threads; a crash ends them all.  A share has `PIECES` objects.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from itertools import count
from typing import Any, NamedTuple

from replitree.coordination.tree import Tree
from replitree.protocol.core.effects import Epoch
from replitree.protocol.shares.share import ShareId
from replitree_verify.world.faults import NO_FAULTS, Budget, Fault, spent
from replitree_verify.world.kernel import END

PART = "all_0_0_0"
PIECES = 2
TRIES = 2
"""How often a part is moved at the most, in one process."""


@dataclass(frozen=True, slots=True)
class Task:
    """What a thread does next.

    Attributes
    ----------
    stage, arguments
        With what it begins.
    to_store, tries
        Where a mover brings the part, and how often it tries that; None for all other threads.
    """

    stage: Callable[..., Any]
    arguments: tuple[Any, ...]
    to_store: bool | None = None
    tries: int = TRIES


@dataclass(frozen=True, slots=True)
class Model:
    """A world to search.

    Attributes
    ----------
    name, description
        For people.
    threads
        What each thread does, one task after another, by the replica's name and the thread's; an entry that drops the part is
        in the queue of each replica that executes it.
    faults
        How many of each kind.
    shared
        The replicas that own the share of the part at the beginning; the others have its rows on their disks.
    is_once
        Whether the part ends in one share at most, however many replicas move it.
    breaking
        The replicas whose processes may crash, lose answers or read old values, and whose sessions may end.
    is_borrowing
        Whether the part that is shared at the beginning borrows of another share, too.
    differing
        The replicas that wrote files of their own for the part's rows, other than those of all others.
    """

    name: str
    description: str
    threads: dict[tuple[str, str], tuple[Task, ...]]
    faults: dict[Fault, int]
    shared: tuple[str, ...] = ()
    is_once: bool = False
    breaking: tuple[str, ...] = ("r1", "r2")
    is_borrowing: bool = False
    differing: tuple[str, ...] = ()

    @property
    def replicas(self) -> tuple[str, ...]:
        """Names of the replicas, in order."""
        return tuple(dict.fromkeys(replica for replica, _ in self.threads))


LENDS = "<"
"""Before the name of the share that a part borrows of, in the name of its own share."""


def shares_in(own: ShareId) -> tuple[ShareId, ...]:
    """Return all shares of a part, of its own one's name: its manifest names the others, too.

    >>> shares_in(ShareId("s0<b0"))
    ('s0<b0', 'b0')
    """
    return own, *map(ShareId, own.split(LENDS)[1:])


WRITTEN_BY = ":"
"""Between the name of a share and the replica that wrote its files, where not all replicas have the same files."""


def files_of(share: ShareId) -> str:
    """Return which replica wrote the files of a share; empty: they are those that all but `Model.differing` have.

    >>> files_of(ShareId("r2-0:r2")), files_of(ShareId("r1-0"))
    ('r2', '')
    """
    return share.partition(WRITTEN_BY)[2]


class Note(NamedTuple):
    """What is to be let go of unless the part has it; `number` tells its folder from others of the same."""

    part: str
    share: ShareId
    number: int


@dataclass(frozen=True, slots=True)
class Disk:
    """What survives a crash.

    Attributes
    ----------
    parts
        Published parts, each with the share that its manifest names, or None: its rows are here.
    rows
        Parts all of whose files are here, synced.
    notes
        Part, share and number of what is to be let go of unless the part has it: each in a folder of its own.
    written
        Which replica wrote the files that are here, where not all replicas have the same files; empty elsewhere.
    """

    parts: tuple[tuple[str, ShareId | None], ...] = ()
    rows: frozenset[str] = frozenset()
    notes: frozenset[Note] = frozenset()
    written: str = ""

    def has(self, part: str) -> bool:
        """Whether a part is published here."""
        return part in dict(self.parts)

    def share_of(self, part: str) -> ShareId | None:
        """Return the share that a part's manifest names."""
        return dict(self.parts).get(part)

    def with_part(self, part: str, share: ShareId | None) -> Disk:
        """Publish a part, or let its manifest say something else."""
        return replace(self, parts=tuple(sorted({**dict(self.parts), part: share}.items())))

    def without_part(self, part: str) -> Disk:
        """Remove a part; its share is still to be let go of."""
        share = self.share_of(part)
        rest = replace(self, parts=tuple(each for each in self.parts if each[0] != part), rows=self.rows - {part})
        return rest if share is None else rest.noted(part, share)

    def noted(self, part: str, share: ShareId) -> Disk:
        """Note that something is to be let go of."""
        number = next(number for number in count() if Note(part, share, number) not in self.notes)
        return replace(self, notes=self.notes | {Note(part, share, number)})


class Drop(Enum):
    """Where the log entry that drops the part stands in the memory of a process.

    `UNKNOWN`: the process has not loaded its state yet.  `OVER`: its queue does not have the entry.  `GONE`: the entry is
    running and has left the queue meanwhile.  `WAITS`: it is executed again when the state was loaded again.
    """

    UNKNOWN = "unknown"
    OVER = "over"
    QUEUED = "queued"
    RUNNING = "running"
    GONE = "gone"
    WAITS = "waits"

    @property
    def is_running(self) -> bool:
        """Whether an executor has it."""
        return self in (Drop.RUNNING, Drop.GONE)

    def loaded(self, *, is_queued: bool) -> Drop:
        """Return where the entry stands after a state was loaded in which the queue has it, or does not."""
        if self.is_running:
            return Drop.RUNNING if is_queued else Drop.GONE
        return Drop.QUEUED if is_queued else Drop.OVER

    def given_back(self, *, is_done: bool, is_postponed: bool) -> Drop:
        """Return where the entry stands when its executor has ended."""
        if is_done or self is Drop.GONE:
            return Drop.OVER
        return Drop.WAITS if is_postponed else Drop.QUEUED


@dataclass(frozen=True, slots=True)
class Process:
    """What a crash of a replica takes away.

    Attributes
    ----------
    epoch, is_active, is_troubled
        The epoch that it knows, whether it may act, and whether there was trouble since its activation began.
    drop, reloads
        Where the entry stands that drops the part, and whether the puller is to load the state again.
    loading
        Threads that are loading the state, no part having been shown or hidden since they began.
    moving, doubtful
        Shares whose notes are not worked off: of running moves, and of those that ended in doubt.
    hidden
        Parts that reads are not shown, because they were broken.
    session
        How many sessions it, and those before it, have had before this one.
    """

    epoch: Epoch | None = None
    is_active: bool = False
    is_troubled: bool = False
    drop: Drop = Drop.UNKNOWN
    reloads: bool = False
    loading: frozenset[str] = frozenset()
    moving: frozenset[ShareId] = frozenset()
    doubtful: frozenset[ShareId] = frozenset()
    hidden: frozenset[str] = frozenset()
    session: int = 0

    def in_trouble(self) -> Process:
        """Be read-only until the next activation ends."""
        return replace(self, is_active=False, is_troubled=True)


@dataclass(frozen=True, slots=True)
class Machine:
    """A replica: its disk, its process, and how many shares it ever named."""

    disk: Disk
    process: Process
    named: int = 0


@dataclass(frozen=True, slots=True)
class Thread:
    """Where a thread stands: which task, the place in it, and what it reads if that is old.

    A mover's has made so many `moves` for the task, and waits until no replica claims the part if the last one `is_refused`.
    """

    task: int = 0
    place: int = END
    view: Tree | None = None
    moves: int = 0
    is_refused: bool = False

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells threads apart."""
        return self.task, self.place, self.moves, self.is_refused, None if self.view is None else hash(self.view)


@dataclass(frozen=True, slots=True)
class World:
    """One moment.

    Attributes
    ----------
    tree, objects
        Coordination, and what is in the store.
    machines, threads
        In the order of the model's; the cleaner's thread is the last one.
    late
        Requests that are on their way: commits, puts and deletes, each with the session that sent it.
    budget
        Faults that are left.
    stray
        Shares whose objects may come late.
    """

    tree: Tree
    objects: frozenset[tuple[ShareId, int]]
    machines: tuple[Machine, ...]
    threads: tuple[Thread, ...]
    late: tuple[tuple[int, Any], ...] = ()
    budget: Budget = NO_FAULTS
    stray: frozenset[ShareId] = frozenset()

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells worlds apart."""
        threads = tuple(thread.key for thread in self.threads)
        return hash(self.tree), self.objects, self.machines, threads, self.late, self.budget, self.stray

    def with_thread(self, number: int, thread: Thread) -> World:
        """Return the world with another thread."""
        return replace(self, threads=(*self.threads[:number], thread, *self.threads[number + 1 :]))

    def with_machine(self, number: int, machine: Machine) -> World:
        """Return the world with another replica."""
        return replace(self, machines=(*self.machines[:number], machine, *self.machines[number + 1 :]))

    def spend(self, fault: Fault) -> World | None:
        """Take one fault from the budget; None when there is none left."""
        left = spent(self.budget, fault)
        return None if left is None else replace(self, budget=left)

    def sent(self, session: int, request: Any) -> World:
        """Let a request be on its way."""
        return replace(self, late=tuple(sorted((*self.late, (session, request)), key=repr)))

    def is_whole(self, share: ShareId) -> bool:
        """Whether all objects of a share are there."""
        return all((share, piece) in self.objects for piece in range(PIECES))


__all__ = [
    "LENDS",
    "PART",
    "PIECES",
    "WRITTEN_BY",
    "Disk",
    "Drop",
    "Machine",
    "Model",
    "Note",
    "Process",
    "Task",
    "Thread",
    "World",
    "files_of",
    "shares_in",
]
