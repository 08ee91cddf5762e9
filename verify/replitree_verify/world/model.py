"""What is to be explored: replicas, processes, requests, and how many faults of each kind.

A *seat* is a place where processes of one replica run one after another: when one dies the next begins there, with the
same disk and another `me`.  A second seat of a replica is a rival: a process that starts while the first may still be
there.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from replitree.protocol.core.effects import EntryId
from replitree.protocol.core.entries import Command, MutateEntry, Unchanged
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.streams import StreamBatch
from replitree.protocol.state.read import ReadLevel
from replitree_verify.world.faults import Fault
from replitree_verify.world.moves import Place

TABLE = TablePlace("/t")
REMADE = TablePlace(TABLE.path, incarnation="b")
"""The table that is made anew in the place of the first one, under its name."""


@dataclass(frozen=True, slots=True)
class Insert:
    """A group of requests that clients send to one seat, each (number, token).

    `drops`: the partitions that it replaces; `quorum`: how many replicas must have the rows; `uploaded`: whether a client puts
    the objects of the rows into the store by itself; `batch`: the batch of a stream that its only request is, which has the
    token ``<stream>.<batch>``; `takes_over`: whether it may replace another query.
    """

    seat: str
    requests: tuple[tuple[int, str], ...]
    drops: tuple[str, ...] = ()
    quorum: int = 0
    uploaded: bool = False
    batch: StreamBatch | None = None
    takes_over: bool = False


@dataclass(frozen=True, slots=True)
class Ask:
    """A command (mutate, drop, alter) that a client sends to one seat, and the number of its request."""

    seat: str
    request: int
    command: Command


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A rewrite that a client sends to one seat: what it has made of parts that it has read, and the number of its request.

    Attributes
    ----------
    results, inserts
        The content of what takes the place of each source, and of new parts by partition.  A row that was in a source has
        the rewrite's id behind it, in its result or in a new part: it was changed, or belongs elsewhere now.
    unchanged
        What it relies on besides.
    """

    seat: str
    request: int
    id: EntryId
    results: tuple[tuple[str, str], ...]
    inserts: tuple[tuple[str, str], ...] = ()
    unchanged: Unchanged | None = None


@dataclass(frozen=True, slots=True)
class Proposal:
    """A merge that a seat's leader proposes as soon as the sources are in its table."""

    seat: str
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Kill:
    """A mutation that a client kills at one seat."""

    seat: str
    mutation: str


@dataclass(frozen=True, slots=True)
class Read:
    """A read that a client asks of one seat, after it has its answers to the requests in `known`."""

    seat: str
    number: int
    level: ReadLevel
    known: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Duty:
    """What a seat is asked to do once, beside the requests of clients: its name in `longlife.DUTIES`, and its arguments."""

    seat: str
    name: str
    arguments: tuple[Hashable, ...] = ()


@dataclass(frozen=True, slots=True)
class Mover:
    """A mover of one seat: where parts belong, one place after the other, and how often it tries to move one there."""

    seat: str
    places: tuple[Place, ...]
    tries: int = 2


LOSING = ("break", "heal", "keep", "note", "watch", "lose")
"""The duties that have to do with lost parts (`lost_parts.DUTIES`)."""


@dataclass(frozen=True, slots=True)
class Model:
    """A world to explore.

    Attributes
    ----------
    name, description
        For people.
    seats
        (name of the seat, name of its replica).
    inserts
        What clients send; each group may begin at any moment when its process is active.
    faults
        How many of each kind.
    workers
        The seats whose processes pull and execute; the others only take inserts.
    started
        The seats whose first process has become active before the exploration begins; the others may begin at any moment.
    pull_count
        Log entries pulled at once.
    partitions
        What the rows of every request fall into.
    probes
        What must be seen: a model that never gets there proves nothing.
    commands, rewrites, merges, kills, reads
        What else is asked of the table.
    prelude
        What has happened before the exploration begins, without faults: names of threads that run one after the other as long
        as they can go on; a seat's name stands for its pulling and executing.
    fetchers
        The replicas that never merge or mutate by themselves.
    keepers, candidates
        The seats whose processes forget covered parts while they run, and those that stand for leader.
    resting
        The threads, by name, or all those that work at a seat, that go on in the prelude only, so that one is ahead of others.
    duties
        What else is to be done: the log cleaned, a replica dropped.
    absent
        The replicas that have not joined the table when the exploration begins.
    operators
        The seats of operators: their replica never joins, and they have nothing but duties.
    forgiven
        The replicas that an operator declared good although their entries are gone.
    cleaned_to
        Where the log has to begin when nothing is left to do.
    window
        How many deduplication ids stay, and for how long; without it they have no times.
    ample
        Whether steps that nothing else can meet are taken at once (`ample`), because there are too many states otherwise.
    begins_behind
        Whether a session may begin at a server that lags; always so where there are reads.
    stored
        Whether the parts lie in an object store.
    upkeepers
        Of a table in an object store: the seats whose processes let go of shares and delete garbage.
    own_makers
        Of a table in an object store: the replicas that began to merge when results went to disks: each makes its own.
    movers
        Of such a table: the movers.  Parts are written to where the first of them does not bring them.
    struck
        The seats that a crash, an end of a session or a lagging view may happen to; of a fault that is not named, all.
    machines
        The seats whose processes run on a machine of their own, with another disk and another incarnation than the other seats
        of their replica.
    remade
        The seats whose replica, or whose operator, belongs to the table that is made anew.
    feeds
        Whether the table has a change feed, whose parts stay for ever.
    """

    name: str
    description: str
    seats: tuple[tuple[str, str], ...]
    inserts: tuple[Insert, ...]
    faults: dict[Fault, int]
    workers: tuple[str, ...] = ()
    started: tuple[str, ...] = ()
    pull_count: int = 1
    partitions: tuple[str, ...] = ("all",)
    probes: tuple[str, ...] = ()
    commands: tuple[Ask, ...] = ()
    rewrites: tuple[Rewrite, ...] = ()
    merges: tuple[Proposal, ...] = ()
    kills: tuple[Kill, ...] = ()
    # Threads of inserts are named by their first request; of merges and duties by their place in their list, from 1.
    prelude: tuple[str, ...] = ()
    fetchers: tuple[str, ...] = ()
    keepers: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()
    resting: tuple[str, ...] = ()
    duties: tuple[Duty, ...] = ()
    absent: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    forgiven: tuple[str, ...] = ()
    cleaned_to: int = 0
    window: tuple[int, int] | None = None
    reads: tuple[Read, ...] = ()
    ample: bool = False
    begins_behind: bool = False
    stored: bool = False
    upkeepers: tuple[str, ...] = ()
    own_makers: tuple[str, ...] = ()
    movers: tuple[Mover, ...] = ()
    struck: tuple[tuple[Fault, str], ...] = ()
    machines: tuple[str, ...] = ()
    remade: tuple[str, ...] = ()
    feeds: bool = False

    def can_strike(self, fault: Fault, seat: str) -> bool:
        """Whether a fault may happen to a seat: its process dies, its session ends, its view lags."""
        named = [each for kind, each in self.struck if kind is fault]
        return self.faults.get(fault, 0) > 0 and (not named or seat in named)

    @property
    def writes_to_disks(self) -> bool:
        """Whether parts are written to the disks although the table has an object store."""
        # Parts begin where the first move does not bring them: otherwise it would have nothing to do.
        return bool(self.movers) and self.movers[0].places[0] is Place.STORE

    @property
    def joined(self) -> tuple[str, ...]:
        """The replicas that have joined the table before the exploration begins."""
        away = {*self.absent, *(replica for seat, replica in self.seats if seat in self.operators)}
        return tuple(name for name in self.replicas if name not in away)

    @property
    def is_dropping(self) -> bool:
        """Whether a replica is taken out of the table."""
        return self.is_remaking or any(duty.name in ("drop", "leave") for duty in self.duties)

    @property
    def is_remaking(self) -> bool:
        """Whether the table is dropped, and another one of its name is created."""
        return any(duty.name == "remake" for duty in self.duties)

    @property
    def is_hopeless(self) -> bool:
        """Whether no replica may be good: all are lost from the beginning, or leave because the table is dropped."""
        return self.is_restoring or self.is_remaking or any(duty.name in ("survive", "leave") for duty in self.duties)

    @property
    def is_restoring(self) -> bool:
        """Whether coordination has lost the table, and it is made anew."""
        return any(duty.name == "restore" for duty in self.duties)

    @property
    def keeps_old(self) -> bool:
        """Whether the files of parts that left the table stay until they are deleted."""
        return self.feeds or any(duty.name == "clear" for duty in self.duties)

    @property
    def consumed_early(self) -> frozenset[str]:
        """The names of the consumers of the change feed that are made in the prelude."""
        made = ((f"{each.seat} {each.name}{number}", each) for number, each in enumerate(self.duties, 1))
        return frozenset(
            str(duty.arguments[0]) for step, duty in made if duty.name == "consume" and step in self.prelude
        )

    @property
    def is_losing(self) -> bool:
        """Whether parts may be declared lost."""
        return any(duty.name == "lose" for duty in self.duties)

    @property
    def has_quorums(self) -> bool:
        """Whether an insert has a quorum."""
        return any(insert.quorum for insert in self.inserts)

    @property
    def fragile(self) -> frozenset[str]:
        """The parts whose files break somewhere; `staging` for whatever is staged."""
        return frozenset(str(duty.arguments[0]) for duty in self.duties if duty.name == "break")

    @property
    def emptied(self) -> frozenset[str]:
        """The replicas that have lost their disks."""
        return frozenset(name for name in self.replicas if f"empty {name}" in self.prelude)

    @property
    def is_still(self) -> bool:
        """Whether no replica is marked, added or dropped, and the log is not cleaned."""
        return all(duty.name in LOSING for duty in self.duties) and not self.absent

    @property
    def requests(self) -> tuple[int, ...]:
        """The numbers of all requests that are answered, ascending."""
        return tuple(sorted((*self.tokens, *self.ids, *(read.number for read in self.reads))))

    @property
    def asked(self) -> dict[int, str]:
        """The seat that each request is sent to."""
        inserted = {request: insert.seat for insert in self.inserts for request, _ in insert.requests}
        return (
            inserted
            | {ask.request: ask.seat for ask in self.commands}
            | {rewrite.request: rewrite.seat for rewrite in self.rewrites}
            | {read.number: read.seat for read in self.reads}
        )

    @property
    def ids(self) -> dict[int, str]:
        """The id of the command of each request."""
        rewrites = {ask.request: str(ask.id) for ask in self.rewrites}
        return {ask.request: str(ask.command.id) for ask in self.commands} | rewrites

    @property
    def killed(self) -> frozenset[str]:
        """The ids of the mutations that are killed."""
        return frozenset(kill.mutation for kill in self.kills)

    @property
    def has_makers(self) -> bool:
        """Whether anything is merged or mutated."""
        is_prepared = any(duty.name == "prepare" for duty in self.duties)
        return bool(self.merges) or is_prepared or any(isinstance(ask.command, MutateEntry) for ask in self.commands)

    @property
    def gone(self) -> frozenset[str]:
        """Of a table in an object store: the replicas whose processes stay away from the beginning."""
        away = (name for seat, name in self.seats if f"stop {seat}" in self.prelude and f"{seat} life" in self.resting)
        return frozenset(away) if self.stored else frozenset()

    @property
    def has_rivals(self) -> bool:
        """Whether a replica has more than one seat, so that a process may find itself replaced."""
        return len(self.replicas) < len(self.seats)

    def works_to_the_end(self, seat: str) -> bool:
        """Whether a seat's processes pull and execute whatever comes."""
        return seat in self.workers and not any(name.partition(" ")[0] == seat for name in self.resting)

    @property
    def replicas(self) -> tuple[str, ...]:
        """The names of the replicas, in the order of their first seats."""
        return tuple(dict.fromkeys(replica for _, replica in self.seats))

    @property
    def disks(self) -> tuple[str, ...]:
        """The names of all disks: of the replicas, in their order, and of further machines."""
        return (*self.replicas, *self.machines)

    def disk_of(self, seat: str) -> str:
        """Return the name of the disk that the processes of a seat have."""
        return seat if seat in self.machines else dict(self.seats)[seat]

    def disks_of(self, replica: str) -> tuple[str, ...]:
        """Return the names of the disks of a replica's machines."""
        return tuple(dict.fromkeys(self.disk_of(seat) for seat, name in self.seats if name == replica))

    @property
    def contested(self) -> tuple[str, ...]:
        """The replicas that more than one machine may act for."""
        return tuple(name for name in self.replicas if len(self.disks_of(name)) > 1)

    @property
    def tokens(self) -> dict[int, str]:
        """The token of each request."""
        return {request: token for insert in self.inserts for request, token in insert.requests}

    @property
    def batches(self) -> dict[int, StreamBatch]:
        """The batch of a stream that each request is, of those that are one."""
        return {insert.requests[0][0]: insert.batch for insert in self.inserts if insert.batch is not None}

    def replica(self, name: str) -> Replica:
        """Return a replica's place, in the first table."""
        return Replica(TABLE, name)

    def place(self, seat: str) -> Replica:
        """Return the place of a seat's replica."""
        return Replica(REMADE if seat in self.remade else TABLE, dict(self.seats)[seat])


INCARNATIONS = "abcdefghijklmnopqrstuvwxyz"


def me_of(seat: str, incarnation: int) -> bytes:
    """Return the value by which the n-th process of a seat owns its replica.

    >>> me_of("r1", 1)
    b'r1b'
    """
    return f"{seat}{INCARNATIONS[incarnation]}".encode()


def seat_of(me: bytes) -> tuple[str, int]:
    """Return seat and incarnation of a process from its `me`.

    >>> seat_of(b"r1b")
    ('r1', 1)
    """
    text = me.decode()
    return text[:-1], INCARNATIONS.index(text[-1])


SESSIONS_PER_SEAT = 100


def first_session(seat: int) -> int:
    """Return the first session of a seat, given by its number; the next ones follow."""
    return seat * SESSIONS_PER_SEAT + 1
