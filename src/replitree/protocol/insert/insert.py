"""Insert: a group of requests becomes part of the table in one commit, or leaves only garbage in staging.

Order of publication.  A crash between any two steps leaves the table without the insert or with all of it:

1. *stage*    the rows of the group as part files under a fresh id, synced    before: nothing; after: garbage for the sweep
2. *commit*   the block ids and the log entry, one transaction                from here on the insert exists, for every replica
3. *publish*  rename the staged parts to their names                          repeated, and synced, by `execute`
4. *answer*   every client of the group gets the index; with a quorum, when it is reached or given up (`protocol.insert.quorum`)

*Overtaken.*  A later entry may remove the insert's parts from the table, and the executor their files, before step 3.  When
files are missing at step 3, the insert looks whether this process has executed its entry (`_was_executed`).  If so, its clients
are told that it was inserted.  Otherwise the disk has lost the rows, and the outcome is unknown.

The log assigns the number: the index of the entry is the block number of its parts.  No number is allocated before the commit,
so no reader has to wait for numbers in flight.

*Duplicates.*  The commit is refused as a whole if one block id exists.  The group is staged again without the requests whose
block ids exist, and those are answered with the index of the insert that they repeat.  If every part that the earlier insert
wrote was dropped since, its block id is free again: the next try takes it over.  A request that repeats an insert with a quorum
waits for that quorum.

*Streams.*  An insert that carries a batch of a stream is a group of its own.  It takes no block id: its commit moves the node
of the stream, and that node tells its duplicates (`protocol.insert.stream`).

*Views.*  Where the table has materialised views, the commit appends the rows of each to its target, too
(`protocol.insert.views`).  It proves that the table has the views that were staged; if they have changed, the group is staged
again.

*Failures.*  If a group can't be staged, nothing was sent: each of its requests is staged and committed alone, so that a failure
is answered to the request that caused it.  `NotInserted.why` says what it proves.

*Unknown.*  A read proves nothing while the lost request may still be on its way.  So the epoch is renewed first: after that
the commit has taken place or never will, and a read is final.  A missing block id proves nothing either, because ids are
forgotten (`protocol.upkeep.clean_blocks`): then the log is searched.  It is searched for every insert with a quorum, which may
have failed meanwhile and left its ids to another one, and for every batch of a stream, whose node may have moved on.  If no new
epoch can be had, or the log does not reach back, the clients are answered "outcome unknown", never "failed".

Absent on purpose: locks, clocks, and retries of a commit that was not certainly refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TypeAlias

from msgspec import UNSET

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import (
    BLOCK_PARTITIONS_MAX,
    EVERY_PARTITION,
    BlockValue,
    Entry,
    GetEntry,
    decode_block,
    encode_block,
    encode_entry,
    part_names,
    quorum_of,
)
from replitree.protocol.core.joint_tokens import ShardInsert
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.log import NOT_SENT, ROLLED, reaches_back, read_start, search_log
from replitree.protocol.core.streams import StreamBatch, StreamValue
from replitree.protocol.core.views import NO_VIEWS, Views
from replitree.protocol.insert.quorum import Awaited, open_quorum
from replitree.protocol.insert.stream import StreamStands, decide
from replitree.protocol.insert.views import (
    FROM_CLIENTS,
    TRIES_MAX,
    Filling,
    InsertOrigin,
    Outdated,
    joint_operations,
    read_filling,
    read_views,
    refusal,
)
from replitree.protocol.membership.activate import REPLACED, Activated, NoEpoch, Replaced, newer_epoch, renew_epoch

SEARCH_WINDOW = 16
"""Log entries read at once in the search for an insert's index."""

EPOCHS_MAX = 8
"""How many epochs one commit may be tried under before its clients are told to repeat."""


@dataclass(frozen=True, slots=True)
class Request:
    """One client's insert within a group."""

    id: fx.RequestId
    block: fx.BlockId


@dataclass(frozen=True, slots=True)
class Inserter:
    """The replica that inserts.

    Attributes
    ----------
    replica, me
        As in `activate`.
    log_from
        An index that the log had reached before this insert began; later searches for the entry start there.
    schema_version
        Version of the columns that the rows have.
    drops
        Partitions, or `EVERY_PARTITION`, that the insert replaces.
    quorum
        How many replicas must have the rows before the insert counts; 0: it counts at once.  Not together with `drops`.
    batch
        The batch of a stream that its only request is.
    takes_over
        Whether the batch's query may replace another one, whatever batch that one has sent last.
    views
        The views that the table had when an insert looked last; the commit proves that it has these.
    origin
        Where the rows come from: it tells whether the views get them.
    """

    replica: Replica
    me: bytes
    log_from: fx.LogIndex
    schema_version: int = 1
    drops: tuple[str, ...] = ()
    quorum: int = 0
    batch: StreamBatch | None = None
    takes_over: bool = False
    views: Views = NO_VIEWS
    origin: InsertOrigin = FROM_CLIENTS

    @property
    def is_decided_by_node(self) -> bool:
        """Whether its only request is a batch or a backfill: the node that it moves tells whether it is a duplicate."""
        return self.batch is not None or self.origin.backfill is not None


@dataclass(frozen=True, slots=True)
class InLog:
    """The group is in the log at `index`; `epoch` is the one under which its commit was sent."""

    index: fx.LogIndex
    epoch: fx.Epoch


@dataclass(frozen=True, slots=True)
class NotInLog:
    """The group is certainly not in the log: `taken` are the block ids that exist already."""

    taken: tuple[fx.BlockId, ...]


@dataclass(frozen=True, slots=True)
class NodeMoved:
    """The group is certainly not in the log: its stream, or the view that it fills, has moved since it was read."""


@dataclass(frozen=True, slots=True)
class Gone:
    """The group is certainly not in the log, and this process can't put it there: `reason` is for the client."""

    reason: str


@dataclass(frozen=True, slots=True)
class FoundEntry:
    """The log entry of an insert."""

    index: fx.LogIndex
    entry: GetEntry


@dataclass(frozen=True, slots=True)
class Freed:
    """Block ids whose inserts were dropped, each with the version of its node: they may be used again, once.

    `stream`: where the stream of the group's batch stands, which its commit moves on; `filling`: the view that it fills.
    """

    blocks: tuple[tuple[fx.BlockId, fx.Version], ...] = ()
    stream: StreamStands | None = None
    filling: Filling | None = None

    def take(self, table: TablePlace, block: fx.BlockId, value: bytes) -> fx.Create | fx.Set:
        """Return the operation that makes a block id this insert's."""
        path = layout.block(table, block)
        version = dict(self.blocks).get(block)
        return fx.Create(path, value) if version is None else fx.Set(path, value, version)


@dataclass(frozen=True, slots=True)
class GroupEnd:
    """What the end of a group leaves to do.

    Attributes
    ----------
    awaited
        The requests that are still to be answered (`quorum.answer_awaited`).
    must_activate
        The process must activate again: requests were answered "outcome unknown", and a new epoch has to fence their commit;
        or the answer to a commit was lost, and the look after it has found another process in this one's place.
    views
        The views that the table was found to have; None: the group did not have to look.
    """

    awaited: tuple[Awaited, ...] = ()
    must_activate: bool = False
    views: Views | None = None

    def __or__(self, other: GroupEnd) -> GroupEnd:
        awaited, must_activate = (*self.awaited, *other.awaited), self.must_activate or other.must_activate
        return GroupEnd(awaited, must_activate, other.views or self.views)


@dataclass(frozen=True, slots=True)
class _Left:
    """The rest of a group after a try: the requests to be staged again, ids that are free again, and what the others leave."""

    requests: tuple[Request, ...] = ()
    freed: Freed = Freed()
    end: GroupEnd = GroupEnd()


Logged: TypeAlias = InLog | NotInLog | NodeMoved | Outdated | Gone | Replaced | fx.InDoubt
"""What the log says of a group; after `InDoubt` its block ids tell later."""


def insert(
    inserter: Inserter, epoch: fx.Epoch, staging: fx.StagingId, requests: Sequence[Request]
) -> fx.Procedure[GroupEnd]:
    """Insert a group of requests as one log entry and answer each of them, but for those that wait for a quorum.

    Parameters
    ----------
    inserter, epoch
        The replica that inserts, and the epoch under which it is active.
    staging
        Names the group; its n-th staging is ``<staging>.<n>``.
    requests
        At least one; their block ids are all different.

    Returns
    -------
    The requests that are still to be answered, and whether a commit of the group is in doubt.
    """
    assert requests
    assert not (inserter.quorum and inserter.drops)
    assert len({request.block for request in requests}) == len(requests)
    assert not inserter.is_decided_by_node or len(requests) == 1
    left = (yield from _decide(inserter, requests[0])) if inserter.is_decided_by_node else _Left(tuple(requests))
    return left.end | (yield from _insert(inserter, epoch, staging, count(), left))


def _insert(
    inserter: Inserter, epoch: fx.Epoch, staging: fx.StagingId, numbers: Iterator[int], left: _Left
) -> fx.Procedure[GroupEnd]:
    """Insert the requests that are left; the next staging has the next of `numbers`."""
    end, problem = GroupEnd(), "its block ids come and go; try again"
    # Every staging after the first has a request less, or an id more that is free, or comes after a look at the views.
    for _ in range(2 * len(left.requests) + 1 + TRIES_MAX):
        if not left.requests:
            return end
        why_not = refusal(inserter.replica.table, inserter.views, inserter.drops, inserter.quorum)
        if why_not:
            return end | (yield from _refuse(inserter, left.requests, why_not))
        staged_as = fx.StagingId(f"{staging}.{next(numbers)}")
        views = inserter.views.to_stage if inserter.origin.fires else ()
        staged = yield fx.Stage(staged_as, tuple(request.id for request in left.requests), views)
        if isinstance(staged, fx.StoreFailed):
            yield fx.RemoveStaging(staged_as)
            # A view that can't be computed may have been dropped, perhaps with its target, since this process has looked.
            found = (yield from read_views(inserter.replica.table)) if views else inserter.views
            if found != inserter.views:
                inserter, problem = replace(inserter, views=found), staged.reason
                end |= GroupEnd(views=found)
                continue
            if len(left.requests) == 1:
                why = fx.Why.REQUEST if staged.by_request else fx.Why.STORE
                yield from _answer_all(left.requests, fx.NotInserted(staged.reason, why))
            else:
                # Nothing was sent yet.  One request may have rows that can't be written, so each is inserted by itself.
                for request in left.requests:
                    alone = _Left((request,), left.freed)
                    end |= yield from _insert(inserter, epoch, staging, numbers, alone)
            return end
        logged = yield from _put_in_log(inserter, epoch, staged_as, staged, left.requests, left.freed)
        if isinstance(logged, Outdated):
            yield fx.RemoveStaging(staged_as)
            # The epoch may have been renewed meanwhile; if so, the next commit is refused, and finds the newer one.
            inserter, problem = replace(inserter, views=(yield from read_views(inserter.replica.table))), logged.reason
            end |= GroupEnd(views=inserter.views)
            continue
        left = yield from _finish(inserter, staged_as, staged.parts, left.requests, logged)
        end |= left.end
    yield from _answer_all(left.requests, fx.NotInserted(problem))
    return end


def _refuse(inserter: Inserter, requests: tuple[Request, ...], reason: str) -> fx.Procedure[GroupEnd]:
    """Answer requests that can't be taken: those that repeat an insert as duplicates, the others with the reason."""
    end = GroupEnd()
    if inserter.batch is None:
        yield fx.Sync(layout.blocks(inserter.replica.table))
        taken = yield from _taken(inserter.replica.table, tuple(request.block for request in requests))
        left = yield from _answer_duplicates(inserter.replica.table, requests, taken)
        requests, end = left.requests, left.end
    yield from _answer_all(requests, fx.NotInserted(reason, fx.Why.REQUEST))
    return end


def _taken(table: TablePlace, blocks: tuple[fx.BlockId, ...]) -> fx.Procedure[tuple[fx.BlockId, ...]]:
    """Return those of some block ids that exist."""
    many: fx.Many = yield fx.GetMany(tuple(layout.block(table, block) for block in blocks))
    return tuple(block for block, node in zip(blocks, many.nodes, strict=True) if node is not None)


def _finish(
    inserter: Inserter,
    staging: fx.StagingId,
    parts: tuple[fx.StagedPart, ...],
    requests: tuple[Request, ...],
    logged: InLog | NotInLog | NodeMoved | Gone | Replaced | fx.InDoubt,
) -> fx.Procedure[_Left]:
    """Publish or clear away what was staged and answer; return the requests that must be staged again, or wait."""
    match logged:
        case InLog(index, epoch):
            entry = _entry(inserter, staging, parts, tuple(request.block for request in requests))
            # If this fails, `execute` publishes again: the staged files are synced.
            published = yield fx.Publish(entry.insert, part_names(entry, index), synced=False)
            is_missing = isinstance(published, fx.Published) and bool(published.missing)
            lost = is_missing and not (yield from _was_executed(inserter.replica, epoch, index))
            if quorum_of(entry) and not lost:
                return _Left(end=GroupEnd((Awaited(index, entry, tuple(request.id for request in requests)),)))
            yield from _answer_all(requests, fx.MaybeInserted() if lost else fx.Inserted(index))
            return _Left(end=GroupEnd(must_activate=lost))
        case NotInLog(taken):
            yield fx.RemoveStaging(staging)
            left = yield from _answer_duplicates(inserter.replica.table, requests, taken)
            # The id of a backfill is free again when its rows were dropped; the view says that it is filled all the same.
            return (
                (yield from _decide(inserter, requests[0]))
                if left.requests and inserter.origin.backfill is not None
                else left
            )
        case NodeMoved():
            yield fx.RemoveStaging(staging)
            return (yield from _decide(inserter, requests[0]))
        case Gone(reason):
            yield fx.RemoveStaging(staging)
            yield from _answer_all(requests, fx.NotInserted(reason))
        case Replaced():
            yield fx.RemoveStaging(staging)
            yield from _answer_all(requests, fx.NotInserted(REPLACED))
            return _Left(end=GroupEnd(must_activate=True))
        case fx.InDoubt():
            yield from _answer_all(requests, fx.MaybeInserted())
            return _Left(end=GroupEnd(must_activate=True))
    return _Left()


def _was_executed(replica: Replica, epoch: fx.Epoch, index: fx.LogIndex) -> fx.Procedure[bool]:
    """Whether this process has executed its insert at `index` under the epoch of the insert's commit.

    Then the parts were registered, or a later entry had removed them from the table before they were.
    """
    # The nodes are read in this order.  The pointer had passed the entry when the queue did not have it, so it was executed.
    # The epoch was still the same then, so no other process, no recovery and no `lost` entry has taken it out of the queue.
    many: fx.Many = yield fx.GetMany(
        (layout.log_pointer(replica), layout.queue_entry(replica, index), layout.host(replica))
    )
    pointer, queued, host = many.nodes
    if pointer is None or queued is not None or host is None:
        return False
    return layout.pointer_index(pointer.value) > index and fx.Epoch(host.version) == epoch


def _put_in_log(
    inserter: Inserter,
    epoch: fx.Epoch,
    staging: fx.StagingId,
    staged: fx.Staged,
    requests: tuple[Request, ...],
    freed: Freed,
) -> fx.Procedure[Logged]:
    """Commit the block ids, or the move of the stream, and the entries, under as many epochs as it takes."""
    replica, table = inserter.replica, inserter.replica.table
    blocks = () if inserter.batch is not None else tuple(request.block for request in requests)
    entry = _entry(inserter, staging, staged.parts, blocks)
    conditions = _conditions(inserter, staging, staged, blocks, freed)
    operations = (
        *conditions.moves,
        *conditions.takes,
        # These checks come after the ids: a repeated insert must learn that it is in the table, not that the log has gone on.
        *conditions.unchanged,
        *conditions.joint,
        *open_quorum(replica, entry),
        fx.Create(layout.log_create(table), encode_entry(entry), sequential=True),
    )
    for _ in range(EPOCHS_MAX):
        fenced: Activated | Replaced | InLog | Gone | fx.InDoubt
        outcome: fx.Committed = yield fx.Commit(fx.Check(layout.host(replica), epoch), *operations)
        match outcome:
            case fx.Applied(created=created):
                return InLog(layout.index_of(table, created[-1]), epoch)
            case fx.Refused(operation=operation) if operation in conditions.takes:
                # All the block ids of the group that exist, not only the first.
                return NotInLog((yield from _taken(table, blocks)))
            case fx.Refused(operation=fx.Create() | fx.Set()):
                return conditions.refused(outcome)
            case fx.Refused(operation=operation) if operation in (
                *conditions.moves,
                *conditions.unchanged,
                *conditions.joint,
            ):
                return conditions.refused(outcome)
            case fx.Refused():
                newer = yield from newer_epoch(inserter.replica, inserter.me, epoch)
                fenced = Gone(newer.reason) if isinstance(newer, NoEpoch) else newer
            case fx.Unknown(is_sent=False):
                return Gone(NOT_SENT)
            case fx.Unknown():
                fenced = yield from _settle(inserter, epoch, staging, blocks)
        if not isinstance(fenced, Activated):
            return fenced
        epoch = fenced.epoch
    return Gone("the replica's epoch changes all the time; try again")


@dataclass(frozen=True, slots=True)
class _Conditions:
    """What a commit relies on besides its epoch.

    Attributes
    ----------
    moves
        The node of its stream, or of the views of which it fills one.
    takes
        Its block ids.
    unchanged
        The open parent of the log, and the table's views.
    joint
        The targets of these views.
    """

    moves: tuple[fx.Operation, ...]
    takes: tuple[fx.Operation, ...]
    unchanged: tuple[fx.Operation, ...]
    joint: tuple[fx.Operation, ...]

    def refused(self, by: fx.Refused) -> NodeMoved | Outdated | Gone:
        """Return what it means that the commit was refused, and neither by its block ids nor by its epoch."""
        if by.operation in self.moves:
            return NodeMoved()
        if by.operation in self.joint:
            return Outdated(
                "a target of the table's materialised views takes no inserts at this replica now; try again"
            )
        if by.operation in self.unchanged:
            # The version tells: the parent is open still, and the views are others.
            is_closed = by.operation == self.unchanged[0] and by.reason is fx.Reason.NO_NODE
            return (
                Gone(ROLLED) if is_closed else Outdated("the table's materialised views change all the time; try again")
            )
        return Gone("the table is being dropped")


def _conditions(
    inserter: Inserter, staging: fx.StagingId, staged: fx.Staged, blocks: tuple[fx.BlockId, ...], freed: Freed
) -> _Conditions:
    """Return what the commit of a group relies on."""
    table, batch = inserter.replica.table, inserter.batch
    partitions = tuple(part.partition for part in staged.parts)
    known = partitions if len(partitions) <= BLOCK_PARTITIONS_MAX else UNSET
    value = encode_block(BlockValue(staging, inserter.log_from, partitions=known))
    moves: tuple[fx.Operation, ...] = ()
    if batch is not None and freed.stream is not None:
        quorum = inserter.quorum or UNSET
        moved = StreamValue(batch.query, batch.batch, staging, inserter.log_from, quorum=quorum)
        moves = freed.stream.move(table, batch, moved)
    if freed.filling is not None:
        moves = (freed.filling.fills(),)
    is_open = (fx.Check(layout.open_log(table), fx.ANY_VERSION),)
    return _Conditions(
        moves,
        tuple(freed.take(table, block, value) for block in blocks),
        inserter.views.unchanged(table) if inserter.origin.fires else is_open,
        joint_operations(staging, staged.views),
    )


def _entry(
    inserter: Inserter, staging: fx.StagingId, parts: tuple[fx.StagedPart, ...], blocks: tuple[fx.BlockId, ...]
) -> GetEntry:
    name, version = inserter.replica.name, inserter.schema_version
    if inserter.batch is not None:
        drops, quorum = inserter.drops or UNSET, inserter.quorum or UNSET
        return GetEntry(name, staging, parts, (), version, 4, drops, quorum, inserter.batch)
    if inserter.origin.backfill is not None:
        return GetEntry(name, staging, parts, blocks, version, view=inserter.origin.backfill.view)
    if inserter.drops:
        return GetEntry(name, staging, parts, blocks, version, format=2, drops=inserter.drops)
    if inserter.quorum:
        return GetEntry(name, staging, parts, blocks, version, format=3, quorum=inserter.quorum)
    return GetEntry(name, staging, parts, blocks, version)


def _settle(
    inserter: Inserter, epoch: fx.Epoch, staging: fx.StagingId, blocks: tuple[fx.BlockId, ...]
) -> fx.Procedure[Activated | Replaced | InLog | fx.InDoubt]:
    """Find out what became of a commit whose outcome is unknown: fence it, then look.

    Returns
    -------
    `Activated`, `Replaced`: it never took place, and this process has a newer epoch, or another process has the replica.
    """
    table = inserter.replica.table
    renewed = yield from renew_epoch(inserter.replica, inserter.me, epoch)
    if not isinstance(renewed, Activated | Replaced):
        return fx.InDoubt()
    # No `Sync`: this session has seen the fence, or began after it, and none begins with an older state (`reconnect`).
    # A batch of a stream has no block id, and the node of its stream may have moved on: the log alone tells.
    many = (yield fx.GetMany((layout.block(table, blocks[0]),))) if blocks else fx.Many((None,))
    found = many.nodes[0]
    # Without an id the commit never took place, or the id was cleaned since.
    own = BlockValue(staging, inserter.log_from)
    value = own if found is None else decode_block(found.value, layout.block(table, blocks[0]))
    if value.insert != staging and inserter.quorum:
        found, value = None, own
    if value.insert == staging:
        entry = yield from find_insert(table, value)
        if entry is not None:
            return InLog(entry.index, epoch)
        if found is not None or not (yield from reaches_back(table, inserter.log_from)):
            return fx.InDoubt()
    return renewed


def find_insert(table: TablePlace, block: BlockValue | StreamValue | ShardInsert) -> fx.Procedure[FoundEntry | None]:
    """Search the log for the entry of the insert that `block` names.  None: the entry is gone."""

    def is_it(index: fx.LogIndex, entry: Entry) -> FoundEntry | None:
        return FoundEntry(index, entry) if isinstance(entry, GetEntry) and entry.insert == block.insert else None

    return (yield from search_log(table, fx.LogIndex(block.log_from), is_it, SEARCH_WINDOW))


def _answer_duplicates(
    table: TablePlace, requests: tuple[Request, ...], taken: tuple[fx.BlockId, ...]
) -> fx.Procedure[_Left]:
    """Answer the requests whose block ids are taken; return the others, the ids that are free again, and those that wait."""
    free: list[tuple[fx.BlockId, fx.Version]] = []
    awaited: list[Awaited] = []
    answered: list[Request] = []
    for request in requests:
        if request.block in taken:
            path = layout.block(table, request.block)
            many = yield fx.GetMany((path,))
            node = many.nodes[0]
            value = None if node is None else decode_block(node.value, path)
            found = None if value is None else (yield from find_insert(table, value))
            if node is not None and value is not None and (yield from _was_dropped(table, value, found)):
                free.append((request.block, node.version))
            elif node is not None:
                answered.append(request)
                awaited += yield from _repeat(request, found)
    again = tuple(request for request in requests if request not in answered)
    return _Left(again, Freed(tuple(free)), GroupEnd(tuple(awaited)))


def _decide(inserter: Inserter, request: Request) -> fx.Procedure[_Left]:
    """Answer a batch, or a backfill, that the table has, or may not have; otherwise return it, with the node that it moves."""
    table, batch = inserter.replica.table, inserter.batch
    if inserter.origin.backfill is not None:
        filling = yield from read_filling(inserter.origin.backfill)
        if isinstance(filling, Filling):
            return _Left((request,), Freed(filling=filling))
        yield fx.Answer(request.id, filling)
        return _Left()
    assert batch is not None
    decided = yield from decide(table, batch, takes_over=inserter.takes_over)
    if isinstance(decided, StreamStands):
        return _Left((request,), Freed(stream=decided))
    if isinstance(decided, fx.NotInserted):
        yield fx.Answer(request.id, decided)
        return _Left()
    found = yield from find_insert(table, decided)
    return _Left(end=GroupEnd((yield from _repeat(request, found))))


def _repeat(request: Request, found: FoundEntry | None) -> fx.Procedure[tuple[Awaited, ...]]:
    """Answer a request that repeats an insert; return it if it has to wait for that insert's quorum."""
    if found is not None and quorum_of(found.entry):
        return (Awaited(found.index, found.entry, (request.id,), is_duplicate=True),)
    yield fx.Answer(request.id, fx.Duplicate(None if found is None else found.index))
    return ()


def _was_dropped(table: TablePlace, block: BlockValue, found: FoundEntry | None) -> fx.Procedure[bool]:
    """Whether every partition that an insert wrote to was dropped after it: its rows may be inserted again."""
    if block.dropped is True:
        return True
    if found is not None:
        last, written = found.index, tuple(part.partition for part in found.entry.parts)
    else:
        begins = yield from read_start(table)
        if begins is None or block.partitions is UNSET:
            return False
        # An entry that is gone was below the first one.  Before the cleaner removes the drop's entry too, it marks the block
        # as dropped (`clean_blocks`).
        last, written = fx.LogIndex(begins.first - 1), block.partitions
    many: fx.Many = yield fx.GetMany(tuple(layout.drop(table, partition) for partition in (EVERY_PARTITION, *written)))
    below = tuple(0 if node is None else int(node.value) for node in many.nodes)
    return all(max(below[0], own) > last for own in below[1:])


def _answer_all(requests: tuple[Request, ...], answer: fx.ClientAnswer) -> fx.Procedure[None]:
    for request in requests:
        yield fx.Answer(request.id, answer)
