"""Commands over shards: one commit appends a command to the log of every shard of a sharded table, or to none.

The replica that proposes is one of any shard::

    Check(its host @ epoch), Create(sharded/<D>/tokens/command-<id>),
    Check(map @ version), Set(sharded/<D>/commands),
    of a change of columns: Set(sharded/<D>/columns @ version),
    of a change of settings: Set(sharded/<D>/metadata @ version),
    for each shard: Check(its log's open parent),
        of a mutation: Check(columns @ version); of a change of columns: Set(columns @ version);
        of a change of settings: Set(metadata @ version), and the nodes of an object store when the shard gets its first one,
    for each shard: Create(log-…)

So a command is in all shards at one transaction of coordination (D5): a cut has it whole or not at all.  In each shard it is an
entry as any other, and concerns what that log has before it.

*Which shards.*  The map is read first, and checked at its version: the command reaches exactly the shards that there are.  If
the map has changed, or a log has gone on below another parent, all is read again.

*Columns.*  The nodes ``columns`` of the table and of all its shards have one version and one value at any moment, because no
commit writes one of them alone.  A shard that is made later gets its node with that version.

*Once.*  The command's id takes a token, one over all shards and maps.  Its value says where a search for the entry begins in
each log.  The check of the token comes first, so a repetition is told its indexes, whatever has changed since.  Tokens are
forgotten in time, as the ids of commands are.

*Unknown.*  As for a joint insert: the replica renews its epoch, and then the commit has taken place or never will.  It looks at
the token; if that is missing, it searches the log of its own shard.  If that does not reach back, or no new epoch can be
had, the answer is "unknown", never "failed".

*Detaching.*  While buckets move, rows that are on their way lie in two shards, and one of them does not show them.  A detach
would keep both aside.  So it is refused while the map has moves; moves that begin meanwhile change the map.

*Scopes.*  A mutation replaces the parts of the partitions that its entry lists.  What can match is known of each shard by
itself, so each entry has a scope of its own; without one it concerns all parts of its shard.  In a shard that by the map can
have no matching row the scope is empty.  The client asks a replica of each other shard for the scope there.  Scopes that would
make the commit too large are left out.

*Views.*  A change of columns was checked against the materialised views of the table, and those that write to it.  The map says
which version of them there is, and the commit proves the map.

Absent on purpose: rewrites, which name parts of one shard, and the wait until all shards have executed the command: its client
asks a replica of each.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import (
    EVERY_PARTITION,
    AlterEntry,
    Command,
    DropEntry,
    Entry,
    MutateEntry,
    StorageEntry,
    encode_entry,
)
from replitree.protocol.core.joint_tokens import ShardInsert, TokenValue, decode_token, encode_token
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.core.log import NOT_SENT, reaches_back, search_log
from replitree.protocol.membership.activate import Activated, NoEpoch, Replaced, newer_epoch, renew_epoch
from replitree.protocol.propose.propose import (
    COLUMNS_CHANGED,
    EPOCHS_MAX,
    VIEWS_CHANGED,
    Forgotten,
    NotProposed,
    Proposer,
    command_block,
)
from replitree.protocol.sharded import places
from replitree.protocol.sharded.command import commanded, commands, open_places
from replitree.protocol.sharded.creation import COMMIT_BYTES_MAX, bytes_of
from replitree.protocol.sharded.shard_map import Shard, ShardMap, decode_map
from replitree.protocol.state.mutation_scope import SCOPED_FORMAT

REMOVED = "this shard was removed from the table: ask a replica of another one"
MOVING = (
    "buckets of the table move between shards, so a row may lie in two of them: detach the partition when the moves have ended"
    " (`replitree shard status`)"
)


@dataclass(frozen=True, slots=True)
class ShardScope:
    """The scope of a mutation in one shard; as of `MutateEntry`."""

    partitions: tuple[str, ...]
    since: fx.LogIndex


@dataclass(frozen=True, slots=True)
class ShardsCommand:
    """A command for all shards of a table.

    Attributes
    ----------
    entry
        What is appended to each log.
    columns
        Of a change of columns: the new value of the nodes, and the version of those that it was made from.
    settings
        Of a change of settings: makes the new value of a node ``metadata`` from the old one.  Each shard has its own.
    beside
        Of a change of settings: what else the commit does in a shard, from the shard's place and the old and the new value.
    scopes
        Of a mutation: its scope in each shard, by the shard's name; one that is not there concerns all parts.
    owners
        Of a mutation: which shards can have matching rows, by the map; None: all can.
    views
        Of a change of columns: the version of the node ``views`` that it was checked against, as the map has it.
    """

    entry: Command
    columns: tuple[bytes, int] | None = None
    settings: Callable[[bytes], bytes] | None = None
    beside: Callable[[TablePlace, bytes, bytes], tuple[fx.Operation, ...]] | None = None
    scopes: Mapping[str, ShardScope] = field(default_factory=dict)
    owners: Callable[[ShardMap], Collection[Shard]] | None = None
    views: int | UnsetType = UNSET

    def __post_init__(self) -> None:
        assert isinstance(self.entry, MutateEntry | DropEntry | AlterEntry | StorageEntry)
        assert (self.columns is not None) == isinstance(self.entry, AlterEntry)

    def entry_in(self, shard: TablePlace, empty_from: fx.LogIndex | None) -> Command:
        """Return what is appended to the log of a shard.

        `empty_from`: an index that the log has reached, if the shard can have no row that the command changes.
        """
        scope = self.scopes.get(shard.name) if empty_from is None else ShardScope((), empty_from)
        if scope is None or not isinstance(self.entry, MutateEntry) or self.entry.partition != EVERY_PARTITION:
            return self.entry
        return msgspec.structs.replace(
            self.entry, format=SCOPED_FORMAT, partitions=scope.partitions, since=int(scope.since)
        )


@dataclass(frozen=True, slots=True)
class ProposedInShards:
    """The command is in the log of every shard: `written` has (shard, index); None: its entry has left that log."""

    written: tuple[tuple[str, fx.LogIndex | None], ...]


ShardsOutcome: TypeAlias = ProposedInShards | Forgotten | NotProposed | Replaced | fx.InDoubt
"""After `Replaced` the command is certainly in no log; after `InDoubt` its id tells later whether it is."""


@dataclass(frozen=True, slots=True)
class _Target:
    """A shard: its place below the open parent, an index that its log had reached, and its settings if they change.

    `is_owner`: it can have rows that the command changes.
    """

    place: TablePlace
    log_from: fx.LogIndex
    metadata: fx.Node | None
    is_owner: bool = True


@dataclass(frozen=True, slots=True)
class _Shards:
    """What was read of a sharded table before a commit."""

    map_version: fx.Version
    is_moving: bool
    views: int | UnsetType
    has_commands: bool
    metadata: fx.Node | None
    targets: tuple[_Target, ...]


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a commit does behind the check of the epoch: first `take`, and `columns` among the others."""

    take: fx.Create
    columns: tuple[fx.Operation, ...]
    operations: tuple[fx.Operation, ...]
    targets: tuple[_Target, ...]


def propose_to_shards(
    proposer: Proposer, epoch: fx.Epoch, asked: ShardsCommand, bytes_max: int = COMMIT_BYTES_MAX
) -> fx.Procedure[ShardsOutcome]:
    """Append a user's command to the logs of all shards.

    Parameters
    ----------
    proposer, epoch
        A replica of one of the shards, and the epoch under which it is active.
    asked
        The command.  When one with its id is in the logs already, that one is the answer.
    bytes_max
        How large the commit may be.
    """
    own = proposer.replica.table
    command = asked.entry.id
    for _ in range(EPOCHS_MAX):
        plan = yield from _plan(own, asked, bytes_max)
        if not isinstance(plan, _Plan):
            return plan
        committed: fx.Committed = yield fx.Commit(fx.Check(layout.host(proposer.replica), epoch), *plan.operations)
        fenced: Activated | NoEpoch | ShardsOutcome
        match committed:
            case fx.Applied(created=created):
                tables = tuple(each.place for each in plan.targets)
                paths = zip(tables, created[-len(tables) :], strict=True)
                return ProposedInShards(tuple((table.name, layout.index_of(table, path)) for table, path in paths))
            case fx.Refused(operation=operation, reason=fx.Reason.NODE_EXISTS) if operation == plan.take:
                known = yield from find_in_shards(own, command)
                # If the token is gone, it was cleaned since.
                return Forgotten() if known is None else known
            case fx.Refused(operation=fx.Check(path=path)) if path == layout.host(proposer.replica):
                fenced = yield from newer_epoch(proposer.replica, proposer.me, epoch)
            case fx.Refused(operation=operation, reason=fx.Reason.BAD_VERSION) if operation in plan.columns:
                return NotProposed(COLUMNS_CHANGED)
            case fx.Refused():
                # The map or the settings have changed, a log has gone on below another parent, or the table is being dropped.
                continue
            case fx.Unknown(is_sent=False):
                return NotProposed(NOT_SENT)
            case fx.Unknown():
                fenced = yield from _settle(proposer, epoch, command, plan.targets)
        if isinstance(fenced, NoEpoch):
            return NotProposed(fenced.reason)
        if not isinstance(fenced, Activated):
            return fenced
        epoch = fenced.epoch
    return NotProposed("the shards of the table, or the replica's epoch, change all the time; try again")


def find_in_shards(beside: TablePlace, command: fx.EntryId) -> fx.Procedure[ProposedInShards | Forgotten | None]:
    """Find a command by its id.

    Parameters
    ----------
    beside
        A shard of the table.

    Returns
    -------
    None: no command has this id, or it was so long ago that its token was cleaned.  `Forgotten`: its entry has left the log of
    this shard.
    """
    path = layout.joint_token(layout.sharded_of(beside), command_block(command))
    node: fx.Node | None = yield fx.Get(path)
    if node is None:
        return None
    written: list[tuple[str, fx.LogIndex | None]] = []
    for each in decode_token(node.value, path).inserts:
        index = yield from _search(layout.beside(beside, each.shard), command, fx.LogIndex(each.log_from))
        if index is None and each.shard == beside.name:
            return Forgotten()
        written.append((each.shard, index))
    return ProposedInShards(tuple(written))


# --- reading ----------------------------------------------------------------------------------------------------------------


def _read(own: TablePlace, asked: ShardsCommand) -> fx.Procedure[_Shards | None]:
    """Read which shards there are, where their logs end, and what a command changes; None: the table is being dropped."""
    place = layout.sharded_of(own)
    shard_map = layout.shard_map(place)
    # After a refusal the reads must not be older than what has refused.
    yield fx.Sync(shard_map)
    found, counter = (yield fx.GetMany((shard_map, commands(place)))).nodes
    if found is None:
        return None
    read = decode_map(found.value, shard_map)
    tables, owners = commanded(own, read), read.shards if asked.owners is None else asked.owners(read)
    ends = yield from open_places(tables)
    if ends is None:
        return None
    nodes: tuple[fx.Node | None, ...] = (None,) * (1 + len(tables))
    if asked.settings is not None:
        paths = (places.metadata(place), *map(layout.metadata, tables))
        nodes = (yield fx.GetMany(paths)).nodes
        if None in nodes:
            return None
    targets = (
        _Target(below, end, metadata, places.shard_number(below.name) in owners)
        for (below, end), metadata in zip(ends, nodes[1:], strict=True)
    )
    return _Shards(found.version, bool(read.moves), read.views, counter is not None, nodes[0], tuple(targets))


def _search(table: TablePlace, command: fx.EntryId, log_from: fx.LogIndex) -> fx.Procedure[fx.LogIndex | None]:
    """Search the log of a shard for a command, from `log_from` on."""

    def is_it(index: fx.LogIndex, entry: Entry) -> fx.LogIndex | None:
        return index if isinstance(entry, Command) and entry.id == command else None

    return (yield from search_log(table, log_from, is_it))


def _settle(
    proposer: Proposer, epoch: fx.Epoch, command: fx.EntryId, targets: tuple[_Target, ...]
) -> fx.Procedure[Activated | ShardsOutcome]:
    """Find out what became of a commit whose outcome is unknown: fence it, then look.

    Returns
    -------
    `Activated`, `Replaced`: it never took place, and this process has a newer epoch, or another process has the replica.
    """
    own = proposer.replica.table
    renewed = yield from renew_epoch(proposer.replica, proposer.me, epoch)
    if not isinstance(renewed, Activated | Replaced):
        return fx.InDoubt()
    # No `Sync`: this session has seen the fence, or began after it, and none begins with an older state (`reconnect`).
    known = yield from find_in_shards(own, command)
    if known is not None:
        return known
    # The commit never took place, or its token was cleaned since: then the log has the entry, or had it.
    if (yield from _search(own, command, proposer.log_from)) is not None:
        written: list[tuple[str, fx.LogIndex | None]] = []
        for each in targets:
            index = yield from _search(each.place, command, each.log_from)
            written.append((each.place.name, index))
        return ProposedInShards(tuple(written))
    return renewed if (yield from reaches_back(own, proposer.log_from)) else fx.InDoubt()


# --- the commit -------------------------------------------------------------------------------------------------------------


def _plan(own: TablePlace, asked: ShardsCommand, bytes_max: int) -> fx.Procedure[_Plan | ShardsOutcome]:
    """Read the shards, and return what the commit does; or what becomes of the command without one."""
    place, command = layout.sharded_of(own), asked.entry.id
    found = yield from _read(own, asked)
    if found is None:
        return NotProposed("the sharded table is being dropped")
    is_removed = all(each.place.path != own.path for each in found.targets)
    if is_removed or (found.is_moving and isinstance(asked.entry, DropEntry) and asked.entry.detach):
        # The log of a shard that was removed does not get the command, so this replica could not settle a doubt.
        known = yield from find_in_shards(own, command)
        return NotProposed(REMOVED if is_removed else MOVING) if known is None else known
    if asked.columns is not None and found.views != asked.views:
        # The commit proves the map, and with it the views.
        return NotProposed(VIEWS_CHANGED)
    targets = found.targets
    inserts = tuple(
        ShardInsert(each.place.name, each.place.incarnation, fx.StagingId(command), int(each.log_from))
        for each in targets
    )
    # First of all: a repetition must learn where the command is, whatever has changed since.
    take = fx.Create(
        layout.joint_token(place, command_block(command)), encode_token(TokenValue(fx.JointId(command), inserts))
    )
    counter = commands(place)
    operations: list[fx.Operation] = [
        take,
        fx.Check(layout.shard_map(place), found.map_version),
        fx.Set(counter, b"", fx.ANY_VERSION) if found.has_commands else fx.Create(counter),
    ]
    columns: tuple[fx.Operation, ...] = ()
    shards = tuple(layout.columns(each.place) for each in targets)
    if asked.columns is not None:
        columns = tuple(fx.Set(path, *asked.columns) for path in (places.columns(place), *shards))
    elif isinstance(asked.entry, MutateEntry):
        # No earlier part has later columns than the mutation knows.
        columns = tuple(fx.Check(path, asked.entry.schema_version - 1) for path in shards)
    operations += columns
    operations += (fx.Check(layout.open_log(each.place), fx.ANY_VERSION) for each in targets)
    if asked.settings is not None:
        nodes = ((places.metadata(place), found.metadata), *((layout.metadata(t.place), t.metadata) for t in targets))
        operations += (
            fx.Set(path, asked.settings(node.value), node.version) for path, node in nodes if node is not None
        )

    def appended(command: ShardsCommand) -> tuple[fx.Create, ...]:
        entries = ((each, command.entry_in(each.place, None if each.is_owner else each.log_from)) for each in targets)
        return tuple(
            fx.Create(layout.log_create(each.place), encode_entry(entry), sequential=True) for each, entry in entries
        )

    operations += _beside(asked, targets)
    # The entries come last, in the order of the shards.
    appends = appended(asked)
    if bytes_of((*operations, *appends)) > bytes_max:
        appends = appended(replace(asked, scopes={}))
    size = bytes_of((*operations, *appends))
    if size > bytes_max:
        return NotProposed(
            f"the command would take {size:,} bytes of coordination in one commit over {len(targets)} shards, and"
            f" {bytes_max:,} are the limit"
        )
    return _Plan(take, columns, (*operations, *appends), targets)


def _beside(asked: ShardsCommand, targets: tuple[_Target, ...]) -> Iterator[fx.Operation]:
    """Give what a change of settings does in the shards beside the settings themselves."""
    for each in targets:
        if asked.settings is not None and asked.beside is not None and each.metadata is not None:
            before = each.metadata.value
            yield from asked.beside(each.place, before, asked.settings(before))


__all__ = ["ProposedInShards", "ShardScope", "ShardsCommand", "ShardsOutcome", "find_in_shards", "propose_to_shards"]
