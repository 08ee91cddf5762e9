"""Start: what a replica does before it serves, and again whenever it had to activate anew.

1. *list* the staging folders that no running insert holds
2. *activate* (or renew): from here on every commit of an earlier epoch is decided
3. *pull* up to the log's tail as it is after the activation
4. *sweep*: a folder of step 1 whose insert is not in the queue was never committed, and never will be
5. *compare* the parts on disk with the registered ones

The order is the proof that the sweep deletes no committed rows.  An insert in a listed folder was committed under an epoch
before step 2, or not at all; if it was, its entry is below the tail of step 3, so after the pull it is in the queue, or it was
executed and the folder was renamed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from replitree.protocol import layout
from replitree.protocol.effects import (
    Children,
    Epoch,
    GetMany,
    ListParts,
    ListStaging,
    Many,
    Procedure,
    RemovePart,
    RemoveStaging,
    Reveal,
    StagingId,
    Sync,
)
from replitree.protocol.entries import part_names
from replitree.protocol.layout import Replica
from replitree.protocol.parts import parse_part
from replitree.protocol.pull import (
    PULL_ENTRIES_MAX,
    Fenced,
    Gap,
    Pointer,
    PointerMoved,
    Pulled,
    load_queue,
    pull_log,
    read_pointer,
)

ROUNDS_MAX = 1_000_000
"""Pulls in one catching-up; more means that the log grows faster than this replica can read it."""


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """The replica has pulled everything that was in the log when it began."""

    pointer: Pointer


@dataclass(frozen=True, slots=True)
class Compared:
    """Registered parts that are not on disk: name and content hash of each."""

    missing: tuple[tuple[str, str], ...]


CatchUp: TypeAlias = CaughtUp | Fenced | Gap


def list_idle_staging() -> Procedure[tuple[StagingId, ...]]:
    """Step 1: the staging folders that no running insert of this process holds."""
    found: tuple[StagingId, ...] = yield ListStaging()
    return found


def catch_up(replica: Replica, epoch: Epoch) -> Procedure[CatchUp]:
    """Step 3: pull until the log's tail, not older than now, is reached."""
    yield Sync(layout.log(replica.table))
    pointer = yield from read_pointer(replica)
    for _ in range(ROUNDS_MAX):
        pulled = yield from pull_log(replica, epoch, pointer, PULL_ENTRIES_MAX)
        match pulled:
            case Pulled(pointer=pointer, more=False):
                return CaughtUp(pointer)
            case Pulled(pointer=pointer):
                continue
            case PointerMoved():
                yield Sync(layout.log(replica.table))
                pointer = yield from read_pointer(replica)
            case Fenced() | Gap():
                return pulled
    raise AssertionError("the log grows faster than it can be pulled")


def sweep_staging(replica: Replica, idle: tuple[StagingId, ...]) -> Procedure[int]:
    """Step 4: remove the folders of `idle` whose inserts are not in the queue; return how many."""
    queue = (yield from load_queue(replica)) if idle else ()
    wanted = tuple(item.entry.insert for item in queue if item.entry.replica == replica.name)
    garbage = tuple(staging for staging in idle if staging not in wanted)
    for staging in garbage:
        yield RemoveStaging(staging)
    return len(garbage)


def compare_parts(replica: Replica) -> Procedure[Compared]:
    """Step 5: reveal what is registered and on disk, set aside what is neither registered nor in the queue.

    Only parts below the pointer are judged: an insert that runs meanwhile may have published one that was not pulled yet.
    """
    on_disk: tuple[str, ...] = yield ListParts()
    pointer = yield from read_pointer(replica)
    queue = yield from load_queue(replica)
    registered = (yield Children(layout.parts(replica))) or ()
    queued = tuple(name for item in queue for _, name in part_names(item.entry, item.index))
    disk = frozenset(on_disk)
    known = frozenset((*registered, *queued))
    for name in on_disk:
        if name not in known and parse_part(name).block_max < pointer.index:
            yield RemovePart(name)
    yield Reveal(tuple(name for name in registered if name in disk))
    lacking = tuple(name for name in registered if name not in disk)
    hashes = (yield GetMany(tuple(layout.part(replica, name) for name in lacking))) if lacking else Many(())
    return Compared(
        tuple((name, node.value.decode()) for name, node in zip(lacking, hashes.nodes, strict=True) if node is not None)
    )
