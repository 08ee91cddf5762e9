"""Consumers of the change feed: make, move, expire and drop one (`replitree.protocol.upkeep.consumers`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from replitree.protocol.core import effects as fx
from replitree.protocol.core.effects import Epoch, LogIndex
from replitree.protocol.core.layout import Replica
from replitree.protocol.membership.activate import Replaced
from replitree.protocol.program.stages import End, MemoryEffect, ReportTrouble, Stage
from replitree.protocol.program.tagger import AwaitNaming, NamingTurn
from replitree.protocol.upkeep import consumers
from replitree.protocol.upkeep.consumers import Consumer, ConsumerOutcome, ConsumerValue

Beginning: TypeAlias = Literal["feed", "snapshot"]
"""What a consumer reads first: entries, or the version at its index."""

# --- effects ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HoldFeed(MemoryEffect):
    """Wait, while active, until the feed is here from an index on, and hold it; None: from the end of the log on.

    A consumer that begins with the snapshot holds the parts of the version at the index, too.  From now on nothing is deleted
    that was chosen before.  Outcome: `HeldFeed`.
    """

    index: LogIndex | None
    begins: Beginning = "feed"


@dataclass(frozen=True, slots=True)
class HeldFeed:
    """The process that holds the feed, its epoch, and the consumer that it holds it for."""

    me: bytes
    epoch: Epoch
    consumer: ConsumerValue


@dataclass(frozen=True, slots=True)
class ReleaseFeed(MemoryEffect):
    """Hold the feed no longer for the consumer that was made."""


@dataclass(frozen=True, slots=True)
class JudgeHold(MemoryEffect):
    """Outcome: why the hold of a consumer is over by its limits; "": it is not."""

    consumer: Consumer


# --- stages -------------------------------------------------------------------------------------------------------------------


def make_consumer(replica: Replica, name: str, index: LogIndex | None = None, begins: Beginning = "feed") -> Stage:
    """Make a consumer that begins at an index, or at the end of the log; find out whether it is there."""
    held: HeldFeed = yield HoldFeed(index, begins)
    outcome = yield from consumers.put_consumer(replica, held.me, held.epoch, name, held.consumer)
    if isinstance(outcome, fx.InDoubt | Replaced):
        # The commit may still be on its way.  The feed is held until the process has another epoch or has ended.
        yield ReportTrouble()
    else:
        yield ReleaseFeed()
    return End(outcome)


def move_consumer(replica: Replica, name: str, index: LogIndex) -> Stage:
    """Move a consumer to an index; find out where it stands."""
    return (yield from _changed(lambda me, epoch: consumers.move_consumer(replica, me, epoch, name, index)))


def drop_consumer(replica: Replica, name: str) -> Stage:
    """Drop a consumer; find out whether it is gone."""
    return (yield from _changed(lambda me, epoch: consumers.drop_consumer(replica, me, epoch, name)))


def expire_consumer(replica: Replica, name: str) -> Stage:
    """Mark a consumer whose hold is over; find out what became of it."""
    seen = yield from consumers.read_consumer(replica.table, name)
    if seen is None or seen.value.expired:
        return End(consumers.OtherConsumer(None if seen is None else seen.value))
    why: str = yield JudgeHold(seen)
    if not why:
        return End(consumers.OtherConsumer(seen.value))
    # Nothing goes by this judgement: what a consumer keeps goes when a later removal reads its mark.
    return (yield from _changed(lambda me, epoch: consumers.expire_consumer(replica, me, epoch, seen, why)))


def _changed(change: Callable[[bytes, Epoch], fx.Procedure[ConsumerOutcome]]) -> Stage:
    """Change a consumer in the name of the process."""
    turn: NamingTurn = yield AwaitNaming()
    outcome = yield from change(turn.me, turn.epoch)
    if isinstance(outcome, fx.InDoubt | Replaced):
        yield ReportTrouble()
    return End(outcome)


__all__ = [
    "Beginning",
    "HeldFeed",
    "HoldFeed",
    "JudgeHold",
    "ReleaseFeed",
    "drop_consumer",
    "expire_consumer",
    "make_consumer",
    "move_consumer",
]
