"""What it takes to judge a sharded table: its shards as tables of their own, and the transactions of inserts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from replitree.client.connection import Connection
from replitree.client.insert.terms import Written
from replitree.client.sharded.sharded_table import ShardedTable
from replitree.client.table import Table
from replitree.client.transport.http import HttpClient
from replitree.coordination.port import READS_MAX
from replitree.coordination.zookeeper import ZooKeeperCoordination
from replitree.protocol.core import layout
from replitree.protocol.core.stamps import GetStamped
from replitree.storage.schema.shard_definition import shard_definition
from replitree.wire.block_ids import token_block
from replitree.wire.history_format import Operation


class Hosted(NamedTuple):
    """What is a table to replicas, a table or one shard of it, and the names of those that host it."""

    table: Table
    replicas: tuple[str, ...]


def hosted(connection: Connection, table: Table, replicas: Sequence[str]) -> list[Hosted]:
    """Return a table as replicas have it: itself, or each of its shards.

    Parameters
    ----------
    connection
        To its cluster.
    replicas
        The names of all replicas of the cluster.
    """
    if not isinstance(table, ShardedTable):
        return [Hosted(table, tuple(replicas))]
    info, http = table.info, HttpClient(connection.access.token)
    return [
        Hosted(
            Table(shard_definition(table.definition, shard), connection.catalog, http, Written()),
            info.placement.of(shard) or tuple(replicas),
        )
        for shard in info.map.shards
    ]


def with_transactions(operations: Sequence[Operation], url: str, name: str) -> list[Operation]:
    """Return operations in which acknowledged inserts have the transaction of their commit as their position.

    Reads have that of their cut.  The token's node tells it, which the commit has created; a token that was forgotten does not.

    Parameters
    ----------
    operations
        On a sharded table.
    url, name
        Of the ensemble, with its root, and of the table.
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


__all__ = ["Hosted", "hosted", "with_transactions"]
