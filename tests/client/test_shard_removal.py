"""A shard that owns nothing leaves its table, with real replicas in this process whose old parts go at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from replitree.client.admin.doctor import examine
from replitree.client.connection import Connection
from replitree.client.sharded.sharded_table import ShardedTable
from replitree.client.transport.catalog import Catalog
from replitree.errors import BadInput, SnapshotExpired, Unavailable
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.replica.table import consuming, maintenance
from replitree.wire.feed_errors import OffsetExpired
from tests.replica.fixtures import cluster_with_clock
from tests.replica.inprocess import ROOT, SCHEMA, InProcessCluster, rows
from tests.waiting import wait_for


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InProcessCluster]:
    monkeypatch.setattr(maintenance, "TAGS_S", 0.0)
    monkeypatch.setattr(consuming, "LOOK_S", 0.0)
    made = cluster_with_clock(tmp_path)
    yield made
    made.close()


@pytest.fixture
def connection(cluster: InProcessCluster) -> Iterator[Connection]:
    with cluster.connect() as made:
        yield made


@pytest.fixture
def table(connection: Connection) -> ShardedTable:
    """A table of three shards with a feed, and the keys 0 to 59."""
    made = connection.create_table("d", SCHEMA, order_by="k", shard_by="k", shards=3, buckets=16, feed="1 day")
    assert isinstance(made, ShardedTable)
    made.insert(rows(0, 60), token="first")
    return made


def keys(table: Any, **options: Any) -> list[int]:
    found: list[int] = table.to_arrow(["k"], **options)["k"].to_pylist()
    return sorted(found)


def empty(connection: Connection, shard: int = 1) -> None:
    """Move all buckets of a shard away."""
    shards = connection.shards("d")
    shards.weigh({shard: 0})
    shards.carry()


def names(cluster: InProcessCluster) -> list[str]:
    found: tuple[str, ...] = cluster.admin.perform(fx.Children(layout.tables(ROOT)))
    return sorted(found)


def test_an_emptied_shard_is_removed_and_earlier_readers_and_writers_go_on(
    cluster: InProcessCluster, connection: Connection, table: ShardedTable
) -> None:
    with cluster.connect() as other:
        # It knows the map from before the moves until the shard is gone.
        stale = other.table("d")
        assert isinstance(stale, ShardedTable)
        before = stale.cut_now()
        with pytest.raises(BadInput, match="owns buckets, or buckets move"):
            connection.shards("d").remove(1)
        empty(connection)
        connection.shards("d").remove(1)
        assert names(cluster) == ["d", "d~0", "d~2"]
        assert not any(node.config.data and (Path(node.config.data) / "tables/d~1").exists() for node in cluster.nodes)
        assert stale.insert(rows(60, 20)).outcome == "inserted"
        assert stale.insert(rows(0, 60), token="first").outcome == "duplicate"
        assert keys(stale) == keys(table, level="linearizable") == list(range(80))
        with pytest.raises(SnapshotExpired, match="a shard of the table had rows at the cut"):
            keys(stale, as_of=before)
    with cluster.connect() as other:
        assert keys(other.table("d"), as_of=table.cut_now()) == list(range(80))
        assert keys(other.table("d"), where="k in (1, 2, 3)") == [1, 2, 3]
    shards = connection.shards("d")
    assert (sorted(shards.status().owned), shards.status().left) == ([0, 2], ())
    shards.remove(1)
    # No later shard has the number of one that was removed.
    assert shards.add() == 3
    shards.carry()
    wait_for(lambda: keys(table) == list(range(80)), "the removals are executed")
    assert names(cluster) == ["d", "d~0", "d~2", "d~3"]


def test_a_handle_with_an_old_map_deletes_in_the_shards_that_are_left(
    cluster: InProcessCluster, connection: Connection, table: ShardedTable
) -> None:
    with cluster.connect() as other:
        stale = other.table("d")
        empty(connection)
        connection.shards("d").remove(1)
        assert stale.delete("k < 30").finished
        assert keys(table, level="linearizable") == list(range(30, 60))


def test_a_shard_stays_as_long_as_a_tag_or_a_consumer_needs_it(connection: Connection, table: ShardedTable) -> None:
    table.tag("early")
    table.create_consumer("etl", "earliest")
    start = table.cut_now()
    empty(connection)
    shards = connection.shards("d")
    with pytest.raises(BadInput, match="tag 'early' keeps rows that only shard d~1 has"):
        shards.remove(1)
    table.delete_tag("early")
    with pytest.raises(BadInput, match="consumer 'etl' has not read all changes of shard d~1"):
        shards.remove(1)
    table.tag("late")
    with table.changes(consumer="etl") as changes:
        assert changes.to_arrow().num_rows == 60
        table.move_consumer("etl", changes.end)
    shards.remove(1)
    with pytest.raises(OffsetExpired, match="was removed since"):
        table.changes(start)
    with pytest.raises(OffsetExpired):
        table.changes(0)
    table.insert(rows(60, 10))
    with table.changes(consumer="etl") as changes:
        assert sorted(changes.to_arrow()["k"].to_pylist()) == list(range(60, 70))
        table.move_consumer("etl", changes.end)
    assert keys(table, as_of="late") == list(range(60))
    with table.changes(table.feed_from()) as changes:
        assert changes.to_arrow().num_rows == 10


def test_a_removal_that_was_cut_off_is_told_and_finished(
    cluster: InProcessCluster, connection: Connection, table: ShardedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty(connection)

    def die(*_: object) -> None:
        raise Unavailable("the process has died")

    # A replica without a session does not leave by itself.
    cluster.nodes[1].stop()
    with monkeypatch.context() as patch:
        patch.setattr(Catalog, "finish_drop", die)
        with pytest.raises(Unavailable):
            connection.shards("d").remove(1)
    assert connection.shards("d").status().left == (1,)
    findings = [each for each in examine(connection.look_over()) if each.code == "half-dropped-table"]
    assert [each.advice for each in findings] == ["replitree shard remove d --shard 1 finishes it"]
    assert keys(table) == list(range(60))
    connection.shards("d").remove(1)
    assert connection.shards("d").status().left == ()
    assert names(cluster) == ["d", "d~0", "d~2"]


def test_a_shard_with_parts_aside_stays(connection: Connection, table: ShardedTable) -> None:
    table.freeze("copy")
    empty(connection)
    with pytest.raises(BadInput, match=r"0 detached and .* frozen parts lie on the disks"):
        connection.shards("d").remove(1)
    table.remove_frozen("copy")
    connection.shards("d").remove(1)
    assert keys(table) == list(range(60))
