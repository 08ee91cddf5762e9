"""What coordination knows of sharded tables: their definitions, maps and placements; how they are created and dropped.

Guarantees: a table that is half made or half dropped is never found.  Any process may repeat `create` and `drop` after any
failure; both say what they found.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from replitree.coordination.port import make_root
from replitree.errors import BadInput, CoordinationUnavailable, TableExists, TableNotFound, Unavailable
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica, check_table_name
from replitree.protocol.core.stamps import GetStamped, Zxid
from replitree.protocol.membership.table import leave_table
from replitree.protocol.sharded import places
from replitree.protocol.sharded.life import decode_life
from replitree.protocol.sharded.placement import EVERYWHERE, Placement, decode_placement, encode_placement, spread
from replitree.protocol.sharded.shard_map import BUCKETS_DEFAULT, SHARDS_MAX, Shard, ShardMap, decode_map, first_map
from replitree.storage.schema.definition import TableDefinition, decode_definition
from replitree.storage.schema.merge_policy import PLAIN
from replitree.storage.schema.shard_definition import shard_definition
from replitree.wire.identity import new_incarnation

if TYPE_CHECKING:
    from replitree.client.transport.catalog import Catalog
    from replitree.protocol.sharded.creation import NewSharded
    from replitree.protocol.sharded.default_sharding import DefaultSharding

LOOK_S = 0.05
"""Pause between two looks while replicas leave, in seconds."""

SHARDS_DEFAULT = 2

READS_MAX = 4
"""How often a table is read again because it was created anew meanwhile."""

CALLS_MAX = 20
"""How often a placement is read again because another client has changed it."""


@dataclass(frozen=True, slots=True)
class ShardedInfo:
    """A sharded table that is there.

    Attributes
    ----------
    definition
        Columns, keys and settings: those of every shard.
    incarnation
        Which of the tables that have had the name.
    map, map_version
        Which shard has which rows, and the version of that node.
    placement
        Which replicas host which shard.
    """

    definition: TableDefinition
    incarnation: str
    map: ShardMap
    map_version: fx.Version
    placement: Placement

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the shards' tables."""
        return tuple(places.shard_name(self.definition.name, shard) for shard in self.map.shards)


def find_sharded(catalog: Catalog, name: str) -> ShardedInfo | None:
    """Return a sharded table; None: there is none of this name.

    Raises
    ------
    InvalidName
        No table can have this name.
    UnsupportedFormat
        It can't be read: a newer replitree has written it.
    """
    place = layout.sharded(catalog.root, check_table_name(name))
    catalog.perform(fx.Sync(place))
    own = (places.metadata(place), places.columns(place), layout.shard_map(place), places.placement(place))
    # Several reads are no snapshot: all is of the incarnation that is there before it and after it.
    for _ in range(READS_MAX):
        made, metadata, columns, shard_map, placement, after = catalog.perform(GetStamped((place, *own, place))).nodes
        if made == after:
            break
    else:
        return None
    if made is None or metadata is None or columns is None or shard_map is None:
        return None
    return ShardedInfo(
        decode_definition(metadata.value, columns.value),
        made.value.decode(),
        decode_map(shard_map.value, layout.shard_map(place)),
        shard_map.version,
        EVERYWHERE if placement is None else decode_placement(placement.value, places.placement(place)),
    )


def sharded(catalog: Catalog, name: str) -> ShardedInfo:
    """Return a sharded table.

    Raises
    ------
    TableNotFound
        There is none of this name.  Others as `find_sharded`.
    """
    found = find_sharded(catalog, name)
    if found is None:
        raise TableNotFound(
            f"table {name!r} does not exist; create it, or see `replitree table list` for those that exist"
        )
    return found


class ReadMap(NamedTuple):
    """The map of a sharded table, its version, of which incarnation the table is, and the transaction that wrote the map."""

    map: ShardMap
    version: fx.Version
    incarnation: str
    changed: Zxid


def read_map(catalog: Catalog, name: str) -> ReadMap:
    """Return the map of a sharded table as it is now.

    Raises
    ------
    TableNotFound
        The table was dropped.
    """
    place = layout.sharded(catalog.root, name)
    path = layout.shard_map(place)
    catalog.perform(fx.Sync(path))
    # Several reads are no snapshot: the map is that of the incarnation that is there before it and after it.
    before, node, after = catalog.perform(GetStamped((place, path, place))).nodes
    if before is None or node is None or before != after:
        raise TableNotFound(f"table {name!r} does not exist any more, or was just created again: open it again")
    return ReadMap(decode_map(node.value, path), node.version, before.value.decode(), node.changed)


# --- creating and dropping ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sharding:
    """How a new table is sharded.

    Attributes
    ----------
    key
        The columns whose values decide which shard has a row.
    shards, buckets
        How many of each.
    replicas
        How many host each shard; None: all.
    """

    key: tuple[str, ...]
    shards: int
    buckets: int
    replicas: int | None

    @classmethod
    def of(
        cls,
        shard_by: str | Sequence[str],
        shards: int | None,
        buckets: int | None,
        replicas: int | None = None,
        hosting: DefaultSharding | None = None,
    ) -> Sharding:
        """Return what a user asks for: columns as a list or with commas between them; None: as the cluster hosts tables."""
        from replitree.storage.files.names import split_list

        key = [name.strip("`") for name in split_list(shard_by)] if isinstance(shard_by, str) else shard_by
        if hosting is not None:
            shards = hosting.shards if shards is None else shards
            replicas = hosting.replicas if replicas is None else replicas
        return cls(tuple(key), SHARDS_DEFAULT if shards is None else shards, buckets or BUCKETS_DEFAULT, replicas)

    def map_of(self, definition: TableDefinition) -> ShardMap:
        """Return the map of a new table.

        Raises
        ------
        BadInput
            The table can't be sharded like that; says why.
        """
        from replitree.storage.schema.row_buckets import shard_key

        if not 1 <= self.shards <= SHARDS_MAX:
            raise BadInput(f"a table has 1 to {SHARDS_MAX} shards, not {self.shards}")
        if self.shards > self.buckets:
            raise BadInput(f"{self.shards} shards can't share {self.buckets} buckets: ask for as many buckets at least")
        shard_key(definition, self.key)
        if definition.policy.text != PLAIN.text and not set(self.key) <= set(definition.order_by):
            raise BadInput(
                f"with the policy {definition.policy.text} rows with equal order keys must lie in one shard: shard by columns"
                f" of the order key ({', '.join(definition.order_by)}), not by {', '.join(self.key)}"
            )
        return first_map(self.key, {Shard(number): 1 for number in range(self.shards)}, self.buckets)

    def placement_of(self, catalog: Catalog, shards: Sequence[Shard]) -> Placement:
        """Return where the shards of a new table are placed: on every replica, or each on some of those that run now.

        Raises
        ------
        BadInput
            Fewer run than are to host a shard.
        """
        if self.replicas is None:
            return EVERYWHERE
        return spread(shards, sorted({name for name, _ in catalog.servers()}), self.replicas)


def create(catalog: Catalog, definition: TableDefinition, sharding: Sharding) -> None:
    """Create a sharded table; one whose creation was cut off is finished if it is to be the same.

    Raises
    ------
    BadInput
        The table can't be sharded like that; nothing was created.
    TableExists
        A table has this name, or its creation or drop has not been finished.
    CoordinationUnavailable
        Whether it was created is not known; create it again.
    """
    from replitree.protocol.sharded.creation import Creation, create_sharded, finish_creation

    shard_map = sharding.map_of(definition)
    placement = sharding.placement_of(catalog, shard_map.shards)
    coordination = catalog.coordination()
    for parent in (layout.tables(catalog.root), places.all_sharded(catalog.root)):
        make_root(coordination, parent)
    new = new_sharded(catalog.root, definition, new_incarnation(), shard_map, placement)
    outcome = catalog.run(create_sharded(new))
    if outcome is Creation.HALF_MADE:
        half = _half_made(catalog, definition, shard_map)
        outcome = outcome if half is None else catalog.run(finish_creation(half))
    name = definition.name
    match outcome:
        case Creation.DONE:
            return
        case Creation.TAKEN | Creation.EXISTS:
            raise TableExists(f"table {name!r} exists already: choose another name, or drop that one first")
        case Creation.HALF_MADE:
            raise TableExists(
                f"the creation of another sharded table {name!r} was cut off, or is under way: drop it, or choose another name"
            )
        case Creation.RESTORING:
            raise TableExists(
                f"table {name!r} is being restored: finish that with `replitree restore {name}`, or drop it, or choose another"
                " name"
            )
        case Creation.DROPPING:
            raise TableExists(f"table {name!r} is being dropped: drop it again to finish, or choose another name")
        case Creation.DROPPED:
            raise TableNotFound(f"table {name!r} was dropped while it was being created")
        case Creation.UNSETTLED:
            raise CoordinationUnavailable(f"the answer to the creation of {name!r} was lost; create it again")


def new_sharded(
    root: str, definition: TableDefinition, incarnation: str, shard_map: ShardMap, placement: Placement
) -> NewSharded:
    """Return what is created for a sharded table."""
    from replitree.protocol.sharded.creation import NewShard, NewSharded
    from replitree.protocol.shares.table_store import sharing_nodes

    shards = [(number, shard_definition(definition, number)) for number in shard_map.shards]

    def nodes_of_store(number: Shard) -> tuple[fx.Create, ...]:
        place = places.shard_place(root, definition.name, number, incarnation)
        return sharing_nodes(place) if definition.is_shared else ()

    return NewSharded(
        root,
        definition.name,
        incarnation,
        definition.encode_metadata(),
        definition.encode_columns(),
        encode_placement(placement),
        shard_map,
        tuple(
            NewShard(number, each.encode_metadata(), each.encode_columns(), nodes_of_store(number))
            for number, each in shards
        ),
    )


def _half_made(catalog: Catalog, wanted: TableDefinition, shard_map: ShardMap) -> NewSharded | None:
    """Return what is missing of a table whose creation was cut off; None: it is another table than the one that is wanted."""
    place = layout.sharded(catalog.root, wanted.name)
    made = catalog.perform(fx.Get(place))
    if made is None:
        return None
    incarnation = made.value.decode()
    path = places.life(place, incarnation)
    nodes = catalog.perform(fx.GetMany((path, places.metadata(place), places.columns(place)))).nodes
    life, metadata, columns = nodes
    if life is None or metadata is None or columns is None:
        return None
    there = decode_definition(metadata.value, columns.value)
    if replace(wanted, table_id=there.table_id) != there or decode_life(life.value, path).map != shard_map:
        return None
    # Its placement is there already, and stays.
    return new_sharded(catalog.root, there, incarnation, shard_map, EVERYWHERE)


def drop(catalog: Catalog, name: str, timeout_s: float) -> None:
    """Drop a sharded table and everything in it, also one that is half made or half dropped.

    Raises
    ------
    TableNotFound
        There is none of this name.
    BadInput
        A materialised view needs it; nothing was dropped.
    CoordinationUnavailable, Unavailable
        It is not known how far the drop is, or replicas have not left in time; drop it again.
    """
    from replitree.client.transport.left_objects import note_left
    from replitree.protocol.sharded.removal import Dropping, ShardedRemoval, begin_drop, drop_step, shards_left
    from replitree.protocol.sharded.views import why_sharded_kept

    deadline = time.monotonic() + timeout_s
    why, map_version = catalog.run(why_sharded_kept(layout.sharded(catalog.root, check_table_name(name))))
    if why:
        raise BadInput(why)
    begun = catalog.run(begin_drop(catalog.root, name, map_version))
    if begun is ShardedRemoval.MISSING:
        raise TableNotFound(f"table {name!r} does not exist; see `replitree table list` for those that do")
    if not isinstance(begun, Dropping):
        raise CoordinationUnavailable(f"whether the drop of {name!r} has begun is not known; drop it again")
    noted = frozenset[str]()
    while True:
        outcome = catalog.run(drop_step(begun, noted))
        if outcome is ShardedRemoval.DONE:
            return
        left: Mapping[str, list[str]] = {}
        for shard in catalog.run(shards_left(begun)):
            present = catalog.replicas(shard.name)
            left = {**left, shard.name: [replica.name for replica in present]}
            for replica in present:
                # A replica without a session can't leave by itself; when it starts again it finds the table gone.
                if not replica.active:
                    catalog.run(leave_table(Replica(shard, replica.name), shared=catalog.is_shared(shard)))
            # Then every shard is marked, so no replica joins it any more.
            if outcome is ShardedRemoval.SHARDS_LEFT and not present and shard.name not in noted:
                note_left(catalog.coordination(), catalog.root, shard)
                noted |= {shard.name}
        if time.monotonic() > deadline:
            if outcome is ShardedRemoval.UNSETTLED:
                raise CoordinationUnavailable(f"how far the drop of {name!r} is, is not known; drop it again")
            told = "; ".join(f"{shard}: {', '.join(names) or 'none'}" for shard, names in left.items())
            raise Unavailable(
                f"table {name!r} is being dropped, but replicas have not left its shards ({told}); drop it again"
            )
        time.sleep(LOOK_S)


def place_shard(catalog: Catalog, name: str, shard: int, replicas: Sequence[str]) -> Placement:
    """Place one shard on other replicas, and return the placement as it is then.

    Parameters
    ----------
    replicas
        Their names; none: every replica hosts it.

    Raises
    ------
    TableNotFound
        There is no such sharded table.
    BadInput
        It has no such shard, or a name is wrong.
    CoordinationUnavailable
        It is not known whether that was done; do it again.
    """
    for _ in range(CALLS_MAX):
        found = sharded(catalog, name)
        if shard not in found.map.shards:
            raise BadInput(f"table {name!r} has the shards {', '.join(map(str, found.map.shards))}, not {shard}")
        place = layout.sharded(catalog.root, name)
        path = places.placement(place)
        node = catalog.perform(fx.Get(path))
        if node is None:
            continue
        placement = decode_placement(node.value, path).placed(Shard(shard), replicas)
        outcome = catalog.perform(
            fx.Commit(
                # A commit that comes late must not change a later table of this name.
                fx.Check(places.life(place, found.incarnation), fx.ANY_VERSION),
                fx.Set(path, encode_placement(placement), node.version),
            )
        )
        if isinstance(outcome, fx.Applied):
            return placement
        if isinstance(outcome, fx.Unknown):
            break
    raise CoordinationUnavailable(f"whether the placement of {name!r} was changed is not known; do it again")
