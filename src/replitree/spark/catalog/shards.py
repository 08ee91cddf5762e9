"""Sharded tables in the catalog: one table, whose snapshot is that of all shards.

A query's condition is known only after the snapshot was taken.  So the snapshot is that of every shard, and `wanted_shards`
leaves out shards of which no row can match, by the map with which the snapshot was taken.

Spark joins two sharded tables by their shard keys without a shuffle when `sharding` says the same function of both: rows with
equal keys then lie in shards of one number.

On a cluster Spark's own scan has one ticket for all files of a table, and each shard has a ticket of its own: Python tasks read
there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import xxhash

from replitree.client.read.snapshot import Snapshot
from replitree.client.sharded.sharded_table import ShardedTable
from replitree.client.sharded.union import ShardedSnapshot, newest_definition, shards_of
from replitree.client.table import Table
from replitree.protocol.sharded.cut import parse_cut
from replitree.protocol.sharded.places import shard_number
from replitree.protocol.sharded.shard_map import ShardMap
from replitree.storage.schema.row_buckets import shard_key
from replitree.storage.sql.predicate import Predicate
from replitree.storage.sql.shard_pruning import buckets_of

FOR_CLUSTERS = 'shards, for executors of a cluster: read by format("replitree")'
"""Why Spark's own scan does not read a sharded table on a cluster."""


class TakenSnapshot(NamedTuple):
    """A snapshot, and the map of a sharded table at its cut; None: there is none, or it is not known."""

    snapshot: Snapshot | ShardedSnapshot
    map: ShardMap | None = None


def take_snapshot(table: Table, take: Callable[[], Snapshot | ShardedSnapshot]) -> TakenSnapshot:
    """Take a snapshot of a table, by `take`."""
    if not isinstance(table, ShardedTable):
        return TakenSnapshot(take())
    table.refresh()
    before = table.info
    snapshot = take()
    used = before.incarnation, before.map_version
    now, written = table.map_now(used)
    cut = snapshot.cut if isinstance(snapshot, ShardedSnapshot) else None
    # A map that is newer than the cut does not tell which shard had which buckets there.
    is_of_cut = now == used and cut is not None and written <= parse_cut(cut).zxid
    return TakenSnapshot(snapshot, before.map if is_of_cut else None)


def wanted_shards(taken: TakenSnapshot, predicate: Predicate | None) -> tuple[Snapshot, ...]:
    """Return the shards of a snapshot that can have rows which a condition keeps; None keeps all."""
    shards = shards_of(taken.snapshot)
    if taken.map is None or predicate is None:
        return shards
    wanted = set(taken.map.shards_of(buckets_of(taken.map, predicate)))
    return tuple(each for each in shards if shard_number(each.definition.name) in wanted)


def sharding(taken: TakenSnapshot) -> dict[str, object] | None:
    """Return the function of a row's shard key that gives its shard: a name, and the columns; None: there is none.

    Functions of one name give equal keys the same shard: the name has a digest of the key's types and of the buckets' owners.
    """
    if taken.map is None or taken.map.moves:
        # While a bucket moves, two shards have rows of it.
        return None
    key = shard_key(newest_definition(taken.snapshot), taken.map.key)
    types = ",".join(str(column.arrow_type) for column in key)
    owners = ",".join(f"{run.shard}*{run.buckets}" for run in taken.map.owner)
    digest = xxhash.xxh3_64_hexdigest(f"{taken.map.hash} {types} {owners}".encode())
    return {"function": f"shard_{digest}", "columns": [column.name for column in key]}


def shown(table: Table, snapshot: Snapshot | ShardedSnapshot) -> dict[str, str]:
    """Return the properties that say where rows were read: at which replica and index, or how the table is sharded."""
    if isinstance(snapshot, Snapshot):
        return {"index": str(snapshot.index), "replica": snapshot.replica}
    assert isinstance(table, ShardedTable)
    info = table.info
    return {
        "shard_by": ", ".join(info.map.key),
        "shards": str(len(info.map.shards)),
        "buckets": str(info.map.buckets),
        "cut": snapshot.cut or "",
    }


def same_again(snapshot: Snapshot | ShardedSnapshot) -> dict[str, str]:
    """Return the options with which ``format("replitree")`` reads a snapshot: of shards that are at no cut, others of now."""
    if isinstance(snapshot, Snapshot):
        return {"asOf": str(snapshot.index), "replica": snapshot.replica}
    return {} if snapshot.cut is None else {"asOf": snapshot.cut}


def index_of(snapshot: Snapshot | ShardedSnapshot) -> int:
    """Return what the JVM shows as the index of a snapshot: of a sharded table, how many entries its logs have below it."""
    return sum(each.index for each in shards_of(snapshot))


def replicas_of(snapshot: Snapshot | ShardedSnapshot) -> str:
    """Return the names of the replicas that a snapshot was taken of, with commas between them."""
    return ", ".join(sorted({each.replica for each in shards_of(snapshot)}))


__all__ = [
    "FOR_CLUSTERS",
    "TakenSnapshot",
    "index_of",
    "replicas_of",
    "same_again",
    "sharding",
    "shown",
    "take_snapshot",
    "wanted_shards",
]
