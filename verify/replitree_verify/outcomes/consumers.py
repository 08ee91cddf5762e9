"""How the effects of consumers of the change feed end (`process.consumers`)."""

from __future__ import annotations

from dataclasses import replace

from replitree.protocol.core.effects import EntryId, LogIndex
from replitree.protocol.program.tagger import HeldFeed, HoldFeed, JudgeHold, ReleaseFeed
from replitree.protocol.upkeep.consumers import Consumers, ConsumerValue
from replitree_verify.outcomes.local import Done, Here, remember
from replitree_verify.process.consumers import overdue_at
from replitree_verify.world.history import Log
from replitree_verify.world.memory import State

MADE = EntryId("consumer")
"""The id of every command that makes a consumer."""


def kept_by(consumers: Consumers, log: Log) -> frozenset[str]:
    """Return the names of the parts that consumers keep: those of their snapshots, and those that the feed needs."""
    return consumers.parts.union(*(log.fed_from(consumers.floor).values() if consumers.holding else ()))


def hold_feed(effect: HoldFeed, here: Here) -> Done | None:
    """Wait until the feed is here from an index on, and hold it."""
    memory, place, log = here.memory, here.memory.place, Log(here.tree, here.replica.table)
    if memory.state is not State.ACTIVE or memory.epoch is None or place is None or memory.torn:
        return None
    index, end = place.pointer.index if effect.index is None else effect.index, place.pointer.index
    if end < index or any(item.index < index for item in memory.queue):
        return None
    queued = {item.index for item in memory.queue}
    fed = (parts for at, parts in log.fed_from(index).items() if at < end and at not in queued)
    snapshot = tuple(sorted(part.name for part in log.parts_at(index))) if effect.begins == "snapshot" else ()
    if any(here.disk.content(part) is None for part in frozenset(snapshot).union(*fed)):
        return None
    consumer = ConsumerValue(
        index,
        MADE,
        here.replica.name,
        snapshot=index if effect.begins == "snapshot" else None,
        parts=snapshot,
    )
    held = replace(memory, chosen=(), feed_from=LogIndex(index), leased=snapshot)
    return remember(here, held, HeldFeed(here.me, memory.epoch, consumer))


def release_feed(_effect: ReleaseFeed, here: Here) -> Done:
    """Hold the feed no longer."""
    return remember(here, replace(here.memory, feed_from=None, leased=()))


def judge_hold(effect: JudgeHold, here: Here) -> Done:
    """Every hold may be over at any time."""
    return remember(here, here.memory, overdue_at(effect.consumer.value.index))
