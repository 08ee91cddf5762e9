"""Tags and old parts: make and delete a tag, and delete the old parts that no tag and no consumer keeps.

(`replitree.protocol.upkeep.tags`, `replitree.protocol.upkeep.consumers`)
"""

from __future__ import annotations

from dataclasses import dataclass

from replitree.protocol.core import effects as fx
from replitree.protocol.core.effects import Epoch, LogIndex
from replitree.protocol.core.layout import Replica
from replitree.protocol.membership.activate import Replaced
from replitree.protocol.program.stages import End, MemoryEffect, ReportTrouble, Stage, Then
from replitree.protocol.upkeep import consumers, tags
from replitree.protocol.upkeep.consumers import Consumers
from replitree.protocol.upkeep.tags import Tags, TagValue

# --- effects ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AwaitOld(MemoryEffect):
    """Wait until old parts may be deleted as far as this process knows, and choose them.  Outcome: `OldTurn`.

    What gets a lease from now on is not chosen any more.  When the feed is held from now on (`consumer.HoldFeed`), nothing is.
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
    turn: NamingTurn = yield AwaitNaming()
    outcome = yield from tags.delete_tag(replica, turn.me, turn.epoch, name)
    if isinstance(outcome, fx.InDoubt | Replaced):
        yield ReportTrouble()
    return End(outcome)


def remove_next(replica: Replica) -> Stage:
    """Delete old parts whose time is over, now and then."""
    turn: OldTurn = yield AwaitOld()
    # Both are read after the parts were chosen: what is made later has a lease on its parts, or holds the feed, before.
    tagged = yield from tags.read_tags(replica.table, turn.tags)
    held = yield from consumers.read_consumers(replica.table, turn.consumers)
    yield RemoveOld(turn.parts, tagged, held)
    return Then(remove_next, (replica,))


__all__ = [
    "AwaitNaming",
    "AwaitOld",
    "NamingTurn",
    "OldTurn",
    "ReleaseVersion",
    "RemoveOld",
    "TakeVersion",
    "TakenVersion",
    "delete_tag",
    "make_tag",
    "remove_next",
]
