"""Execute: bring the queue's entries onto this replica.

File first, node second, visible third; a removal would go the opposite way.  So a registered part is always on disk, and a read
never shows a part that the replica could lose by a crash:

1. *files*     publish this replica's own staged parts, fetch the others; every file verified and synced
2. *register*  create the `parts` nodes and delete the queue entries, one commit for a batch of entries
3. *reveal*    local reads show the parts

Every step is idempotent.  A commit with an unknown outcome needs no new epoch: a queue entry can be deleted only once and never
comes back, so a late commit and a repeated one exclude each other, and what is left in the queue is what is left to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from replitree.protocol import layout
from replitree.protocol.effects import (
    ANY_VERSION,
    Applied,
    Check,
    Children,
    Commit,
    Create,
    Delete,
    Epoch,
    Fetched,
    FetchMany,
    FetchPart,
    GetMany,
    LogIndex,
    Many,
    Operation,
    Procedure,
    Publish,
    Published,
    Refused,
    Reveal,
)
from replitree.protocol.entries import part_names
from replitree.protocol.layout import Replica
from replitree.protocol.pull import Fenced, Queued

EXECUTE_ENTRIES_MAX = 64
"""Queue entries registered in one commit."""


@dataclass(frozen=True, slots=True)
class Postponed:
    """An entry that could not be executed now, and why."""

    index: LogIndex
    reason: str


@dataclass(frozen=True, slots=True)
class Executed:
    """`done` are registered and visible; `postponed` stay in the queue."""

    done: tuple[LogIndex, ...]
    postponed: tuple[Postponed, ...] = ()


@dataclass(frozen=True, slots=True)
class QueueMoved:
    """The queue is not what the caller believed; load it again."""


ExecuteOutcome: TypeAlias = Executed | QueueMoved | Fenced


def execute(replica: Replica, epoch: Epoch, batch: tuple[Queued, ...]) -> Procedure[ExecuteOutcome]:
    """Execute a batch of queue entries.

    Parameters
    ----------
    replica, epoch
        Whose queue, and the epoch under which it is active.
    batch
        From 1 to `EXECUTE_ENTRIES_MAX` entries of the queue, in ascending order of index.
    """
    assert 1 <= len(batch) <= EXECUTE_ENTRIES_MAX
    wanted = yield from _publish_own(replica, batch)
    trouble = yield from _fetch(replica, wanted)
    ready = tuple(item for item in batch if item.index not in trouble)
    postponed = tuple(Postponed(index, reason) for index, reason in sorted(trouble.items()))
    if not ready:
        return Executed((), postponed)
    outcome = yield Commit(Check(layout.host(replica), epoch), *_registration(replica, ready))
    match outcome:
        case Applied():
            yield Reveal(_names(ready))
            return Executed(tuple(item.index for item in ready), postponed)
        case Refused(operation=Check()):
            return Fenced()
    return QueueMoved()


def _publish_own(replica: Replica, batch: tuple[Queued, ...]) -> Procedure[tuple[tuple[LogIndex, FetchPart], ...]]:
    """Publish what this replica staged itself; return what has to be fetched, each with the index of its entry."""
    wanted: list[tuple[LogIndex, FetchPart]] = []
    for item in batch:
        names = part_names(item.entry, item.index)
        missing = tuple(name for _, name in names)
        if item.entry.replica == replica.name:
            published = yield Publish(item.entry.insert, names)
            missing = published.missing if isinstance(published, Published) else missing
        hashes = {name: part.content_hash for (_, name), part in zip(names, item.entry.parts, strict=True)}
        wanted += [(item.index, FetchPart(name, hashes[name], (item.entry.replica,))) for name in missing]
    return tuple(wanted)


def _fetch(replica: Replica, wanted: tuple[tuple[LogIndex, FetchPart], ...]) -> Procedure[dict[LogIndex, str]]:
    """Fetch parts, from their writers and where that fails from anybody who registered them; return the trouble by index."""
    if not wanted:
        return {}
    left = yield from _try_fetch(wanted)
    if left:
        elsewhere = yield from _other_sources(replica, tuple(fetch for _, fetch, _ in left))
        again = tuple((index, elsewhere[fetch.part]) for index, fetch, _ in left if fetch.part in elsewhere)
        still = yield from _try_fetch(again)
        left = tuple(row for row in left if row[1].part not in elsewhere) + still
    return {index: reason for index, _, reason in left}


def _try_fetch(
    wanted: tuple[tuple[LogIndex, FetchPart], ...],
) -> Procedure[tuple[tuple[LogIndex, FetchPart, str], ...]]:
    """Fetch all at once; return those that failed, with the reason."""
    if not wanted:
        return ()
    outcomes = yield FetchMany(tuple(fetch for _, fetch in wanted))
    return tuple(
        (index, fetch, outcome.reason)
        for (index, fetch), outcome in zip(wanted, outcomes, strict=True)
        if not isinstance(outcome, Fetched)
    )


def _other_sources(replica: Replica, fetches: tuple[FetchPart, ...]) -> Procedure[dict[str, FetchPart]]:
    """Find the other replicas that have registered the parts."""
    names = (yield Children(layout.replicas(replica.table))) or ()
    others = tuple(Replica(replica.table, name) for name in names if name != replica.name)
    asked = tuple((fetch, other) for fetch in fetches for other in others if other.name not in fetch.sources)
    many = (yield GetMany(tuple(layout.part(other, fetch.part) for fetch, other in asked))) if asked else Many(())
    sources: dict[str, tuple[str, ...]] = {}
    for (fetch, other), node in zip(asked, many.nodes, strict=True):
        if node is not None and node.value == fetch.content_hash.encode():
            sources[fetch.part] = (*sources.get(fetch.part, ()), other.name)
    return {
        fetch.part: FetchPart(fetch.part, fetch.content_hash, sources[fetch.part])
        for fetch in fetches
        if fetch.part in sources
    }


def _registration(replica: Replica, ready: tuple[Queued, ...]) -> tuple[Operation, ...]:
    """Return what registers the parts of `ready` and takes the entries out of the queue."""
    operations: list[Operation] = []
    for item in ready:
        for (_, name), part in zip(part_names(item.entry, item.index), item.entry.parts, strict=True):
            operations.append(Create(layout.part(replica, name), part.content_hash.encode()))
        operations.append(Delete(layout.queue_entry(replica, item.index), ANY_VERSION))
    return tuple(operations)


def _names(ready: tuple[Queued, ...]) -> tuple[str, ...]:
    return tuple(name for item in ready for _, name in part_names(item.entry, item.index))


def refetch(replica: Replica, parts: tuple[tuple[str, str], ...]) -> Procedure[tuple[str, ...]]:
    """Fetch registered parts again that are missing or broken on disk, and reveal them.

    Parameters
    ----------
    parts
        Name and content hash of each.

    Returns
    -------
    The names that no replica could send.
    """
    wanted = yield from _other_sources(
        replica, tuple(FetchPart(name, content_hash, ()) for name, content_hash in parts)
    )
    outcomes = (yield FetchMany(tuple(wanted.values()))) if wanted else ()
    here = tuple(outcome.part for outcome in outcomes if isinstance(outcome, Fetched))
    if here:
        yield Reveal(here)
    return tuple(name for name, _ in parts if name not in here)
