"""Joint insert: one commit appends an entry to the log of each shard that gets rows, or nothing happens anywhere.

The coordinator is a replica of one of these shards.  The others are *participants*, each a replica of one shard
(`protocol.sharded.prepare`)::

    Check(coordinator host @ epoch), Create(tokens/<token>) for each client's token, Check(map @ version),
    for each participant in another process: Check(host @ epoch), Check(is_active), Delete(prepared/<staging id>),
    for each participant in the coordinator's process: Check(host @ epoch),
    with a quorum: Create(joint/<id>), for each shard: Create(quorum/status/<staging id>),
    for each shard: Check(its log's open parent), Create(log-…)

So all shards have their entry or none has (J1), at one transaction id of coordination.  After the commit each `get` is an entry
as any other: the replica that has staged it pulls it, and its executor publishes the files, as after a crash between the commit
and the publication of an insert.  The coordinator may die.

============================================  ==================================================================
what the coordinator finds when it commits    what its caller does
============================================  ==================================================================
the token exists                              the insert is a duplicate of the one that the token names (or see below)
the map has another version                   `MapChanged`: split the rows again, by the new map
a participant is gone, or its epoch is newer  `ParticipantGone`: prepare that shard's rows again
its node is gone: it has abandoned            the same
a log has gone on below a new parent          the same
the coordinator's own epoch is newer          nothing: the coordinator goes on under the newer one
a token of several exists                     `TokensTaken`: insert the rows of these alone, and those of the others again
============================================  ==================================================================

*Token.*  It stands for the whole insert, whichever shards get its rows: the same token under another map is a duplicate (D4).
The check of the token comes first, so a repetition is told so, whatever has changed since.  Its value names the joint insert
and each entry.

*Several tokens.*  Rows of several clients that are of the same shards go together, as one joint insert whose entries have the
rows of all.  Each client's token stands for it.  Whose token is taken has its rows among those of the others, so all are staged
again without them.

*Views.*  The rows that materialised views of the table make of an insert are shares of other tables' shards.  They are entries
of the same commit, which also checks the maps by which they were split (`JointInsert.beside`; `protocol.sharded.views`).  The
token belongs to the table that the rows were inserted into, and names the entries in its shards only.

*Dropped.*  When everything that the token's insert has brought was dropped after it, the token is taken over, at the version
that was read: of several that find it free one gets it.  The logs tell, as long as they have the drops (`_is_free`).

*Fencing.*  ``host @ epoch`` proves that no activation of the participant has swept what was staged; the deletion of the node,
that the participant has not abandoned it, and will not.  ``is_active`` proves less: that the participant had a session, so the
rows are not at a machine that is known to be off.

*Unknown.*  The coordinator renews its own epoch: after that the commit has taken place or never will.  Then it looks at the
token.  A missing token, or one of another insert, proves nothing, because tokens are forgotten in time: then it searches the
log of its own shard.  If that does not reach back, or no new epoch can be had, the answer is "unknown", never "failed".

*Quorum.*  The insert is open in all its shards from its commit on, and ends in all of them at once
(`protocol.insert.joint_quorum`).  If it fails, its token is free.

Absent on purpose: notes of drops that have left the logs, and views of an insert with a quorum.  Batches of streams are in
`protocol.sharded.joint_batch`, inserts that overwrite in `protocol.sharded.overwrite`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import msgspec
from msgspec import UNSET

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import (
    EVERY_PARTITION,
    DropEntry,
    Entry,
    GetEntry,
    RewriteEntry,
    decode_entry,
    dropped_partitions,
    encode_entry,
    quorum_of,
)
from replitree.protocol.core.joint_tokens import JointValue, ShardInsert, TokenValue, decode_token, encode_token
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.core.log import NOT_SENT, reaches_back, search_log
from replitree.protocol.insert.insert import EPOCHS_MAX
from replitree.protocol.insert.quorum import Awaited, open_quorum
from replitree.protocol.membership.activate import Activated, NoEpoch, Replaced, newer_epoch, renew_epoch
from replitree.protocol.sharded.prepare import Participant, ParticipantGone, find_written
from replitree.protocol.sharded.views import NOTHING_TO_FILL, fill

JOINT_BYTES_MAX = 512 * 1024
"""Bytes of a commit: half of what ZooKeeper takes by default in one request (``jute.maxbuffer``)."""

OPERATION_BYTES = 64
"""Bytes of an operation of a commit beside its path and its value, at most."""


GONE = "the sharded table is being dropped, or a token of rows that were dropped was forgotten just now; try again"


@dataclass(frozen=True, slots=True)
class EmptiedShard:
    """A shard that an overwrite takes rows from, and brings none.

    Attributes
    ----------
    place
        The shard, below the open parent of its log.
    log_from
        An index that its log had reached.
    """

    place: TablePlace
    log_from: fx.LogIndex


@dataclass(frozen=True, slots=True)
class RewrittenShard:
    """Of a rewrite, in the shard of a participant: the position at which its client has read it, and where its entry comes.

    `at` is None until it was judged.
    """

    since: fx.LogIndex
    at: fx.LogIndex | None = None


@dataclass(frozen=True, slots=True)
class JointInsert:
    """An insert into several shards of one sharded table.

    Attributes
    ----------
    id
        Names it.
    place
        The path of the sharded table (`layout.sharded`).
    token
        What its client names it with.
    map_version
        Version of the map by which the rows were split.
    participants
        One for each shard that gets rows; the first one is the coordinator's own.
    quorum
        How many replicas of each shard must have its rows before the insert counts; 0: it counts at once.
    also
        Tokens of other clients whose rows it has, too; then it has no quorum.
    rewrites
        Of a rewrite over shards: one for each participant (`protocol.sharded.rewrite`).
    drops, emptied
        Of an overwrite: the partitions, or `EVERY_PARTITION`, that it takes the place of in every shard, and the shards that
        get no rows (`protocol.sharded.overwrite`).
    targets
        The path of each sharded table that materialised views write to, and the version of its map by which their rows were
        split; then it has no quorum.
    fills
        The node of a view whose earlier rows it has (`protocol.sharded.views`); empty: it has none.
    """

    id: fx.JointId
    place: str
    token: fx.BlockId
    map_version: fx.Version
    participants: tuple[Participant, ...]
    quorum: int = 0
    also: tuple[fx.BlockId, ...] = ()
    drops: tuple[str, ...] = ()
    emptied: tuple[EmptiedShard, ...] = ()
    rewrites: tuple[RewrittenShard, ...] = ()
    targets: tuple[tuple[str, fx.Version], ...] = ()
    fills: str = ""

    def __post_init__(self) -> None:
        assert self.participants
        assert not ((self.drops or self.rewrites) and (self.quorum or self.also or self.targets or self.fills))
        assert not self.rewrites or (len(self.rewrites) == len(self.participants) and not self.drops)
        assert self.drops or not self.emptied
        assert not (self.quorum and (self.also or self.targets or self.fills))
        tables = {layout.sharded_of(each.replica.table) for each in self.participants}
        assert tables == {self.place, *(place for place, _ in self.targets)}
        assert len({self.token, *self.also}) == 1 + len(self.also)
        assert not self.participants[0].is_apart
        assert len({each.replica.table.path for each in self.participants}) == len(self.participants)

    @property
    def entries(self) -> tuple[tuple[TablePlace, GetEntry | RewriteEntry], ...]:
        """What it appends to the log of each shard; alone in its table it is an insert as any other."""
        if self.rewrites:
            return tuple((each.replica.table, self._rewrite_of(each)) for each in self.participants)
        gets = [
            (each.replica.table, GetEntry(each.replica.name, each.staging, each.parts, (), each.schema_version))
            for each in self.participants
        ]
        own = gets[0][1]
        gets += ((each.place, msgspec.structs.replace(own, insert=self._emptying, parts=())) for each in self.emptied)
        more: dict[str, object] = {"format": 2, "drops": self.drops} if self.drops else {}
        if self.quorum or len(gets) > 1:
            more |= {"format": 5, "quorum": self.quorum or UNSET, "joint": self.id, "shards": len(gets)}
        return tuple((table, msgspec.structs.replace(entry, **more) if more else entry) for table, entry in gets)

    def _rewrite_of(self, its: Participant) -> RewriteEntry:
        command = fx.EntryId(self.id)
        return RewriteEntry(its.replica.name, command, its.staging, its.results, its.parts, its.schema_version)

    @property
    def creates(self) -> tuple[fx.Create, ...]:
        """What appends its entries: at the end of each log, or, of a rewrite, exactly where it was judged."""
        if not self.rewrites:
            return tuple(
                fx.Create(layout.log_create(shard), encode_entry(entry), sequential=True)
                for shard, entry in self.entries
            )
        places = tuple(each.at for each in self.rewrites if each.at is not None)
        placed = zip(self.entries, places, strict=True)
        return tuple(fx.Create(layout.log_entry(shard, at), encode_entry(entry)) for (shard, entry), at in placed)

    @property
    def _emptying(self) -> fx.StagingId:
        """What names the entry of a shard that gets no rows: no replica has staged anything under it."""
        return fx.StagingId(f"{self.id}-emptied")

    @property
    def opens(self) -> tuple[fx.Operation, ...]:
        """What opens its quorum; without one, what takes the tokens of other clients, and what it says of views."""
        if not self.quorum:
            return *self.others, *self.beside
        node = fx.Create(layout.joint_insert(self.place, self.id), encode_token(JointValue(self.token, self.inserts)))
        opened = ((each, entry) for each, (_, entry) in zip(self.participants, self.entries, strict=True))
        return node, *(
            status
            for each, entry in opened
            if isinstance(entry, GetEntry)
            for status in open_quorum(each.replica, entry)
        )

    @property
    def others(self) -> tuple[fx.Create, ...]:
        """What takes the tokens of other clients."""
        value = encode_token(TokenValue(self.id, self.inserts))
        return tuple(fx.Create(layout.joint_token(self.place, each), value) for each in self.also)

    @property
    def inserts(self) -> tuple[ShardInsert, ...]:
        """What its token says of each entry in its own table."""
        its = [(each.replica.table, each.staging, each.log_from) for each in self.participants]
        its += ((each.place, self._emptying, each.log_from) for each in self.emptied)
        own = (each for each in its if layout.sharded_of(each[0]) == self.place)
        return tuple(ShardInsert(table.name, table.incarnation, staging, begin) for table, staging, begin in own)

    @property
    def beside(self) -> tuple[fx.Check | fx.Set, ...]:
        """What proves the maps of the tables that views write to, and notes that a view is filled."""
        maps = tuple(fx.Check(layout.shard_map(place), version) for place, version in self.targets)
        return (*maps, fill(self.fills)) if self.fills else maps

    def outdated(self, by: fx.Refused) -> MapChanged | fx.NotInserted:
        """Return what it means that a token or a map, or the node of a view, is not as it was read."""
        if by.operation.path == self.fills:
            return fx.NotInserted(NOTHING_TO_FILL, fx.Why.REQUEST)
        return fx.NotInserted(GONE) if by.reason is fx.Reason.NO_NODE else MapChanged()


@dataclass(frozen=True, slots=True)
class JointInserted:
    """All shards have the rows: for good, or as long as the quorum is open.

    Attributes
    ----------
    joint
        The joint insert that has brought them: this one, or with `is_duplicate` the one that had the token before.
    written
        (shard, index) of each entry, also of shards that an overwrite only takes rows from; None: it has left the log.
    """

    joint: fx.JointId
    written: tuple[tuple[str, fx.LogIndex | None], ...]
    is_duplicate: bool = False


@dataclass(frozen=True, slots=True)
class MapChanged:
    """Certainly nothing was inserted: the map, or that of a view's target, is another one than the rows were split by."""


@dataclass(frozen=True, slots=True)
class MovedOn:
    """Certainly nothing was inserted: what the coordinator has read beside its insert is not so any more.

    That is the stream of a batch, the logs of the shards that an overwrite empties, or those of a rewrite.
    """


@dataclass(frozen=True, slots=True)
class TokensTaken:
    """Certainly nothing was inserted: of the tokens of several clients, earlier inserts have `tokens`."""

    tokens: tuple[fx.BlockId, ...]


JointOutcome: TypeAlias = (
    JointInserted | MapChanged | ParticipantGone | TokensTaken | fx.NotInserted | Replaced | fx.InDoubt
)
"""What became of a joint insert; after `InDoubt` the same token settles it."""


def joint_insert(
    insert: JointInsert, me: bytes, moves: tuple[fx.Operation, ...] = ()
) -> fx.Procedure[JointOutcome | MovedOn]:
    """Append the entries of a joint insert to all its shards, in one commit.

    Parameters
    ----------
    insert
        What is prepared.
    me
        The coordinator's process, as in `activate`.
    moves
        What moves the stream of a batch, and what an overwrite proves of the shards that it empties.

    Returns
    -------
    `MovedOn`: one of these was refused.

    After every outcome but `JointInserted` without `is_duplicate` and `InDoubt`, nothing of this insert is in any log, nor will
    be: what was prepared may be abandoned.
    """
    own, token = insert.participants[0], layout.joint_token(insert.place, insert.token)
    fresh = fx.Create(token, encode_token(TokenValue(insert.id, insert.inserts)))
    takes: fx.Create | fx.Set = fresh
    unchanged = fx.Check(layout.shard_map(insert.place), insert.map_version)
    proofs = tuple((each, each.proofs(is_own=each is own)) for each in insert.participants)
    appends = insert.creates
    # Those of a rewrite are refused when another entry has come.
    may_move = (*moves, *appends) if insert.rewrites else moves
    operations = (
        unchanged,
        *(proof for _, each in proofs for proof in each),
        *insert.opens,
        *moves,
        *appends,
    )
    size = sum(len(each.path) + len(getattr(each, "value", b"")) + OPERATION_BYTES for each in (fresh, *operations))
    if size > JOINT_BYTES_MAX:
        return fx.NotInserted(
            f"the insert would take {size:,} bytes of coordination in one commit, and {JOINT_BYTES_MAX:,} are the limit:"
            " insert fewer partitions at once, under a token of its own for each insert",
            fx.Why.REQUEST,
        )
    epoch = own.epoch
    for _ in range(EPOCHS_MAX):
        committed: fx.Committed = yield fx.Commit(fx.Check(layout.host(own.replica), epoch), takes, *operations)
        fenced: Activated | NoEpoch | Replaced | JointInserted | fx.InDoubt
        match committed:
            case fx.Applied(created=created):
                paths = zip(insert.entries, created[-len(appends) :], strict=True)
                return JointInserted(
                    insert.id, tuple((shard.name, layout.index_of(shard, path)) for (shard, _), path in paths)
                )
            case fx.Refused(operation=operation, reason=fx.Reason.NODE_EXISTS | fx.Reason.BAD_VERSION) if operation in (
                takes,
                *insert.others,
            ):
                taken = yield from _taken_of_several(insert) if insert.also else _taken(insert)
                if not isinstance(taken, fx.Set):
                    return taken
                takes = taken
                continue
            case fx.Refused(operation=operation) if operation in (
                takes,
                *insert.others,
                unchanged,
                *may_move,
                *insert.beside,
            ):
                # A stream that is not there any more was forgotten, and the log of an emptied shard has gone on.
                return MovedOn() if operation in may_move else insert.outdated(committed)
            case fx.Refused(operation=fx.Check(path=path)) if path == layout.host(own.replica):
                fenced = yield from newer_epoch(own.replica, me, epoch)
            case fx.Refused(operation=operation):
                gone = next((each for each, its in proofs if operation in its), None)
                return (
                    fx.NotInserted("a shard of the table is being dropped") if gone is None else gone.missed(committed)
                )
            case fx.Unknown(is_sent=False):
                return fx.NotInserted(NOT_SENT)
            case fx.Unknown():
                fenced = yield from _settle(insert, me, epoch)
        if not isinstance(fenced, Activated):
            return fx.NotInserted(fenced.reason) if isinstance(fenced, NoEpoch) else fenced
        epoch = fenced.epoch
    return fx.NotInserted("the replica's epoch changes all the time; try again")


def _find(
    beside: TablePlace, inserts: tuple[ShardInsert, ...]
) -> fx.Procedure[tuple[tuple[str, fx.LogIndex | None], ...]]:
    """Return (shard, index) of each entry of a joint insert, from the logs of its shards; None: it is in no log any more."""
    written: list[tuple[str, fx.LogIndex | None]] = []
    for each in inserts:
        shard = layout.beside(beside, each.shard)
        found = yield from find_written(shard, each.insert, fx.LogIndex(each.log_from))
        written.append((each.shard, None if found is None else found.index))
    return tuple(written)


def _taken_of_several(insert: JointInsert) -> fx.Procedure[TokensTaken | fx.NotInserted]:
    """Return which tokens of an insert are taken; none of them by itself, because a commit in doubt is settled before this."""
    tokens = (insert.token, *insert.also)
    found: fx.Many = yield fx.GetMany(tuple(layout.joint_token(insert.place, each) for each in tokens))
    named = tuple((token, node) for token, node in zip(tokens, found.nodes, strict=True) if node is not None)
    for token, node in named:
        assert decode_token(node.value, layout.joint_token(insert.place, token)).joint != insert.id
    return (
        TokensTaken(tuple(token for token, _ in named))
        if named
        else fx.NotInserted("a token was forgotten just now; try again")
    )


def _taken(insert: JointInsert) -> fx.Procedure[JointInserted | fx.NotInserted | fx.Set]:
    """Return what a token says that is taken; or what takes it over, when the rows of its insert were dropped."""
    path, own = layout.joint_token(insert.place, insert.token), insert.participants[0].replica.table
    node: fx.Node | None = yield fx.Get(path)
    if node is None:
        return fx.NotInserted("its token was forgotten just now; try again")
    value = decode_token(node.value, path)
    if value.joint != insert.id and (yield from _is_free(own, value)):
        return fx.Set(path, encode_token(TokenValue(insert.id, insert.inserts)), node.version)
    written = yield from _find(own, value.inserts)
    return JointInserted(value.joint, written, is_duplicate=value.joint != insert.id)


def _is_free(beside: TablePlace, value: TokenValue) -> fx.Procedure[bool]:
    """Whether everything that a joint insert has brought was dropped after it, as far as the logs tell.

    The drops are in the logs for as long as other entries.  An entry that is gone was before all that are there.
    """
    for each in value.inserts:
        shard = layout.beside(beside, each.shard)
        found = yield from find_written(shard, each.insert, fx.LogIndex(each.log_from))
        entry = None if found is None else found.entry
        if isinstance(entry, RewriteEntry):
            # It is a command: it takes place once.
            return False
        left = None if entry is None else {part.partition for part in entry.parts}
        if left == set():
            # An overwrite has brought nothing there.
            continue

        def is_last(_: fx.LogIndex, entry: Entry, left: set[str] | None = left) -> bool | None:
            dropped = dropped_partitions(entry) if isinstance(entry, GetEntry) else ()
            if isinstance(entry, DropEntry) and entry.block_min is None:
                dropped = (entry.partition,)
            if left is not None:
                left.difference_update(dropped)
            return True if EVERY_PARTITION in dropped or left == set() else None

        after = fx.LogIndex(each.log_from) if found is None else fx.LogIndex(found.index + 1)
        if (yield from search_log(shard, after, is_last)) is None:
            return False
    return True


def _settle(
    insert: JointInsert, me: bytes, epoch: fx.Epoch
) -> fx.Procedure[Activated | Replaced | JointInserted | fx.InDoubt]:
    """Find out what became of a commit whose outcome is unknown: fence it, then look.

    Returns
    -------
    `Activated`, `Replaced`: it never took place, and this process has a newer epoch, or another process has the replica.
    """
    own = insert.participants[0]
    renewed = yield from renew_epoch(own.replica, me, epoch)
    if not isinstance(renewed, Activated | Replaced):
        return fx.InDoubt()
    # No `Sync`: this session has seen the fence, or began after it, and none begins with an older state (`reconnect`).
    found = yield from _taken(insert)
    if isinstance(found, JointInserted) and not found.is_duplicate:
        return found
    # The token may have been forgotten since, and another insert may have taken it.
    table = own.replica.table
    written = yield from _find(table, insert.inserts)
    if written[0][1] is not None:
        return JointInserted(insert.id, written)
    return renewed if (yield from reaches_back(table, own.log_from)) else fx.InDoubt()


def find_joint(place: str, beside: TablePlace, token: fx.BlockId) -> fx.Procedure[JointInserted | None]:
    """Look which joint insert has a token, for a client that has lost its answer.

    Parameters
    ----------
    place, beside
        The path of the sharded table, and one of its shards.

    Returns
    -------
    A duplicate.  None: the token is free.  That no insert has had it is certain only if no process can still be inserting it;
    and tokens are forgotten in time.
    """
    path = layout.joint_token(place, token)
    yield fx.Sync(path)
    node: fx.Node | None = yield fx.Get(path)
    if node is None:
        return None
    value = decode_token(node.value, path)
    if (yield from _is_free(beside, value)):
        return None
    return JointInserted(value.joint, (yield from _find(beside, value.inserts)), is_duplicate=True)


def find_awaited(
    place: str, own: TablePlace, token: fx.BlockId, inserted: JointInserted, request: fx.RequestId
) -> fx.Procedure[Awaited | fx.InDoubt | None]:
    """Find out whether an insert has to wait for a quorum.

    Parameters
    ----------
    place, own, token
        The path of the sharded table, the shard whose log its coordinator follows, and the token that was asked for.
    inserted, request
        What has the token, and the request that waits.

    Returns
    -------
    None: it counts.  `InDoubt`: its quorum is open, or has failed meanwhile, and the log of this shard does not tell which.
    """
    index = dict(inserted.written).get(own.name)
    if index is not None:
        path = layout.log_entry(own, index)
        node: fx.Node | None = yield fx.Get(path)
        entry = None if node is None else decode_entry(node.value, path)
        if isinstance(entry, GetEntry) and quorum_of(entry):
            return Awaited(index, entry, (request,), inserted.is_duplicate)
    if not inserted.is_duplicate:
        return None
    # The earlier insert has no rows in this shard, or its entry is gone.  If it is open no more and has its token still, it has
    # settled: the commit by which it fails deletes the token.
    is_open: fx.Node | None = yield fx.Get(layout.joint_insert(place, inserted.joint))
    path = layout.joint_token(place, token)
    taken: fx.Node | None = None if is_open is not None else (yield fx.Get(path))
    return None if taken is not None and decode_token(taken.value, path).joint == inserted.joint else fx.InDoubt()
