"""Pull: copy the log's next entries into the replica's queue.

The pointer and the queue entries move in one commit, which is conditional on the pointer's version: an entry enters the queue
exactly once, whatever is repeated.  So an unknown outcome needs no new epoch here: the caller reads the pointer again, and
of a late and a repeated commit one is refused.

Entries are dense, so they are read by their numbers and the next one is watched: the cost does not grow with the log.

A gap (an entry is missing and a later one is there) means that entries were removed which this replica needed.  A gap in one
batch of reads is not proof, because the reads are not one moment; the missing entry is read again after the later one was
seen, and then it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from replitree.protocol import layout
from replitree.protocol.effects import (
    Applied,
    Check,
    Children,
    Commit,
    Create,
    Epoch,
    Exists,
    Get,
    GetMany,
    LogIndex,
    Many,
    Procedure,
    Refused,
    Set,
    Unknown,
    Version,
)
from replitree.protocol.entries import Entry, decode_entry
from replitree.protocol.layout import Replica

PULL_ENTRIES_MAX = 64
"""Log entries copied in one commit."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """A replica's log pointer as it was read: the index of the next entry to pull, and the node's version."""

    index: LogIndex
    version: Version


@dataclass(frozen=True, slots=True)
class Queued:
    """An entry that was pulled and not yet executed."""

    index: LogIndex
    entry: Entry


@dataclass(frozen=True, slots=True)
class Pulled:
    """`entries` are in the queue now.  `more`: the next entry exists already; otherwise it is being watched."""

    pointer: Pointer
    entries: tuple[Queued, ...]
    more: bool


@dataclass(frozen=True, slots=True)
class PointerMoved:
    """The pointer is not what the caller believed; read it and the queue again."""


@dataclass(frozen=True, slots=True)
class Fenced:
    """The epoch is not the replica's any more; renew it, or stop."""


@dataclass(frozen=True, slots=True)
class Gap:
    """The entry at `index` is gone although later ones are there: this replica is lost."""

    index: LogIndex


PullOutcome: TypeAlias = Pulled | PointerMoved | Fenced | Gap


def read_pointer(replica: Replica) -> Procedure[Pointer]:
    """Read where the replica stands in the log."""
    node = yield Get(layout.log_pointer(replica))
    assert node is not None, f"{layout.log_pointer(replica)} is missing"
    return Pointer(LogIndex(int(node.value)), node.version)


def pull_log(replica: Replica, epoch: Epoch, pointer: Pointer, count: int = 1) -> Procedure[PullOutcome]:
    """Copy up to `count` entries from `pointer` on into the queue.

    Parameters
    ----------
    replica, epoch
        Whose queue, and the epoch under which it is active.
    pointer
        Where the replica stands, as it was last read or returned.
    count
        From 1 to `PULL_ENTRIES_MAX`.
    """
    assert 1 <= count <= PULL_ENTRIES_MAX
    table = replica.table
    paths = tuple(layout.log_entry(table, pointer.index + i) for i in range(count))
    many: Many = yield GetMany(paths, watch=layout.log_entry(table, pointer.index + count))
    nodes = [node for node in many.nodes if node is not None]
    dense = many.nodes.index(None) if None in many.nodes else count
    later_seen = len(nodes) > dense or (many.watched and dense < count)
    if later_seen and dense == 0:
        confirmed = yield Get(paths[0])
        return Gap(pointer.index) if confirmed is None else Pulled(pointer, (), more=True)
    queued = tuple(Queued(LogIndex(pointer.index + i), decode_entry(nodes[i].value, paths[i])) for i in range(dense))
    more = many.watched if dense == count else later_seen
    if not more and dense < count:  # the watch of the read is further on: watch the entry that is next
        more = yield Exists(paths[dense], watch=True)
    if not queued:
        return Pulled(pointer, (), more)
    raw = tuple(nodes[i].value for i in range(dense))
    return (yield from _advance(replica, epoch, pointer, queued, raw, more))


def _advance(
    replica: Replica, epoch: Epoch, pointer: Pointer, queued: tuple[Queued, ...], raw: tuple[bytes, ...], more: bool
) -> Procedure[PullOutcome]:
    """Move the pointer past `queued` and the entries into the queue, in one commit."""
    after = LogIndex(pointer.index + len(queued))
    outcome = yield Commit(
        Check(layout.host(replica), epoch),
        Set(layout.log_pointer(replica), str(after).encode(), pointer.version),
        *(Create(layout.queue_entry(replica, item.index), value) for item, value in zip(queued, raw, strict=True)),
    )
    match outcome:
        case Applied():
            return Pulled(Pointer(after, Version(pointer.version + 1)), queued, more)
        case Refused(operation=Check()):
            return Fenced()
        case Refused() | Unknown():
            return PointerMoved()
    raise AssertionError(outcome)


def load_queue(replica: Replica) -> Procedure[tuple[Queued, ...]]:
    """Read the queue as coordination has it, in ascending order of index."""
    names = (yield Children(layout.queue(replica))) or ()
    indexes = sorted(layout.queue_index(name) for name in names)
    paths = tuple(layout.queue_entry(replica, index) for index in indexes)
    many = (yield GetMany(paths)) if paths else Many(())
    return tuple(
        Queued(index, decode_entry(node.value, path))
        for index, path, node in zip(indexes, paths, many.nodes, strict=True)
        if node is not None
    )
