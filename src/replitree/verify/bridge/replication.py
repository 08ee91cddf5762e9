"""The mapping onto replication in queues, `packed.replication_queues`: for one partition, with inserts and merges only.

A part is known by the entry that brought it, and a replica has it when it is registered and no other registered one covers it.
Who inserts has the part from its entry on: its files are staged.  An entry is executed when it is pulled and not in the queue.
So pulling changes nothing here, but for entries that come too late: they never enter a queue.
"""

from __future__ import annotations

import msgspec

from replitree.coordination.tree import Tree
from replitree.errors import BadInput
from replitree.protocol.entries import GetEntry, MergeEntry
from replitree.protocol.layout import Replica, Table
from replitree.protocol.parts import Part, parse_part
from replitree.verify.bridge.mapping import Mapping, NoState
from replitree.verify.history import Log
from replitree.verify.packed import replication_queues as model
from replitree.verify.packed.replication import appended
from replitree.verify.packed.replication_queues import QueueLimits

RECORDS = 6


class Holding(msgspec.Struct, frozen=True):
    """What a replica has, and which entries it has executed, as masks of indexes."""

    parts: int = 0
    executed: int = 0


class Shared(msgspec.Struct, frozen=True):
    """Log and replicas at one moment.

    Attributes
    ----------
    sources
        Of each entry the mask of what it merges, 0 for an insert, None when it came too late.
    replicas
        What each has, in an order that stays.
    """

    sources: tuple[int | None, ...]
    replicas: tuple[Holding, ...]


def shared_of(tree: Tree, table: Table, names: tuple[str, ...]) -> Shared:
    """Return what a tree shows of a table.

    Raises
    ------
    BadInput
        There are more entries than the packed model has room for, or others than inserts into one partition and merges.
    NoState
        A replica has a part that follows from no entry.
    """
    log, brought, sources = Log(tree, table), dict[Part, int](), list[int | None]()
    if len(log.entries) > RECORDS:
        raise BadInput(f"the log has {len(log.entries)} entries; {model.MODEL.name} has room for {RECORDS}")
    for number, item in enumerate(log.entries):
        alone = isinstance(item.entry, GetEntry) and len(item.change.added) == 1 and not item.change.removed
        if item.index != number or not (alone or isinstance(item.entry, MergeEntry)):
            raise BadInput(
                f"entry {item.index} is no insert into one partition and no merge: {model.MODEL.name} has no other"
            )
        sources.append(None if item.change.is_empty else sum(1 << brought[part] for part in item.change.removed))
        brought.update(dict.fromkeys(item.change.added, number))
    return Shared(tuple(sources), tuple(_holding(log, table, name, brought) for name in names))


def _holding(log: Log, table: Table, name: str, brought: dict[Part, int]) -> Holding:
    replica = Replica(table, name)
    waiting = {int(index) for index, _ in log.queue(replica)}
    executed = [number for number in range(log.pointer(replica)) if number not in waiting]
    held = {parse_part(part) for part in log.registered(replica)}
    held |= {
        part
        for part, number in brought.items()
        if number not in executed and isinstance(entry := log.entries[number].entry, GetEntry) and entry.replica == name
    }
    for part in held:
        if part not in brought:
            raise NoState(f"{name} has {part.name}, which no entry of the log brings")
    there = [part for part in held if not any(other != part and other.covers(part) for other in held)]
    return Holding(sum(1 << brought[part] for part in there), sum(1 << number for number in executed))


def limits_for(replicas: int) -> QueueLimits:
    """Return the limits of the packed model for so many replicas."""
    return QueueLimits(replicas=replicas, records=RECORDS)


def state_of(shared: Shared, _: QueueLimits) -> int:
    """Return the state that an outline stands for."""
    state = 0
    for number, sources in enumerate(shared.sources):
        state = appended(state, sources or 0) | (int(sources is None) << (model.LATE + number))
    for number, holding in enumerate(shared.replicas):
        state = model.with_block(state, number, holding.parts | holding.executed << model.DONE)
    return state


def seen_of(state: int, _: QueueLimits) -> int:
    """Return the state: outlines show all of it."""
    return state


def is_between(state: int, start: int, goal: int, limits: QueueLimits) -> bool:
    """Tell whether a way may go through a state: its log is the goal's as far as it goes, and nobody moves without need."""
    length = state & 7
    entries = (1 << length * (length - 1) // 2) - 1
    if length > goal & 7 or (state ^ goal) >> 3 & entries or (state ^ goal) >> model.LATE & ((1 << length) - 1):
        return False
    blocks = [[model.block_of(each, replica) for each in (state, start, goal)] for replica in range(limits.replicas)]
    return all(here in (before, after) or before != after for here, before, after in blocks)


REPLICATION = Mapping("replication", model.MODEL, Shared, shared_of, limits_for, state_of, seen_of, is_between)
