"""How a cluster hosts new sharded tables: the default that it was started with, and what each table says itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from replitree.client.cluster import LocalCluster
from replitree.client.connection import Connection
from replitree.client.sharded.sharded_table import ShardedTable
from replitree.client.transport.hosting import placed_on, read_default, write_default
from replitree.errors import BadInput, CoordinationUnavailable
from replitree.protocol.core import effects as fx
from replitree.protocol.sharded.default_sharding import DefaultSharding
from replitree.protocol.sharded.places import shard_number
from tests.replica.inprocess import SCHEMA, InProcessCluster


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    cluster = InProcessCluster(tmp_path_factory.mktemp("hosting"), replicas=4)
    with cluster.connect() as made:
        yield made
    cluster.close()


def placements(connection: Connection, name: str, **options: Any) -> list[tuple[str, ...] | None]:
    """Create a table, return on which replicas its shards are, and drop it."""
    made = connection.create_table(name, SCHEMA, order_by="k", shard_by="k", buckets=16, **options)
    assert isinstance(made, ShardedTable)
    for shard in made.info.names:
        assert placed_on(connection.catalog, shard) == (made.info.placement.of(shard_number(shard)) or ())
    found = [made.info.placement.of(shard) for shard in made.info.map.shards]
    assert [each.placed_on for each in connection.status(name).tables] == [each or () for each in found]
    connection.drop_table(name)
    return found


def test_shards_lie_on_servers_of_their_own_when_the_cluster_was_started_for_them(connection: Connection) -> None:
    assert read_default(connection.catalog) is None
    assert placements(connection, "before") == [None, None]
    write_default(connection.catalog, DefaultSharding(2, 2))
    assert placements(connection, "both") == [("r1", "r2"), ("r3", "r4")]
    assert placements(connection, "more", shards=4) == [("r1", "r2"), ("r3", "r4")] * 2
    assert placements(connection, "copies", replicas=1) == [("r1",), ("r2",)]
    write_default(connection.catalog, DefaultSharding(4, 1))
    assert placements(connection, "anew") == [("r1",), ("r2",), ("r3",), ("r4",)]
    plain = connection.create_table("plain", SCHEMA, order_by="k", wait_replicas=4)
    assert [each.name for each in connection.status("plain").tables[0].replicas] == ["r1", "r2", "r3", "r4"]
    assert placed_on(connection.catalog, plain.name) == ()
    connection.drop_table("plain")


def test_a_default_that_can_not_be_written_is_an_error(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = connection.catalog
    perform = catalog.perform
    monkeypatch.setattr(
        catalog, "perform", lambda effect: fx.Unknown() if isinstance(effect, fx.Commit) else perform(effect)
    )
    with pytest.raises(CoordinationUnavailable, match="/replitree/sharding; try again"):
        write_default(catalog, DefaultSharding(7, 1))


@pytest.mark.parametrize(("shards", "replicas"), [(9, 2), (0, 2), (2, 0)])
def test_a_local_cluster_of_too_many_or_no_replicas_is_refused_before_anything_starts(
    tmp_path: Path, shards: int, replicas: int
) -> None:
    with pytest.raises(BadInput, match=f"1 to 16 replicas, not {shards * replicas}"):
        LocalCluster(tmp_path, replicas, shards=shards)
