"""A state of a model of the feed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from replitree.protocol.core.effects import EntryId, LogIndex, Version
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.parts import parse_part
from replitree.protocol.upkeep.consumers import ConsumerNode, Consumers, ConsumerValue
from replitree_verify.feeds.desk import Kept, Standing, Written
from replitree_verify.feeds.rows import Emitted, Results, Rows
from replitree_verify.world.faults import Budget

TICK_MS = 1_000_000
"""Between two entries, by coordination's clock."""


class Seat(NamedTuple):
    """A replica: what its code knows, the rows of the parts on its disk, and which of them are broken."""

    standing: Standing
    disk: tuple[tuple[str, Rows], ...] = ()
    broken: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The replica's."""
        return self.standing.name

    @property
    def held(self) -> PartSet:
        """The parts that it has registered."""
        return PartSet.of(map(parse_part, self.standing.held))


@dataclass(frozen=True, slots=True)
class Consumer:
    """A consumer: the replica that made it, where it stands, and whether its hold is over."""

    seat: str
    index: int
    is_expired: bool = False


class FeedState(NamedTuple):
    """A state.

    Attributes
    ----------
    log, first
        Every entry that there was, and the lowest index that coordination has still.
    seats
        The replicas, by their place in the model; None: it has not joined yet.
    asked
        How much of each client's list is done.
    results
        What the first replica has made of mutated parts.
    is_killed
        Whether the mutation is killed.
    now, since
        The time of the next entry, and from when on entries are kept for the feed; None: it is off.
    consumer
        The consumer.
    told
        What readers got first for each entry.
    counts, budget
        What may still happen: `Model.counts` in its order, and faults.
    """

    log: tuple[Written, ...]
    first: int
    seats: tuple[Seat | None, ...]
    asked: tuple[int, ...]
    results: Results
    is_killed: bool
    now: int
    since: int | None
    consumer: Consumer | None
    told: tuple[tuple[LogIndex, Emitted], ...]
    counts: tuple[int, ...]
    budget: Budget

    @property
    def key(self) -> FeedState:
        """What tells it apart."""
        return self

    @property
    def kept(self) -> Kept:
        """How much of the feed is kept."""
        # Between two entries: how long the code runs before it reads the clock must not matter.
        since = None if self.since is None else (self.since + 0.5) * TICK_MS / 1_000
        if self.consumer is None:
            return Kept(since)
        expired = "over" if self.consumer.is_expired else ""
        value = ConsumerValue(self.consumer.index, EntryId("c"), self.consumer.seat, expired=expired)
        return Kept(since, Consumers(Version(0), (ConsumerNode("c", value, Version(0)),)))

    @property
    def joined(self) -> tuple[Seat, ...]:
        """The replicas that have joined."""
        return tuple(seat for seat in self.seats if seat is not None)

    def others(self, seat: Seat) -> tuple[Seat, ...]:
        """Return the replicas that have joined, without one."""
        return tuple(each for each in self.joined if each.name != seat.name)
