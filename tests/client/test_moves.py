"""Moves of buckets from a client's point of view, with real replicas in this process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from replitree.client.connection import Connection
from replitree.client.sharded import resharding
from replitree.client.sharded.moves import Mover
from replitree.client.sharded.sharded_table import ShardedTable
from replitree.protocol.sharded.moves.carry import MoverEnd
from tests.replica.inprocess import SCHEMA, InProcessCluster, rows
from tests.waiting import wait_for


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessCluster]:
    made = InProcessCluster(tmp_path_factory.mktemp("moves"))
    yield made
    made.close()


@pytest.fixture
def connection(cluster: InProcessCluster) -> Iterator[Connection]:
    made = cluster.connect()
    yield made
    for name in made.tables():
        made.drop_table(name)
    made.close()


def create(connection: Connection, **options: Any) -> ShardedTable:
    made = connection.create_table("d", SCHEMA, order_by="k", **{"shard_by": "k", "buckets": 16, **options})
    assert isinstance(made, ShardedTable)
    return made


def shown(table: ShardedTable) -> Counter[tuple[Any, ...]]:
    found = table.scan().to_arrow()
    return Counter(zip(*(found[name].to_pylist() for name in found.schema.names), strict=True))


def counted(connection: Connection) -> list[int]:
    """How many rows each shard has."""
    table = connection.table("d")
    assert isinstance(table, ShardedTable)
    with table.snapshot() as snapshot:
        return [each.rows for each in snapshot.shards]


def mover(connection: Connection) -> Mover:
    return Mover(connection.catalog, connection.table("d").http, "d")


def test_rows_of_buckets_move_and_each_is_shown_once(connection: Connection) -> None:
    table = create(connection)
    table.insert(rows(0, 400))
    before = shown(table)
    wanted = resharding.begin_buckets(connection.catalog, "d", range(4), 1)
    assert [(move.source, move.target, move.buckets) for move in wanted.moves] == [(0, 1, (0, 1, 2, 3))]
    table.insert(rows(400, 500))
    assert resharding.status_of(connection.catalog, "d").moves == wanted.moves
    assert mover(connection).run() is MoverEnd.DONE
    status = resharding.status_of(connection.catalog, "d")
    assert (status.moves, status.owned) == ((), {0: 4, 1: 12})
    wait_for(lambda: sum(shown(table).values()) == 500, "the removals are executed")
    assert shown(table) >= before
    wait_for(lambda: counted(connection)[0] < 200, "the source has a quarter")
