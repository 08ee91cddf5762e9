"""Where the replicas of a table stand, as coordination has it: the log, and each replica's pointer, queue and mark.

Procedures, as in `protocol`: they read and change nothing, and cost a number of requests that does not grow with the log.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import Entry
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.log import next_index, read_start, search_log
from replitree.protocol.membership.table import DROPPED_HOST, HALF_BUILT, NOT_LOST
from replitree.protocol.propose.roll_over import NUMBERS_LEFT
from replitree.wire.identity import decode_identity

WINDOW = 256
"""Entries looked for at once behind the foremost pointer."""


class ReplicaMark(Enum):
    """What coordination says about a replica's state."""

    GOOD = "good"
    LOST = "lost"
    HALF_BUILT = "half-built"
    DROPPED = "half-dropped"


class ReplicaStanding(msgspec.Struct, frozen=True):
    """One replica: `address` is empty when it has never been active, `epoch` counts its activations."""

    name: str
    address: str
    active: bool
    epoch: int
    mark: ReplicaMark
    pointer: int
    queue: int


class LogState(msgspec.Struct, frozen=True):
    """The log: entries from `first` on are there, `tail` comes next, and it has a place for each `replica`."""

    first: int
    tail: int
    replicas: tuple[ReplicaStanding, ...]


def read_log_state(table: TablePlace) -> fx.Procedure[LogState | None]:
    """Read where the log begins and ends, and where every replica stands; None when the table is gone."""
    # The server of this session may lag: what is reported includes all that was committed before the question.
    yield fx.Sync(layout.log(table))
    start = yield from read_start(table)
    names: tuple[str, ...] | None = yield fx.Children(layout.replicas(table))
    if start is None or names is None:
        return None
    found: list[ReplicaStanding] = []
    for name in names:
        standing = yield from read_standing(Replica(table, name))
        if standing is not None:
            found.append(standing)
    # The end is at every pointer or after it: the search for it need not begin at the first entry.
    foremost = max((each.pointer for each in found), default=start.first)
    tail = yield from find_tail(table, fx.LogIndex(max(start.first, foremost)))
    return LogState(start.first, tail, tuple(found))


def read_standing(replica: Replica) -> fx.Procedure[ReplicaStanding | None]:
    """Read where a replica stands; None when it is gone, or being added."""
    paths = (layout.host(replica), layout.is_active(replica), layout.is_lost(replica), layout.log_pointer(replica))
    many: fx.Many = yield fx.GetMany(paths)
    host, active, lost, pointer = many.nodes
    queue: tuple[str, ...] = (yield fx.Children(layout.queue(replica))) or ()
    if host is None:
        return None
    identity = decode_identity(host.value)
    mark = ReplicaMark.HALF_BUILT if lost is not None and lost.value == HALF_BUILT else ReplicaMark.LOST
    if host.value == DROPPED_HOST or lost is None:
        mark = ReplicaMark.DROPPED
    elif lost.value == NOT_LOST:
        mark = ReplicaMark.GOOD
    return ReplicaStanding(
        replica.name,
        identity.address if identity is not None else "",
        active is not None,
        host.version,
        mark,
        layout.pointer_index(pointer.value) if pointer is not None else 0,
        len(queue),
    )


def find_tail(table: TablePlace, begin: fx.LogIndex) -> fx.Procedure[fx.LogIndex]:
    """Find the index that the next log entry will have, from one on that the log has reached."""
    tail = begin

    def note(index: fx.LogIndex, entry: Entry) -> None:
        nonlocal tail
        tail = next_index(index, entry)

    yield from search_log(table, begin, note, WINDOW)
    return tail


def entries_between(low: int, high: int) -> int:
    """Return how many entries there are from one index to below another; 0 when the first is not the lower one.

    Indexes that were left out when the log went on below a fresh parent are not counted, as far as that can be known.

    >>> entries_between(3, 7), entries_between(7, 3), entries_between((1 << 31) - (1 << 24), (1 << 31) + 5)
    (4, 0, 5)
    """
    if layout.parent_of(low) == layout.parent_of(high):
        return max(0, high - low)
    used = max(0, layout.PARENT_ENTRIES - NUMBERS_LEFT - low % layout.PARENT_ENTRIES)
    return max(0, used + high % layout.PARENT_ENTRIES) if low < high else 0
