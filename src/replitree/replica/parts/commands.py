"""Commands of users: mutate, drop, alter, set storage, kill, optimize, attach and freeze.

Any replica takes any command: it appends an entry to the log, and what becomes of it is the fold's to decide, for every replica
alike.  A command has an id.  When it can't be found out whether it got into the log, the client hears "outcome unknown" with
the id, and the same command with that id is not appended a second time, by whatever replica, as long as ids are remembered
(``blocks/command-<id>``, kept as long as the tokens of inserts).

The methods here block; they are called in threads of their own.  Waiting for the execution is the HTTP server's part.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, structs

from replitree.errors import (
    BadInput,
    NotAuthorized,
    ReadOnly,
    ReplitreeError,
    SchemaMismatch,
    StoreError,
    Unavailable,
)
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import (
    EVERY_PARTITION,
    AlterEntry,
    Command,
    DropEntry,
    MutateEntry,
    StorageEntry,
)
from replitree.protocol.core.parts import Part
from replitree.protocol.core.views import NO_VIEWS, Views
from replitree.protocol.program.commands import accept_command, kill
from replitree.protocol.program.stages import KillTurn, Then
from replitree.protocol.propose.propose import COLUMNS_CHANGED, STORAGE_CHANGED, VIEWS_CHANGED, Forgotten, find_command
from replitree.protocol.propose.shards import ProposedInShards, ShardsCommand, ShardScope
from replitree.protocol.sharded.places import is_shard_name, sharded_name
from replitree.protocol.sharded.shard_map import Shard, ShardMap
from replitree.protocol.state.mutation_scope import scoped
from replitree.protocol.state.pull import Place
from replitree.replica.kit.payloads import Detached
from replitree.replica.kit.usable_store import check_usable
from replitree.replica.parts.changed_storage import changed_store, placed
from replitree.replica.parts.making import Maker
from replitree.replica.parts.merges import Merges, OptimizeWish
from replitree.replica.parts.shards_commands import ShardsCommands, refuse_for_shards
from replitree.replica.perform.appending import append_command, forgotten
from replitree.replica.perform.availability import Availability
from replitree.replica.perform.context import TableContext
from replitree.replica.perform.driver import Driver
from replitree.storage.disk.store import PartStore
from replitree.storage.parts.manifest import is_partition_id
from replitree.storage.schema.definition import TableDefinition, check_new, decode_definition
from replitree.storage.schema.retention import parse_feed, parse_keep, parse_ttl, ttl_text, written_retention
from replitree.storage.schema.storage_policy import LOCAL, StorageKind, parse_storage

if TYPE_CHECKING:
    import pyarrow as pa

    from replitree.storage.sql.mutation import MutationCommand

ALTERS_MAX = 10
"""Tries of an alter while others change the columns at the same time."""

ID_CHARACTERS_MAX = 100

NO_SCOPES: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class MutationWish:
    """What a client asks of a mutation: a statement, or its pieces."""

    sql: str | None = None
    kind: str | None = None
    where: str | None = None
    assignments: tuple[tuple[str, str], ...] = ()
    partition: str | None = None


class ScopeThere(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The scope of a mutation in one shard, as a replica of it has found it.

    Attributes
    ----------
    schema_version
        Version of the columns that the condition was read with.
    partitions, since
        As of `MutateEntry`.
    """

    schema_version: int
    partitions: tuple[str, ...]
    since: int


@dataclass(frozen=True, slots=True)
class DropWish:
    """What a client wants to drop: a partition, a range of blocks (both included), or all."""

    partition: str | None = None
    blocks: tuple[int, int] | None = None
    all: bool = False
    detach: bool = False


@dataclass(frozen=True, slots=True)
class Appended:
    """A command that is in the log.

    Attributes
    ----------
    id, index
        Its id, and where it is in the log of this table.
    shards
        Of a shard: (shard, index) of each, for the command is in all of them.
    """

    id: fx.EntryId
    index: fx.LogIndex
    shards: tuple[tuple[str, fx.LogIndex | None], ...] = ()


@dataclass(frozen=True, slots=True)
class _PartsHere:
    """What a replica knows of the table's parts; see `replitree.protocol.program.commands.PartsSeen`."""

    place: Place | None
    is_left: Callable[[Part], bool]


class Commands:
    """Takes the commands of one table replica.

    Parameters
    ----------
    store
        The parts on this disk.
    maker
        Makes the results of mutations, until they are killed.
    merges
        Chooses and proposes what `optimize` merges.
    check_change
        Refuses a definition that would break a materialised view; returns the views that the table has.
    """

    def __init__(
        self,
        context: TableContext,
        store: PartStore,
        availability: Availability,
        maker: Maker,
        merges: Merges,
        check_change: Callable[[TableDefinition, TableDefinition], Views],
    ) -> None:
        self._context = context
        self._store = store
        self._availability = availability
        self._maker = maker
        self._merges = merges
        self._check_change = check_change
        is_shard = is_shard_name(context.replica.table.name)
        self._shards = ShardsCommands(context, availability) if is_shard else None

    def mutate(
        self, wish: MutationWish, command_id: str | None, scopes: Mapping[str, ScopeThere] = NO_SCOPES
    ) -> Appended:
        """Append a mutation.

        Parameters
        ----------
        wish, command_id
            What, and its id; None: a new one.
        scopes
            Of a shard: what `scope` has found in the others.

        Raises
        ------
        BadInput
            It can't be read, or can't be done to this table.
        ReadOnly, Unavailable
            It is certainly not in the log.
        OutcomeUnknown
            It may be in the log.
        """
        from replitree.storage.sql.mutation import can_judge_before_merges

        wanted, definition = _id(command_id), self._context.definitions.current
        for _ in range(ALTERS_MAX):
            try:
                mutation = _mutation(wish, self._as_named(definition))
            except BadInput:
                # It may name a column that came with an entry which is not pulled here yet.
                newer = self._context.definitions.refresh()
                if newer is definition:
                    raise
                definition = newer
                continue
            entry = MutateEntry(
                self._context.replica.name,
                wanted,
                wish.partition or EVERY_PARTITION,
                mutation.text,
                definition.schema_version,
            )
            look = None
            if can_judge_before_merges(mutation, definition):
                look = partial(self._look_at_parts, mutation, definition)
            there: dict[str, ShardScope] = {}
            owners = None
            if self._shards is not None:
                owners = self._shards.owners(mutation, definition)
                there = {
                    shard: ShardScope(found.partitions, fx.LogIndex(found.since))
                    for shard, found in scopes.items()
                    if found.schema_version == definition.schema_version
                }
            try:
                return self._append(entry, look=look, owners=owners, scopes=there)
            except SchemaMismatch:
                definition = self._context.definitions.refresh()
        raise Unavailable("others change the columns all the time; nothing was changed, try again")

    def scope(self, wish: MutationWish) -> ScopeThere | None:
        """Return the scope of a mutation in this shard, for a replica of another one that appends it; None: all parts.

        Raises
        ------
        BadInput
            It can't be read, or can't be done to this table.
        """
        from replitree.storage.sql.mutation import can_judge_before_merges

        definition = self._context.definitions.refresh()
        mutation = _mutation(wish, self._as_named(definition))
        if not can_judge_before_merges(mutation, definition):
            return None
        version, seen = definition.schema_version, self._look_at_parts(mutation, definition)
        entry = MutateEntry("", fx.EntryId(""), wish.partition or EVERY_PARTITION, mutation.text, version)
        found = entry if seen.place is None else scoped(entry, seen.place, seen.is_left)
        if found.partitions is UNSET or found.since is UNSET:
            return None
        return ScopeThere(version, found.partitions, found.since)

    def _as_named(self, definition: TableDefinition) -> TableDefinition:
        """Return a definition under the name that users know the table by."""
        return definition if self._shards is None else replace(definition, name=sharded_name(definition.name))

    def _look_at_parts(self, mutation: MutationCommand, definition: TableDefinition) -> _PartsHere:
        """Return where the replica stands, and what the manifests here prove of a mutation."""
        from replitree.storage.sql.mutation import cannot_touch

        progress, store = self._context.progress, self._store
        with progress.changed:
            place, held, is_torn = progress.place, progress.held, progress.is_torn
            hidden = frozenset(progress.hidden())

        def is_left(part: Part) -> bool:
            if part not in held or part.name in hidden:
                return False
            try:
                return cannot_touch(store.manifest(part.name), mutation, definition)
            except (ReplitreeError, OSError):
                # The mutation of this part will report the error.
                return False

        return _PartsHere(None if is_torn else place, is_left)

    def drop(self, wish: DropWish, command_id: str | None) -> Appended:
        """Append a drop.  Raises as `mutate`."""
        if self._shards is not None and wish.blocks is not None:
            raise refuse_for_shards(self._context.replica.table.name, "drop a range of inserts")
        if wish.all and (wish.partition is not None or wish.blocks is not None):
            raise BadInput("say all, or a partition, or blocks")
        if not wish.all and wish.partition is None and wish.blocks is None:
            raise BadInput('say what to drop: {"partition": "…"}, {"blocks": [first, last]} or {"all": true}')
        if wish.partition is not None and not is_partition_id(wish.partition):
            raise BadInput(f"{wish.partition!r} can't be a partition's id; `replitree table partitions` shows them")
        if wish.blocks is not None and not 0 <= wish.blocks[0] <= wish.blocks[1]:
            raise BadInput(f"blocks {list(wish.blocks)} are no range: say the first and the last one")
        first, last = wish.blocks if wish.blocks is not None else (None, None)
        entry = DropEntry(
            self._context.replica.name,
            _id(command_id),
            wish.partition or EVERY_PARTITION,
            first,
            last,
            wish.detach,
        )
        return self._append(entry)

    def alter(self, sql: str, command_id: str | None) -> tuple[Appended, int]:
        """Append a change of the columns; return it, and the schema version from there on.  Raises as `mutate`."""
        from replitree.storage.sql.alter_parser import parse_alter
        from replitree.storage.sql.evolve import apply_alter

        wanted, known = self._known(command_id)
        for _ in range(ALTERS_MAX):
            definition, node_version = self._context.definitions.read()
            if known is not None:
                return known, definition.schema_version
            alter = parse_alter(sql, self._as_named(definition))
            changed = apply_alter(definition, alter)
            if self._shards is not None:
                self._shards.check_columns(definition, changed)
                views = self._shards.check_views(definition, changed)
            else:
                views = self._check_change(definition, changed)
            entry = AlterEntry(self._context.replica.name, wanted, alter.encode().decode(), changed.schema_version)
            try:
                columns = (changed.encode_columns(), node_version)
                appended = self._append(entry, columns=columns, views=views)
            except SchemaMismatch:
                continue
            self._context.definitions.expect(changed.schema_version)
            self._context.definitions.catch_up()
            return appended, changed.schema_version
        raise Unavailable("others change the columns all the time; nothing was changed, try again")

    def set_storage(self, storage: str, command_id: str | None) -> tuple[Appended, TableDefinition]:
        """Append a change of the storage policy; return it, and the definition from there on.

        Raises
        ------
        BadInput
            It is no policy, or one that this table can't have now.
        StoreError, NotAuthorized
            This replica can't use the store.
        ReadOnly, Unavailable, OutcomeUnknown
            As `mutate`.
        """
        asked, (wanted, known) = parse_storage(storage), self._known(command_id)
        if known is None and asked.kind is not StorageKind.LOCAL:
            try:
                check_usable(asked.url)
            except (StoreError, NotAuthorized) as error:
                raise type(error)(
                    f"replica {self._context.replica.name} can't use the object store: {error}"
                ) from error
        is_sharded = self._shards is not None
        return self._change_settings(
            wanted, known, lambda before: placed(before, asked, of_shards=is_sharded and not is_shard_name(before.name))
        )

    def set_keep(self, keep: str, command_id: str | None) -> tuple[Appended, TableDefinition]:
        """Append a change of how long parts that have left stay; return it, and the definition from there on.

        Raises
        ------
        BadInput
            It is no number with a unit.
        ReadOnly, Unavailable, OutcomeUnknown
            As `mutate`.
        """
        asked, (wanted, known) = parse_keep(keep), self._known(command_id)
        return self._change_settings(wanted, known, lambda before: replace(before, keep=asked), says_retention=True)

    def set_feed(self, feed: str, command_id: str | None) -> tuple[Appended, TableDefinition]:
        """Append a change of how long the change feed is kept, empty: not at all; return and errors as `set_keep`."""
        asked, (wanted, known) = parse_feed(feed), self._known(command_id)
        return self._change_settings(wanted, known, lambda before: replace(before, feed=asked), says_retention=True)

    def set_ttl(self, ttl: str, command_id: str | None) -> tuple[Appended, TableDefinition]:
        """Append a change of when rows are removed, empty: never; return and errors as `set_keep`."""
        asked, (wanted, known) = parse_ttl(ttl), self._known(command_id)
        return self._change_settings(wanted, known, lambda old: check_new(replace(old, ttl=asked)), says_retention=True)

    def set_bloom(self, columns: tuple[str, ...], command_id: str | None) -> tuple[Appended, TableDefinition]:
        """Append a change of the columns that have Bloom filters; return and errors as `set_keep`."""
        from replitree.storage.parts.encodings import check_bloom

        check_bloom(columns)
        wanted, known = self._known(command_id)
        return self._change_settings(wanted, known, lambda before: check_new(replace(before, bloom=columns)))

    def _change_settings(
        self,
        command: fx.EntryId,
        known: Appended | None,
        change: Callable[[TableDefinition], TableDefinition],
        *,
        says_retention: bool = False,
    ) -> tuple[Appended, TableDefinition]:
        """Append a change of the settings in the node `metadata`, unless an entry of this command is known."""
        for _ in range(ALTERS_MAX):
            before, version, _ = self._context.definitions.read_nodes()
            if known is not None:
                return known, before
            after = change(before)
            try:
                appended = self._append_settings(
                    command, before, after, version, says_retention=says_retention, change=change
                )
            except SchemaMismatch:
                continue
            return appended, after
        raise Unavailable("others change the table's settings all the time; nothing was changed, try again")

    def forget_store(self) -> None:
        """Append the entry by which the table is on local disks alone: nothing is left in its store.

        Raises
        ------
        ReadOnly, Unavailable, OutcomeUnknown
            As `mutate`; also when something has come to be there.
        """
        definition, version, _ = self._context.definitions.read_nodes()
        if definition.placement.kind is StorageKind.LOCAL and definition.is_shared:
            try:
                # A shard forgets the store by itself: what the others have there is theirs.
                self._append_settings(_id(None), definition, replace(definition, storage=LOCAL), version, alone=True)
            except SchemaMismatch as error:
                raise Unavailable(str(error)) from error

    def _append_settings(
        self,
        command: fx.EntryId,
        before: TableDefinition,
        after: TableDefinition,
        version: fx.Version,
        *,
        says_retention: bool = False,
        change: Callable[[TableDefinition], TableDefinition] | None = None,
        alone: bool = False,
    ) -> Appended:
        """Append a change of settings; the nodes of a store are made with the table's first store, and go with its last one.

        `change`: makes the settings of another shard from those that it has.  `alone`: other shards stay as they are.
        """
        table = self._context.replica.table
        operations: tuple[fx.Operation, ...] = (fx.Set(layout.metadata(table), after.encode_metadata(), version),)
        if after.storage != before.storage:
            operations = (*self._check_change(before, after).unchanged(table), *operations)
        operations += changed_store(table, before, after)
        entry = StorageEntry(self._context.replica.name, command, after.storage)
        if says_retention:
            # Replicas that do not know `keep` stop before an entry in format 2; those that do not know `feed`, at the node
            # `metadata`.
            entry = structs.replace(
                entry, format=2, keep=written_retention(after.keep, after.feed, ttl_text(after.ttl))
            )
        settings: Callable[[bytes], bytes] | None = None
        if change is not None:
            columns, changed = before.encode_columns(), change

            def settings(metadata: bytes) -> bytes:
                return changed(decode_definition(metadata, columns)).encode_metadata()

        if alone:
            appended = self._append_here((entry, False, None, operations, NO_VIEWS))
        else:
            appended = self._append(entry, storage=operations, settings=settings)
        self._context.definitions.expect_storage()
        return appended

    def kill(self, index: fx.LogIndex) -> int:
        """Leave unchanged every part of a mutation that no replica has mutated yet; return how many this replica has left.

        Raises
        ------
        BadInput
            There is no such mutation, as far as this replica remembers.
        """
        context = self._context
        item = context.progress.queued(index)
        known = item or context.progress.history.command(index)
        if known is None:
            raise BadInput(
                f"there is no mutation at {index} that this replica knows; `replitree table mutations` lists them"
            )
        if not isinstance(known.entry, MutateEntry):
            raise BadInput(f"the entry at {index} is not a mutation")
        if item is None:
            return 0
        turn = KillTurn(self._availability.epoch(), item)
        killed: int = Driver(context.performer, lambda _: turn).finish(Then(kill, (context.replica, known.entry.id)))
        self._maker.kill(index)
        context.progress.retry_now()
        return killed

    def detached_part(self, name: str) -> Detached:
        """Return a detached part that fits the table.

        Raises
        ------
        BadInput
            There is none of this name that is whole, or its columns are not those of its schema version.
        """
        from pyarrow.parquet import read_schema

        context = self._context
        found = {each.name: each for each in self._store.attachable()}
        if name not in found:
            others = ", ".join(found) or "none; `replitree table detached --replica` looks elsewhere"
            raise BadInput(
                f"no part {name!r} that can be attached lies aside on replica {context.replica.name}: it has {others}"
            )
        detached = found[name]
        written = context.definitions.at(detached.manifest.schema_version).stored
        for file in detached.manifest.files:
            schema = read_schema(self._store.root / "detached" / name / file.name)
            if [(field.name, field.type) for field in schema] != [(f.name, f.type) for f in written.arrow_schema]:
                raise BadInput(f"{name} has other columns than version {written.schema_version} of the table")
        if len(detached.manifest.partition_values) != len(written.partition_by):
            raise BadInput(f"{name} is partitioned in another way than the table")
        return Detached(name, detached.part, detached.manifest)

    def detached_rows(self, name: str) -> pa.Table:
        """Return the rows of a detached part in the table's columns, every byte verified.

        Raises
        ------
        BadInput
            As `detached_part`.
        CorruptPart, StoreError
            It can't be read.
        """
        from replitree.storage.rewrite.read import read_parts

        self.detached_part(name)
        return read_parts([self._store.root / "detached" / name], self._context.definitions.current)

    def optimize(self, wish: OptimizeWish) -> tuple[fx.LogIndex, ...]:
        """Append merges of as much as can be merged; return their indexes."""
        epoch = self._availability.epoch()
        indexes = self._merges.propose(epoch, self._merges.optimize(wish))
        self._context.pull_signal.hurry()
        return indexes

    # --- appending ---

    def _append(
        self,
        entry: Command,
        *,
        look: Callable[[], _PartsHere] | None = None,
        columns: tuple[bytes, int] | None = None,
        storage: tuple[fx.Operation, ...] = (),
        views: Views = NO_VIEWS,
        settings: Callable[[bytes], bytes] | None = None,
        owners: Callable[[ShardMap], tuple[Shard, ...]] | None = None,
        scopes: Mapping[str, ShardScope] = NO_SCOPES,
    ) -> Appended:
        """Append a command, of a shard to the logs of all shards, unless one with its id is there: then return that.

        Parameters
        ----------
        look
            Looks at the parts here, to find the scope of a mutation.
        columns, storage, views
            As of `propose`.
        settings, owners, scopes
            Of a shard, as of `ShardsCommand`.
        """
        if self._shards is not None:
            beside = None if settings is None else self._shards.store_nodes
            of_map = UNSET if views.version is None else int(views.version)
            for_all = ShardsCommand(entry, columns, settings, beside, scopes, owners, of_map)
            return self._in_shards(entry.id, self._shards.append(for_all, look))
        return self._append_here((entry, look is not None, columns, storage, views), look)

    def _append_here(
        self,
        asked: tuple[Command, bool, tuple[bytes, int] | None, tuple[fx.Operation, ...], Views],
        look: Callable[[], _PartsHere] | None = None,
    ) -> Appended:
        """Append a command to the log of this table, also when it is a shard; `asked` is what `accept_command` takes."""
        entry = asked[0]
        match append_command(self._context, self._availability, accept_command, entry.id, asked, look):
            case fx.Inserted(index):
                return Appended(entry.id, index)
            case fx.NotInserted(reason) if reason in (STORAGE_CHANGED, COLUMNS_CHANGED, VIEWS_CHANGED):
                raise SchemaMismatch(reason)
            case fx.NotInserted(reason):
                raise ReadOnly(f"nothing was changed: {reason}")

    def in_shards(self, command: fx.EntryId) -> tuple[tuple[str, fx.LogIndex | None], ...]:
        """Return (shard, index) of a command in the log of each shard; None: its entry has left that log.

        Raises
        ------
        BadInput
            There is no such command, or this table is no shard.
        """
        found = None if self._shards is None else self._shards.find(command)
        if found is None:
            raise BadInput(f"there is no command {command} over the shards of a table, or it was forgotten")
        return found.written

    def _in_shards(self, command: fx.EntryId, found: ProposedInShards) -> Appended:
        """Return a command that is in the logs of all shards."""
        index = dict(found.written).get(self._context.replica.table.name)
        if index is None:
            raise forgotten(command)
        return Appended(command, index, found.written)

    def _known(self, command_id: str | None) -> tuple[fx.EntryId, Appended | None]:
        """Return a command's id, a new one if None is given, and where it is in the log already."""
        wanted = _id(command_id)
        return wanted, None if command_id is None else self._find(wanted)

    def _find(self, command: fx.EntryId) -> Appended | None:
        """Look whether a command with this id is in the log."""
        if self._shards is not None:
            written = self._shards.find(command)
            return None if written is None else self._in_shards(command, written)
        known = self._context.progress.history.index_of(command)
        if known is not None:
            return Appended(command, known)
        table = self._context.replica.table
        self._context.performer.perform(fx.Sync(layout.blocks(table)))
        found = self._context.performer.look_up(find_command(table, command))
        if isinstance(found, Forgotten):
            raise forgotten(command)
        return None if found is None else Appended(command, found.index)


def _id(given: str | None) -> fx.EntryId:
    if given is None:
        return fx.EntryId(secrets.token_hex(16))
    if not 1 <= len(given) <= ID_CHARACTERS_MAX or not given.isprintable():
        raise BadInput(f"a command's id has 1 to {ID_CHARACTERS_MAX} printable characters")
    return fx.EntryId(given)


def _mutation(wish: MutationWish, definition: TableDefinition) -> MutationCommand:
    from replitree.storage.sql.mutation import delete_where, parse_mutation, update_where

    if wish.sql is not None:
        return parse_mutation(wish.sql, definition, partition=wish.partition)
    if wish.where is None or wish.kind not in ("delete", "update"):
        raise BadInput('say {"sql": "DELETE FROM …"} or {"kind": "delete" or "update", "where": "…"}')
    if wish.kind == "delete":
        if wish.assignments:
            raise BadInput("a delete sets no columns")
        return delete_where(wish.where, definition, partition=wish.partition)
    names = [name for name, _ in wish.assignments]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BadInput(f"column {twice[0]!r} is set twice")
    return update_where(dict(wish.assignments), wish.where, definition, partition=wish.partition)
