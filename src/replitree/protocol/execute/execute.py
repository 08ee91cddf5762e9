"""Execute: apply the queue's entries to this replica.

1. *files*     publish this replica's own staged parts, fetch the others, or make them: every file verified and synced
2. *register*  create the nodes of the new parts, delete those of the parts that they replace, and delete the queue entries,
               one commit for a batch of inserts or for one other entry; for inserts with a quorum the commit also adds this
               replica to the quorum (`protocol.insert.quorum`)
3. *reveal*    local reads show the new parts and no longer the old ones
4. *clear*     remove the files of own inserts that later entries have removed from the table (`drop.clear_overtaken`)
5. *join*      if another replica changed the quorum first, add this one now

Entries may be executed in any order and at the same time, except that a drop waits for every earlier entry that could bring
back a part that it removes (`registration.blockers`).  A part that the table no longer has at the pointer, because a later
drop removed it, is not brought at all.  Every step is idempotent.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import UNSET

from replitree.protocol.core import effects as fx
from replitree.protocol.core.entries import (
    AlterEntry,
    DropEntry,
    FailEntry,
    GetEntry,
    LostEntry,
    MergeEntry,
    MutateEntry,
    RewriteEntry,
    RollEntry,
    SettleEntry,
    StorageEntry,
    ViewEntry,
    dropped_partitions,
)
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.parts import Part, inserted_part, parse_part
from replitree.protocol.execute.drop import clear_overtaken, execute_drop, execute_overwrite
from replitree.protocol.execute.execute_lost import execute_lost
from replitree.protocol.execute.merge import execute_merge
from replitree.protocol.execute.mutate import execute_mutation
from replitree.protocol.execute.rewrite import execute_rewrite
from replitree.protocol.insert.quorum import count_first, join_all
from replitree.protocol.state.fetch import fetch_anywhere, sources_of
from replitree.protocol.state.pull import Queued
from replitree.protocol.state.registration import (
    Executed,
    ExecuteOutcome,
    Postponed,
    View,
    deregister,
    finish,
    register,
)

_Inserts: TypeAlias = tuple[tuple[fx.LogIndex, GetEntry], ...]

EXECUTE_ENTRIES_MAX = 64
"""Queue entries registered in one commit."""


def goes_alone(item: Queued) -> bool:
    """Whether an entry is executed by itself; plain inserts are executed in batches."""
    return not isinstance(item.entry, GetEntry) or bool(dropped_partitions(item.entry))


def execute(replica: Replica, epoch: fx.Epoch, view: View, batch: tuple[Queued, ...]) -> fx.Procedure[ExecuteOutcome]:
    """Execute entries of the queue.

    Parameters
    ----------
    replica, epoch
        Whose queue, and the epoch under which it is active.
    view
        The replica's state.
    batch
        From 1 to `EXECUTE_ENTRIES_MAX` inserts in ascending order of index, or one entry that `goes_alone`.
    """
    assert 1 <= len(batch) <= EXECUTE_ENTRIES_MAX
    if not goes_alone(batch[0]):
        assert not any(map(goes_alone, batch))
        return (yield from _execute_inserts(replica, epoch, view, batch))
    (item,) = batch
    match item.entry:
        case GetEntry():
            return (yield from execute_overwrite(replica, epoch, view, item))
        case MergeEntry():
            return (yield from execute_merge(replica, epoch, view, item))
        case MutateEntry():
            return (yield from execute_mutation(replica, epoch, view, item))
        case RewriteEntry():
            return (yield from execute_rewrite(replica, epoch, view, item))
        case DropEntry() | FailEntry():
            return (yield from execute_drop(replica, epoch, view, item))
        case AlterEntry() | StorageEntry() | ViewEntry() | RollEntry() | SettleEntry():
            return (yield from finish(replica, epoch, (item.index,)))
        case LostEntry():
            return (yield from execute_lost(replica, epoch, view, item))


# --- inserts ----------------------------------------------------------------------------------------------------------------


def _execute_inserts(
    replica: Replica, epoch: fx.Epoch, view: View, batch: tuple[Queued, ...]
) -> fx.Procedure[ExecuteOutcome]:
    wanted, lost, failed = yield from _publish_own(replica, view, batch)
    missing = yield from _fetch(replica, wanted)
    instead = yield from _fetch_later_forms(replica, view, tuple(fetch.part for _, fetch, _ in missing))
    trouble = {
        index: reason
        for index, fetch, reason in missing
        if not any(cover.covers(parse_part(fetch.part)) for cover in instead)
    } | failed
    done = tuple(item for item in batch if item.index not in trouble)
    postponed = tuple(Postponed(index, reason) for index, reason in sorted(trouble.items()))
    if not done:
        return Executed((), postponed)
    brought = tuple(part for item in done for part in _wanted(replica, view, item) if part[0].name not in lost)
    first, later = _to_count(replica, view, done, brought, frozenset(index for index, _ in wanted))
    outcome = yield from _register(replica, epoch, view, done, brought, instead, count_first(replica, first))
    yield from clear_overtaken(replica, view, done, outcome)
    if not isinstance(outcome, Executed):
        return outcome
    yield from join_all(replica, epoch, (*first, *later) if outcome.left_out else later)
    return Executed(outcome.done, postponed)


def _to_count(
    replica: Replica,
    view: View,
    done: tuple[Queued, ...],
    brought: tuple[tuple[Part, str], ...],
    fetched: frozenset[fx.LogIndex],
) -> tuple[_Inserts, _Inserts]:
    """Return the open inserts for which the replica joins the quorum in the same commit, and those that it joins afterwards."""
    first: list[tuple[fx.LogIndex, GetEntry]] = []
    later: list[tuple[fx.LogIndex, GetEntry]] = []
    here = frozenset(part for part, _ in brought)
    for item in done:
        assert isinstance(item.entry, GetEntry)
        if item.index not in view.opened:
            continue
        is_others = item.entry.replica != replica.name
        # A joint insert ends in all its shards at once, so their nodes have to be read.
        if is_others and item.entry.joint is UNSET:
            first.append((item.index, item.entry))
        # The insert's own commit counts its writer, unless the writer lost its files and fetched them.
        elif is_others or item.index in fetched or not all(part in here for part, _ in _parts(item)):
            later.append((item.index, item.entry))
    return tuple(first), tuple(later)


def _fetch_later_forms(replica: Replica, view: View, parts: tuple[str, ...]) -> fx.Procedure[dict[Part, str]]:
    """Fetch covers of parts that no replica has any more; return the fetched ones, with their content hashes."""
    covers = dict.fromkeys(view.parts.covering(parse_part(name)) for name in parts)
    fetched: dict[Part, str] = {}
    for cover in covers:
        if cover is not None and cover.name not in parts and not view.hides_kept(cover):
            content_hash = yield from fetch_anywhere(replica, cover)
            if content_hash is not None:
                fetched[cover] = content_hash
    return fetched


def _register(
    replica: Replica,
    epoch: fx.Epoch,
    view: View,
    done: tuple[Queued, ...],
    brought: tuple[tuple[Part, str], ...],
    instead: dict[Part, str],
    counting: tuple[fx.Operation, ...],
) -> fx.Procedure[ExecuteOutcome]:
    """Register the parts of inserts, or what was fetched in their place; and count the replica, if that holds."""
    operations: list[fx.Operation] = []
    shown: list[Part] = []
    for part, content_hash in brought:
        if not any(cover.covers(part) for cover in instead):
            operations.append(register(replica, part, content_hash))
            shown.append(part)
    gone: list[Part] = []
    for cover, content_hash in instead.items():
        replaced = view.held.between(cover.partition, cover.block_min, cover.block_max)
        operations += [register(replica, cover, content_hash), *(deregister(replica, part) for part in replaced)]
        shown.append(cover)
        gone += replaced
    indexes = tuple(item.index for item in done)
    return (yield from finish(replica, epoch, indexes, tuple(operations), tuple(shown), tuple(gone), counting))


def _publish_own(
    replica: Replica, view: View, batch: tuple[Queued, ...]
) -> fx.Procedure[tuple[tuple[tuple[fx.LogIndex, fx.FetchPart], ...], tuple[str, ...], dict[fx.LogIndex, str]]]:
    """Publish what this replica staged itself.

    Returns
    -------
    The parts that have to be fetched, each with the index of its entry; the names of parts that only a detach needs and that
    are not here, for which no entry waits; and the entries with such parts that the disk has failed to publish.
    """
    wanted: list[tuple[fx.LogIndex, fx.FetchPart]] = []
    lost: list[str] = []
    failed: dict[fx.LogIndex, str] = {}
    for item in batch:
        assert isinstance(item.entry, GetEntry)
        parts = _wanted(replica, view, item)
        missing = tuple(part.name for part, _ in parts)
        if item.entry.replica == replica.name:
            published: fx.Published | fx.StoreFailed = fx.Published()
            if parts:
                published = yield fx.Publish(item.entry.insert, tuple((part.partition, part.name) for part, _ in parts))
            # After `StoreFailed` the staging may have the only copy of the rows: it stays.  Other replicas may send the parts
            # of the table; they never fetch what only a detach needs, so the entry waits for the disk.
            if isinstance(published, fx.Published):
                missing = published.missing
            elif not all(view.wants(part) for part, _ in parts):
                failed[item.index] = published.reason
                continue
        wanted += [
            (item.index, fx.FetchPart(part.name, content_hash, (item.entry.replica,)))
            for part, content_hash in parts
            if part.name in missing and view.wants(part)
        ]
        lost += [part.name for part, _ in parts if part.name in missing and not view.wants(part)]
    return tuple(wanted), tuple(lost), failed


def _wanted(replica: Replica, view: View, item: Queued) -> tuple[tuple[Part, str], ...]:
    """Return the parts of an insert that are to be brought, each with its content hash."""
    assert isinstance(item.entry, GetEntry)
    own = item.entry.replica == replica.name
    return tuple(row for row in _parts(item) if view.wants(row[0]) or (own and view.must_keep(row[0])))


def _parts(item: Queued) -> tuple[tuple[Part, str], ...]:
    """Return the parts of an insert, each with its content hash."""
    assert isinstance(item.entry, GetEntry)
    return tuple((inserted_part(part.partition, item.index), part.content_hash) for part in item.entry.parts)


def _fetch(
    replica: Replica, wanted: tuple[tuple[fx.LogIndex, fx.FetchPart], ...]
) -> fx.Procedure[tuple[tuple[fx.LogIndex, fx.FetchPart, str], ...]]:
    """Fetch parts, from their writers and if that fails from any replica that registered them; return the failures."""
    if not wanted:
        return ()
    left = yield from _try_fetch(wanted)
    if left:
        elsewhere = yield from sources_of(replica, tuple(fetch for _, fetch, _ in left))
        again = tuple((index, elsewhere[fetch.part]) for index, fetch, _ in left if fetch.part in elsewhere)
        still = yield from _try_fetch(again)
        left = tuple(row for row in left if row[1].part not in elsewhere) + still
    return left


def _try_fetch(
    wanted: tuple[tuple[fx.LogIndex, fx.FetchPart], ...],
) -> fx.Procedure[tuple[tuple[fx.LogIndex, fx.FetchPart, str], ...]]:
    """Fetch all at once; return those that failed, with the reason."""
    if not wanted:
        return ()
    outcomes = yield fx.FetchMany(tuple(fetch for _, fetch in wanted))
    return tuple(
        (index, fetch, outcome.reason)
        for (index, fetch), outcome in zip(wanted, outcomes, strict=True)
        if not isinstance(outcome, fx.Fetched)
    )
