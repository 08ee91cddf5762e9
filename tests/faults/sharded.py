"""What a judged run needs of a sharded table: its shards as tables, closing reads of all of them, positions by transaction."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from replitree.client.connection import Connection
from replitree.client.insert.terms import Written
from replitree.client.sharded.sharded_table import ShardedTable
from replitree.client.table import Table
from replitree.client.transport.http import HttpClient
from replitree.coordination.port import READS_MAX
from replitree.coordination.zookeeper import ZooKeeperCoordination
from replitree.errors import ReplitreeError
from replitree.protocol.core import layout
from replitree.protocol.core.stamps import GetStamped
from replitree.storage.schema.shard_definition import shard_definition
from replitree.wire.block_ids import token_block
from replitree.wire.history_format import Operation
from replitree.wire.history_recorder import Recorder

REPLICAS = 2
"""Of each shard."""


def shards_of(connection: Connection, table: ShardedTable) -> list[tuple[Table, tuple[str, ...]]]:
    """Return each shard as a table, with the names of its replicas."""
    http = HttpClient(connection.access.token)
    shards = [
        Table(shard_definition(table.definition, shard), connection.catalog, http, Written())
        for shard in table.info.map.shards
    ]
    placed = [table.info.placement.of(shard) or () for shard in table.info.map.shards]
    return list(zip(shards, placed, strict=True))


def read_closing_shards(name: str, shards: Sequence[tuple[Table, Sequence[str]]], file: Path, timeout_s: float) -> None:
    """Read the whole table as often as a shard has replicas, each time at other ones, when nothing changes any more.

    Parameters
    ----------
    name, shards
        Of the sharded table, and its shards with the names of their replicas.
    file
        The history of these reads; a new file.
    timeout_s
        How long the read of one replica may take, in seconds.
    """
    with contextlib.closing(Recorder(file, name="closing")) as recorder:
        for copy in range(REPLICAS):
            replicas = [names[copy] for _, names in shards]
            closing = recorder.read(name, "linearizable", replica=" and ".join(replicas), closing=True)
            # A read that fails is recorded as failed, which is an anomaly here.
            with contextlib.suppress(ReplitreeError), closing as asked:
                rows = list[int]()
                for (shard, _), replica in zip(shards, replicas, strict=True):
                    snapshot = shard.replica(replica).snapshot(level="linearizable", timeout_s=timeout_s)
                    rows += snapshot.to_arrow(["id"]).column("id").to_pylist()
                asked.show(rows)


def with_transactions(operations: Sequence[Operation], url: str, name: str) -> list[Operation]:
    """Return operations in which acknowledged inserts have the transaction of their commit as their position.

    Reads have that of their cut.  The token's node tells it, which the commit has created; a token that was forgotten does not.
    """
    coordination = ZooKeeperCoordination(url)
    try:
        place = layout.sharded(coordination.url.root, name)
        asked = [each for each in operations if each.kind == "insert" and each.outcome == "ok" and each.token]
        paths = [layout.joint_token(place, token_block(str(each.token))) for each in asked]
        found = dict[int, int]()
        for first in range(0, len(paths), READS_MAX):
            nodes = coordination.perform(GetStamped(tuple(paths[first : first + READS_MAX]))).nodes
            found |= {
                id(each): node.created for each, node in zip(asked[first:], nodes, strict=False) if node is not None
            }
    finally:
        coordination.close()
    return [msgspec.structs.replace(each, index=found[id(each)]) if id(each) in found else each for each in operations]
