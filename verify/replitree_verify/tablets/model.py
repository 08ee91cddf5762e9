"""What is to be explored of a tablet: seats of leaders, what they commit, and how many faults of each kind."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from replitree.tablet.core.channels import Channels, in_one_group
from replitree.tablet.core.commit import STEPS_MAX
from replitree.tablet.group.ids import BlobId, Generation, GroupId, TabletId
from replitree.tablet.group.quorum import Quorum
from replitree_verify.engine.small_search import Declaration
from replitree_verify.world.faults import Fault

TABLET = TabletId(1)
GROUP = GroupId("g")
CHANNELS = in_one_group(TABLET, GROUP)
"""One group has the log and the data."""

DATA_GROUP = GroupId("d")
APART = Channels(TABLET, (((Generation(1), GROUP),), ((Generation(1), DATA_GROUP),)))
"""The data has a group of its own."""


class Kind(Enum):
    """What a leader commits.

    `PLAIN`: an entry with a body.  `REFERENCE`: one whose body is a blob that is stored together with it.  `FREE`: one that
    depends on nothing.  `SNAPSHOT`, `TOTAL`: snapshots.  `STATE`: a total one whose state is a blob that is stored together
    with it.  `READ`: nothing; a client is shown the state, if a probe says so.

    Where leaders collect data, a reference is a blob that is needed until an entry leaves it: `LEAVE`, of the first one that is
    needed; `STATE`, of all, as a running tablet does.  Other snapshots say again what is needed.  `COLLECT`: nothing; whatever
    may go is collected, of the log and of the data.
    """

    PLAIN = "plain"
    REFERENCE = "reference"
    FREE = "free"
    SNAPSHOT = "snapshot"
    TOTAL = "total"
    STATE = "state"
    READ = "read"
    LEAVE = "leave"
    COLLECT = "collect"


@dataclass(frozen=True, slots=True)
class Seat:
    """A candidate: the generation that it stands for, and what it commits when it leads.

    `after`: it commits nothing before this generation has a leader; 0: at once.  `is_operator`: it does not lead; it is an
    operator that looks what can't be read, and may accept the loss; it chooses a generation by itself.
    """

    generation: int
    commits: tuple[Kind, ...] = ()
    after: int = 0
    is_operator: bool = False


OPERATOR = Seat(0, is_operator=True)


@dataclass(frozen=True, slots=True)
class Model(Declaration):
    """A tablet to explore.

    Attributes
    ----------
    seats
        The candidates.  Each may begin at any moment, without waiting for the one before.
    rots_zeros, hides
        Whether copies of zero entries may become unreadable, too; whether a member may not be able to tell any more what a
        damaged copy was.
    spoiled
        (member, blob) of copies that are unreadable from the beginning.
    hidden
        (member, first blob, last blob) of copies of which a member can't tell from the beginning that it had them.
    members, write
        How many members the group has; the write quorum.
    data_members
        How many members the group of the data has, with the same write quorum; 0: log and data have one group.
    ahead, in_turn
        Whether the first seat leads already; whether a candidate begins when those before it have been elected, or not.
    prelude
        How many commits of the first seat are done before it begins.
    relay
        How many seats after the first have led, too, one after the other, and have done all their commits, before it begins.
    collects
        Whether leaders collect the log when a snapshot is confirmed; what was sent before an operator may begin is on its way.
    on_store
        Whether the group's one member is an object store, whose requests are at once each, not together.
    steps_max
        How many entries may be on their way.
    aftermath
        Whether at every state a successor is tried out that nothing disturbs (`invariants.aftermath`); where a loss may be
        accepted, an operator, and then a successor (`invariants.losses`).
    """

    seats: tuple[Seat, ...]
    rots_zeros: bool = False
    hides: bool = False
    spoiled: tuple[tuple[int, BlobId], ...] = ()
    hidden: tuple[tuple[int, BlobId, BlobId], ...] = ()
    members: int = 3
    write: int = 2
    data_members: int = 0
    ahead: bool = True
    in_turn: bool = False
    prelude: int = 0
    relay: int = 0
    collects: bool = False
    on_store: bool = False
    steps_max: int = STEPS_MAX
    aftermath: bool = False

    def __post_init__(self) -> None:
        assert not (self.data_members and self.has_operators), "operators know one group"

    def name_of(self, seat: int) -> str:
        """Return what a seat is called, for people."""
        each = self.seats[seat]
        return f"operator {seat}" if each.is_operator else f"candidate {seat} ({each.generation})"

    @property
    def has_operators(self) -> bool:
        """Whether a loss may be accepted."""
        return any(seat.is_operator for seat in self.seats)

    @property
    def has_damage(self) -> bool:
        """Whether copies are, or become, unreadable."""
        return bool(self.faults.get(Fault.ROT) or self.spoiled or self.hidden)

    @property
    def collects_data(self) -> bool:
        """Whether leaders collect what entries say is not needed."""
        return any(Kind.COLLECT in seat.commits for seat in self.seats)

    @property
    def channels(self) -> Channels:
        """Where log and data lie."""
        return APART if self.data_members else CHANNELS

    @property
    def groups(self) -> tuple[Quorum, ...]:
        """The numbers of the groups, the log's first."""
        log, data = Quorum(GROUP, self.members, self.write), self.data_members
        return (log, Quorum(DATA_GROUP, data, self.write)) if data else (log,)

    @property
    def members_of_all(self) -> int:
        """How many members all groups have."""
        return self.members + self.data_members
