"""The search of a model of commands over shards, and what must hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from msgspec import UNSET

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import AlterEntry, GetEntry, MutateEntry, RewriteEntry, StorageEntry
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.propose.shards import ProposedInShards
from replitree.protocol.sharded import places
from replitree.protocol.sharded.joint_insert import JointInserted, MapChanged
from replitree_verify.commands.logs import (
    PLACE,
    commanding_in,
    drops_in,
    given_in,
    inserts_in,
    is_overwrite,
    log_in,
    shard_of,
    shards_in,
)
from replitree_verify.commands.model import Model
from replitree_verify.commands.rewrites import wrong_rewrites
from replitree_verify.commands.space import STORED, CommandsState, Space
from replitree_verify.engine.small_search import Rules, Searched, search_all
from replitree_verify.patches.patch import Patch


def search(model: Model, mutant: Patch | None = None) -> Searched:
    """Search a model; all else as of `search_all`."""
    space = Space(model)

    def always(state: CommandsState) -> Iterator[str]:
        yield from wrong(model, state)
        yield from wrong_heard(model, state)
        if not model.cleans:
            yield from wrong_rewrites(state.tree)

    found = search_all(space, Rules(always=always, step=broken_by), mutant)
    return replace(found, probes=frozenset(space.probes))


def broken_by(before: CommandsState, _happened: object, after: CommandsState, _is_new: bool) -> str | None:
    """Return what is wrong with a step: one commit brings a command to all shards."""
    if after.is_anew or before.tree is after.tree:
        return None
    shards = shards_in(after.tree)
    came = {
        shard.name: {name for _, name in {*commanding_in(after.tree, shard)} - {*commanding_in(before.tree, shard)}}
        for shard in shards
    }
    if len(set(map(frozenset, came.values()))) > 1:
        return f"D5: one commit has brought {came}"
    return None


def wrong(model: Model, state: CommandsState) -> Iterator[str]:
    """Give what does not hold in a state."""
    if state.is_anew:
        if any(log_in(state.tree, shard_of(number, "j")) for number in range(2)):
            yield "OWN: a command of an earlier table has come"
        return
    for asked, count in zip(model.gives, state.counts, strict=True):
        if count > 1:
            yield f"ONCE: {count} commits have brought {asked.id}"
    if state.came_while_moving:
        yield "MOVING: partitions were detached, or rows rewritten, while buckets moved"
    if state.wrong_copy:
        yield "COUNTED: a command had come that the copy did not know"
    for number, (asked, told) in enumerate(zip(model.gives, state.told, strict=True)):
        # A client that was refused may have given the same id to the other replica.
        is_only = [each.id for each in model.gives].count(asked.id) == 1
        if isinstance(told, fx.NotInserted) and state.counts[number] and is_only:
            yield f"TRUE: {asked.id} was refused ({told}), and is in the logs"
        if isinstance(told, ProposedInShards) and not model.cleans:
            yield from wrong_indexes(state, asked.id, told)
    yield from wrong_tokens(state)
    shards = shards_in(state.tree)
    if shards:
        yield from wrong_nodes(state, shards)
    # A log that was cleaned has no order any more.
    orders = {shard.name: order_in(state, shard) for shard in shards[:2]}
    if not model.cleans and len(set(orders.values())) > 1:
        yield f"D5: the shards have another order: {orders}"


def wrong_tokens(state: CommandsState) -> Iterator[str]:
    """Give what is wrong with the insert that has the token."""
    shard, log = shard_of(0), log_in(state.tree, shard_of(0))
    inserts = [(index, token_of(entry)) for index, entry in log if isinstance(entry, GetEntry)]
    for token in {token for _, token in inserts}:
        # What was inserted under a token is not dropped by that itself.
        own = {index for index, its in inserts if its == token}
        drops = [index for index in drops_in(state.tree) if index not in own]
        for low, high in pairwise((-1, *drops, 1 << 62)):
            if sum(low < index < high for index in own) > 1:
                yield f"FREED: the token {token} was taken twice between {low} and {high}"
    for began, heard in zip(state.began, state.heard, strict=True):
        if isinstance(heard, JointInserted):
            index = dict(heard.written)[shard.name]
            if index is not None and index < began:
                yield f"FREED: a client hears of {heard.joint} at {index}, which was dropped before it asked"


def token_of(entry: GetEntry) -> str:
    """Return the token of an insert: an overwrite is named after it, and what was there at first has none."""
    if entry.joint is UNSET:
        return entry.insert
    return str(entry.joint).partition("-")[0] if is_overwrite(entry) else "t"


def wrong_heard(model: Model, state: CommandsState) -> Iterator[str]:
    """Give what clients have heard wrongly of their rewrites."""
    there = {entry.id for _, entry in given_in(state.tree, shard_of(1)) if isinstance(entry, RewriteEntry)}
    for number, heard in tuple(enumerate(state.heard))[len(state.heard) - model.rewrites :]:
        is_there = f"r-{number}" in there
        if isinstance(heard, fx.NotInserted | MapChanged) and is_there:
            yield f"TRUE: rewrite {number} is refused, and in the logs"
        if isinstance(heard, JointInserted) and not is_there:
            yield f"TRUE: rewrite {number} is told to be in the logs, and is not"


def wrong_indexes(state: CommandsState, command: str, told: ProposedInShards) -> Iterator[str]:
    """Give what is wrong with where a client was told that its command is."""
    for name, index in told.written:
        shard = shard_of(int(name.rpartition("~")[2]))
        if index not in {at for at, entry in given_in(state.tree, shard) if entry.id == command}:
            yield f"TRUE: {command} is said to be at {index} of {name}, and is not"


def wrong_nodes(state: CommandsState, shards: tuple[TablePlace, ...]) -> Iterator[str]:
    """Give what is wrong with the columns and the settings."""
    tree = state.tree
    own, settings = tree.get(places.columns(PLACE)), tree.get(places.metadata(PLACE))
    first = given_in(tree, shards[0])
    altered = [entry for _, entry in first if isinstance(entry, AlterEntry)]
    for shard in shards:
        columns, metadata = tree.get(layout.columns(shard)), tree.get(layout.metadata(shard))
        if own is None or columns is None or (own.value, own.version) != (columns.value, columns.version):
            yield f"COLUMNS: {shard.name} has other columns than the table"
        if settings is None or metadata is None or metadata.value != settings.value:
            yield f"SETTINGS: {shard.name} has other settings than the table"
        if metadata is not None and (STORED in metadata.value) != tree.exists(layout.sharing(shard)):
            yield f"SETTINGS: {shard.name} has not the nodes of the store that its settings name"
    if own is not None and own.version != len(altered):
        yield "COLUMNS: the columns are not those that the commands have made"
    version = 1
    for _, entry in first:
        version += isinstance(entry, AlterEntry)
        if isinstance(entry, AlterEntry | MutateEntry) and entry.schema_version != version:
            yield f"COLUMNS: {entry.id} knows version {entry.schema_version} where {version} holds"
    changes = sum(isinstance(entry, StorageEntry) for _, entry in first)
    if settings is not None and len(settings.value) != changes:
        yield "SETTINGS: the settings are not those that the commands have made"


def order_in(state: CommandsState, shard: TablePlace) -> tuple[str, ...]:
    """Return in which order rows and commands have come into a shard."""
    rows = [(index, "rows") for index in inserts_in(state.tree, shard)]
    return tuple(
        what for _, what in sorted([*rows, *((index, entry.id) for index, entry in given_in(state.tree, shard))])
    )
