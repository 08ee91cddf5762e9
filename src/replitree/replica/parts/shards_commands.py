"""Commands over shards: a replica of one shard puts a user's command into the logs of all.

The stage is `replitree.protocol.program.sharded.shards_command`.  This module adds what the protocol does not look into: the
shard key, and which shards a condition can want rows of.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import UNSET

from replitree.errors import BadInput, ReadOnly, SchemaMismatch, Unavailable
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.core.views import NO_VIEWS, Views
from replitree.protocol.program.sharded.shards_command import accept_shards_command
from replitree.protocol.propose.propose import COLUMNS_CHANGED, Forgotten
from replitree.protocol.propose.shards import MOVING, ProposedInShards, ShardsCommand, find_in_shards
from replitree.protocol.sharded import places
from replitree.protocol.sharded.feed import REMOVAL, is_reserved_id
from replitree.protocol.sharded.places import sharded_name
from replitree.protocol.sharded.shard_map import Shard, ShardMap, decode_map
from replitree.protocol.sharded.views import ViewedTable, read_viewed
from replitree.replica.parts.changed_storage import changed_store
from replitree.replica.perform.appending import forgotten, run_command
from replitree.replica.perform.availability import Availability
from replitree.replica.perform.context import TableContext
from replitree.storage.schema.definition import TableDefinition, decode_definition

if TYPE_CHECKING:
    from replitree.storage.sql.mutation import MutationCommand


class ShardsCommands:
    """Puts commands into the logs of all shards of a table, as a replica of one of them."""

    def __init__(self, context: TableContext, availability: Availability) -> None:
        self._context = context
        self._availability = availability

    def append(self, asked: ShardsCommand, look: Callable[[], object] | None = None) -> ProposedInShards:
        """Append a command to all logs, unless one with its id is there: then return where that is.

        Parameters
        ----------
        asked
            The command.
        look
            Looks at the parts here, to find the scope of a mutation in this shard.

        Raises
        ------
        SchemaMismatch
            The columns were changed meanwhile; nothing was changed.
        BadInput
            Also of a partition that is to be detached while buckets move.
        ReadOnly, Unavailable, OutcomeUnknown
            As of `run_command`.
        """
        if is_reserved_id(asked.entry.id):
            raise BadInput(f"the id of a command of a sharded table does not begin with {REMOVAL!r}: give another one")
        told = (asked, look is not None)
        answer = run_command(self._context, self._availability, accept_shards_command, asked.entry.id, told, look)
        if isinstance(answer, fx.NotInserted):
            if answer.reason == COLUMNS_CHANGED:
                raise SchemaMismatch(answer.reason)
            if answer.reason == MOVING:
                raise BadInput(f"nothing was changed: {answer.reason}")
            raise ReadOnly(f"nothing was changed: {answer.reason}")
        assert isinstance(answer, ProposedInShards)
        return answer

    def store_nodes(self, shard: TablePlace, before: bytes, after: bytes) -> tuple[fx.Operation, ...]:
        """Return what makes the nodes of a shard's object store, from the old and the new value of its node ``metadata``."""
        columns = self._context.definitions.current.encode_columns()
        return changed_store(shard, decode_definition(before, columns), decode_definition(after, columns))

    def find(self, command: fx.EntryId) -> ProposedInShards | None:
        """Look whether a command with this id is in the logs.

        Raises
        ------
        BadInput
            It was, and its entry has left the log of this shard.
        """
        table = self._context.replica.table
        self._context.performer.perform(fx.Sync(layout.joint_tokens(layout.sharded_of(table))))
        found = self._context.performer.look_up(find_in_shards(table, command))
        if isinstance(found, Forgotten):
            raise forgotten(command)
        return found

    def check_columns(self, before: TableDefinition, after: TableDefinition) -> None:
        """Raise unless rows stay in their shards when the columns change.

        Raises
        ------
        BadInput
            A column of the shard key would change.
        Unavailable
            The table is being dropped.
        """
        # Hashes are computed by numpy, which a replica does not load before it needs it.
        from replitree.storage.schema.row_buckets import check_key_kept

        check_key_kept(before, after, self._key)

    def check_views(self, before: TableDefinition, after: TableDefinition) -> Views:
        """Raise unless the views of the table, and those that write to it, go on when the columns change.

        Returns
        -------
        Views
            Those that the map has.

        Raises
        ------
        BadInput
            A view reads or writes what goes.
        Unavailable
            The table is being dropped, or its map changes all the time.
        """
        from replitree.storage.sql.view import check_readable, check_writable

        own, look_up = self._context.replica.table, self._context.performer.look_up

        def viewed(name: str) -> ViewedTable:
            found = look_up(read_viewed(layout.sharded(layout.root_of(own), name)))
            if found is None:
                raise Unavailable(f"table {name!r} is being dropped, or its map changes all the time")
            return found

        table = viewed(sharded_name(own.name))
        for view in table.views.value.views:
            place = viewed(view.target).place
            metadata, columns = look_up(_read_definition(place))
            check_readable(view, before, after, decode_definition(metadata, columns))
        for each in table.views.value.feeding:
            for view in viewed(each.source).views.value.views:
                if view.id == each.id:
                    check_writable(each.source, view.command, before, after)
        return NO_VIEWS if table.map.views is UNSET else table.views

    @cached_property
    def _key(self) -> tuple[str, ...]:
        """The shard key, which never changes."""
        table = self._context.replica.table
        path = layout.shard_map(layout.sharded_of(table))
        node = self._context.performer.perform(fx.Get(path))
        if node is None:
            raise Unavailable(f"table {sharded_name(table.name)!r} is being dropped")
        return decode_map(node.value, path).key

    def owners(self, mutation: MutationCommand, definition: TableDefinition) -> Callable[[ShardMap], tuple[Shard, ...]]:
        """Return what tells which shards can have rows that a mutation changes, by a map.

        Raises
        ------
        BadInput
            It sets a column of the shard key: the row would belong to another shard.
        """
        from replitree.storage.schema.row_buckets import shard_key
        from replitree.storage.sql.mutation import check_mutation
        from replitree.storage.sql.shard_pruning import buckets_of

        checked = check_mutation(mutation, definition)
        fixed = {column.name for column in shard_key(definition, self._key)}
        for each in checked.assignments:
            if each.column.name in fixed:
                raise BadInput(
                    f"column {each.column.name!r} can't be set: it is of the shard key, whose values say which shard has a row."
                    " Delete the row and insert another one"
                )
        return lambda shard_map: shard_map.shards_of(buckets_of(shard_map, checked.predicate))


def _read_definition(place: str) -> fx.Procedure[tuple[bytes, bytes]]:
    """Read the nodes of the definition of the sharded table at `place`."""
    metadata, columns = (yield fx.GetMany((places.metadata(place), places.columns(place)))).nodes
    if metadata is None or columns is None:
        raise Unavailable("the target of a materialised view is being dropped")
    return metadata.value, columns.value


def refuse_for_shards(name: str, what: str) -> BadInput:
    """Return the error of a command that a sharded table can't do; `what` completes "a sharded table can't"."""
    return BadInput(f"table {sharded_name(name)!r} is sharded, and a sharded table can't {what}; nothing was changed")


__all__ = ["ShardsCommands", "refuse_for_shards"]
