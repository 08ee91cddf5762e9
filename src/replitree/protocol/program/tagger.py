"""Tags, consumers and old parts: make, move and delete names, and delete the old parts that none of them keeps.

(`replitree.protocol.upkeep.tags`, `replitree.protocol.upkeep.consumers`)
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from replitree.protocol.core import effects as fx
from replitree.protocol.core.effects import Epoch, LogIndex
from replitree.protocol.core.layout import Replica
from replitree.protocol.membership.activate import Replaced
from replitree.protocol.program.stages import End, MemoryEffect, ReportTrouble, Stage, Then
from replitree.protocol.upkeep import consumers, tags
from replitree.protocol.upkeep.consumers import ConsumerNode, ConsumerOutcome, Consumers, ConsumerValue
from replitree.protocol.upkeep.tags import TagOutcome, Tags, TagValue

Beginning: TypeAlias = Literal["feed", "snapshot"]
"""What a consumer reads first: entries, or the version at its index."""

# --- effects ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AwaitOld(MemoryEffect):
    """Wait until old parts may be deleted as far as this process knows, and choose them.  Outcome: `OldTurn`.

    What gets a lease from now on is not chosen any more.  When the feed is held from now on (`HoldFeed`), nothing is.
    """


@dataclass(frozen=True, slots=True)
class OldTurn:
    """What the removal of old parts works with: the parts that were chosen, and what the process read last."""

    parts: tuple[str, ...]
    tags: Tags
    consumers: Consumers


@dataclass(frozen=True, slots=True)
class RemoveOld(MemoryEffect):
    """Delete from the disk, of the parts that were chosen and still are, those that no tag and no consumer keeps.

    A consumer keeps the parts of its snapshot, and those that the feed of an entry at or above its index needs.  The process
    remembers both.
    """

    parts: tuple[str, ...]
    tags: Tags
    consumers: Consumers


@dataclass(frozen=True, slots=True)
class TakeVersion(MemoryEffect):
    """Wait, while active, until a version of the table is here, and keep its parts; None: the present one.

    Outcome: `TakenVersion`.
    """

    index: LogIndex | None


@dataclass(frozen=True, slots=True)
class TakenVersion:
    """A version of the table that this replica has, as its tag says it, and the process that keeps its parts."""

    me: bytes
    epoch: Epoch
    tag: TagValue


@dataclass(frozen=True, slots=True)
class AwaitNaming(MemoryEffect):
    """Wait, while active, until a named node is to be changed.  Outcome: `NamingTurn`."""


@dataclass(frozen=True, slots=True)
class NamingTurn:
    """The process that changes a named node, and its epoch."""

    me: bytes
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class ReleaseVersion(MemoryEffect):
    """Keep the parts of the version that was taken no longer."""


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

    consumer: ConsumerNode


# --- stages -------------------------------------------------------------------------------------------------------------------


def make_tag(replica: Replica, name: str, index: fx.LogIndex | None = None) -> Stage:
    """Give the version at an index, or the present one, a name; find out whether it has it."""
    taken: TakenVersion = yield TakeVersion(index)
    outcome = yield from tags.put_tag(replica, taken.me, taken.epoch, name, taken.tag)
    if isinstance(outcome, fx.InDoubt | Replaced):
        # The commit may still be on its way.  The parts stay under their lease until the process has another epoch or has
        # ended.
        yield ReportTrouble()
    else:
        yield ReleaseVersion()
    return End(outcome)


def delete_tag(replica: Replica, name: str) -> Stage:
    """Delete a tag; find out whether it is gone."""
    return (yield from _changed(lambda me, epoch: tags.delete_tag(replica, me, epoch, name)))


def remove_next(replica: Replica) -> Stage:
    """Delete old parts whose time is over, now and then."""
    turn: OldTurn = yield AwaitOld()
    # Both are read after the parts were chosen: what is made later has a lease on its parts, or holds the feed, before.
    tagged = yield from tags.read_tags(replica.table, turn.tags)
    held = yield from consumers.read_consumers(replica.table, turn.consumers)
    yield RemoveOld(turn.parts, tagged, held)
    return Then(remove_next, (replica,))


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


def _changed(change: Callable[[bytes, Epoch], fx.Procedure[TagOutcome | ConsumerOutcome]]) -> Generator[Any, Any, End]:
    """Change a named node in the name of the process."""
    turn: NamingTurn = yield AwaitNaming()
    outcome = yield from change(turn.me, turn.epoch)
    if isinstance(outcome, fx.InDoubt | Replaced):
        yield ReportTrouble()
    return End(outcome)


__all__ = [
    "AwaitNaming",
    "AwaitOld",
    "Beginning",
    "HeldFeed",
    "HoldFeed",
    "JudgeHold",
    "NamingTurn",
    "OldTurn",
    "ReleaseFeed",
    "ReleaseVersion",
    "RemoveOld",
    "TakeVersion",
    "TakenVersion",
    "delete_tag",
    "drop_consumer",
    "expire_consumer",
    "make_consumer",
    "make_tag",
    "move_consumer",
    "remove_next",
]
