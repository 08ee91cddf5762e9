"""Consumers of the change feed of a sharded table, on real replicas in this process whose old parts go at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from replitree.client.change.consuming import make_consumer
from replitree.client.connection import Connection
from replitree.client.sharded.moving import resharding
from replitree.client.sharded.moving.moves import MoveCarrier
from replitree.client.sharded.sharded_table import ShardedTable
from replitree.errors import BadInput, TableNotFound
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.sharded.moves.carry import MoverEnd
from replitree.protocol.sharded.shard_map import Shard
from replitree.replica.table import consuming, maintenance
from replitree.wire.feed_errors import ConsumerExpired, FeedOff
from tests.replica.fixtures import cluster_with_clock
from tests.replica.inprocess import ROOT, InProcessCluster, wait_for


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InProcessCluster]:
    monkeypatch.setattr(maintenance, "TAGS_S", 0.0)
    monkeypatch.setattr(consuming, "LOOK_S", 0.0)
    made = cluster_with_clock(tmp_path, old_parts_lifetime_s=0.0)
    yield made
    made.close()


@pytest.fixture
def connection(cluster: InProcessCluster) -> Iterator[Connection]:
    with cluster.connect() as made:
        yield made


@pytest.fixture
def table(connection: Connection) -> ShardedTable:
    """A table of two shards with a feed."""
    made = connection.create_table(
        "d", "k bigint not null", order_by="k", shard_by="k", shards=2, buckets=8, feed="1 day"
    )
    assert isinstance(made, ShardedTable)
    return made


def keys(first: int, count: int = 12) -> dict[str, list[int]]:
    return {"k": list(range(first, first + count))}


def unread(table: ShardedTable, consumer: str = "etl") -> tuple[dict[str, list[int]], str]:
    """Return the keys that a consumer has not read, by the kind of their change, and the cut where they end."""
    with table.changes(consumer=consumer) as changes:
        found = dict[str, list[int]]()
        for row in changes.to_arrow().to_pylist():
            found.setdefault(row["_change_type"], []).append(row["k"])
        return {kind: sorted(some) for kind, some in found.items()}, changes.end


def held_in(cluster: InProcessCluster, shard: str) -> tuple[str, ...]:
    """Return the names of the consumers of a shard."""
    path = layout.consumers(TablePlace(f"{ROOT}/tables/{shard}"))
    names: tuple[str, ...] | None = cluster.admin.perform(fx.Children(path))
    return names or ()


def carry(connection: Connection) -> None:
    assert MoveCarrier(connection.catalog, connection.table("d").http, "d").run() is MoverEnd.DONE


def test_what_a_consumer_has_not_read_outlives_the_feed_and_the_processes(
    cluster: InProcessCluster, table: ShardedTable
) -> None:
    made = table.create_consumer("etl")
    assert [name for name, _ in made.shards] == ["d~0", "d~1"]
    table.insert(keys(0))
    table.truncate()
    # From here on nothing but the consumer keeps them.
    table.set_feed(None)
    for node in cluster.nodes:
        node.restart()
        for name in table.info.names:
            wait_for(lambda node=node, name=name: cluster.is_active(node, name), f"{node.name} hosts {name}")  # type: ignore[misc]
    wait_for(lambda: unread(table)[0] == {"insert": keys(0)["k"], "delete": keys(0)["k"]}, "all is read")
    rows, end = unread(table)
    table.move_consumer("etl", end)
    wait_for(lambda: unread(table)[0] == {}, "nothing is left")
    (found,) = table.consumers()
    assert (found.cut, found.expired, found.snapshot) == (end, "", None)
    for name in table.info.names:
        for node in cluster.nodes:
            wait_for(lambda node=node, name=name: node.get("status", name)["old_parts"] == 0, "it is deleted")  # type: ignore[misc]
    assert rows


def test_a_consumer_is_moved_forward_only_and_not_beyond_the_table(table: ShardedTable) -> None:
    made = table.create_consumer("etl")
    table.insert(keys(0))
    _, end = unread(table)
    table.move_consumer("etl", end)
    table.move_consumer("etl", end)
    with pytest.raises(BadInput, match=f"stands at {end} and was not moved back to {made.cut}"):
        table.move_consumer("etl", made.cut)
    ensemble, _, zxid = end.partition("@")
    with pytest.raises(BadInput, match="has not come so far"):
        table.move_consumer("etl", f"{ensemble}@{int(zxid) + 1_000_000}")
    with pytest.raises(BadInput, match="no consumer 'other'"):
        table.move_consumer("other", end)
    with pytest.raises(BadInput, match="give one of them"):
        table.changes(end, consumer="etl")


def test_a_name_is_taken_once_and_free_again_after_the_drop(table: ShardedTable, cluster: InProcessCluster) -> None:
    made = table.create_consumer("etl", "earliest", command_id="c1")
    assert table.create_consumer("etl", "earliest", command_id="c1") == made
    with pytest.raises(BadInput, match=f"already, which stands at {made.cut}"):
        table.create_consumer("etl")
    with pytest.raises(BadInput, match="hold is"):
        table.create_consumer("none", hold="soon")
    table.drop_consumer("etl")
    assert [held_in(cluster, name) for name in table.info.names] == [(), ()]
    with pytest.raises(BadInput, match="no consumer 'etl'; it has none"):
        table.drop_consumer("etl")
    assert table.create_consumer("etl").name == "etl"


def test_a_consumer_begins_at_a_cut_a_time_or_a_tag(table: ShardedTable) -> None:
    table.insert(keys(0))
    tag = table.tag("monday")
    table.insert(keys(20))
    assert table.create_consumer("a", "monday").cut == tag.cut
    assert table.create_consumer("b", tag.cut).cut == tag.cut
    assert unread(table, "a")[0] == unread(table, "b")[0] == {"insert": keys(20)["k"]}


def test_a_table_without_a_feed_has_no_consumers(table: ShardedTable, connection: Connection) -> None:
    table.set_feed(None)
    with pytest.raises(FeedOff, match="table d keeps no change feed"):
        table.create_consumer("etl")
    assert table.consumers() == ()
    connection.drop_table("d")
    with pytest.raises(TableNotFound):
        table.consumers()


def test_a_consumer_reads_a_snapshot_first(table: ShardedTable) -> None:
    table.insert(keys(0))
    made = table.create_consumer("etl", "snapshot")
    assert made.snapshot == made.cut
    table.truncate()
    with pytest.raises(BadInput, match="begins with a snapshot that it has not read"):
        table.changes(consumer="etl")
    assert sorted(table.to_arrow(as_of=made.cut)["k"].to_pylist()) == keys(0)["k"]
    table.move_consumer("etl", made.cut)
    assert table.consumers()[0].snapshot is None
    assert unread(table)[0] == {"delete": keys(0)["k"]}


def test_moves_of_buckets_and_new_shards_leave_a_consumer_what_it_has_not_read(
    table: ShardedTable, connection: Connection, cluster: InProcessCluster
) -> None:
    table.create_consumer("etl")
    table.insert(keys(0))
    resharding.begin_buckets(connection.catalog, "d", range(4), 1)
    carry(connection)
    shard, _ = resharding.add_shard(connection.catalog, "d")
    assert shard == Shard(2)
    assert held_in(cluster, "d~2") == ("etl",)
    carry(connection)
    table.insert(keys(20))
    table.delete("k < 3")
    assert unread(table)[0] == {"insert": [*keys(0)["k"], *keys(20)["k"]], "delete": [0, 1, 2]}
    _, end = unread(table)
    table.move_consumer("etl", end)
    assert [name for name, _ in table.consumers()[0].shards] == ["d~0", "d~1", "d~2"]
    table.insert(keys(40))
    assert unread(table)[0] == {"insert": keys(40)["k"]}
    table.drop_consumer("etl")
    assert held_in(cluster, "d~2") == ()


def test_a_shard_is_added_only_where_it_can_hold_what_consumers_need(
    table: ShardedTable, connection: Connection
) -> None:
    table.create_consumer("etl")
    table.set_feed(None)
    with pytest.raises(BadInput, match="has consumers of its change feed, which is off"):
        resharding.add_shard(connection.catalog, "d")


def test_a_shard_that_owns_nothing_keeps_what_tags_and_consumers_need(
    table: ShardedTable, connection: Connection
) -> None:
    table.insert(keys(0))
    table.tag("before")
    table.create_consumer("etl", "earliest")
    resharding.begin_weights(connection.catalog, "d", {0: 0})
    carry(connection)
    table.truncate()
    assert sorted(table.to_arrow(as_of="before")["k"].to_pylist()) == keys(0)["k"]
    assert unread(table)[0] == {"insert": keys(0)["k"], "delete": keys(0)["k"]}


def test_the_hold_of_a_consumer_ends_when_it_ends_in_one_shard(cluster: InProcessCluster, table: ShardedTable) -> None:
    table.create_consumer("etl", hold="1s")
    table.create_consumer("slow")
    # One key, so one shard has something to read.
    table.insert(keys(0, 1))
    for name in table.info.names:
        cluster.wait_alike(name)
    cluster.shared.now_ms += 60_000
    wait_for(lambda: table.consumers()[0].expired != "", "the hold has ended")
    etl, slow = table.consumers()
    assert "in shard d~" in etl.expired
    assert slow.expired == ""
    with pytest.raises(ConsumerExpired, match="drop it, and create it again with 'snapshot'"):
        table.changes(consumer="etl")
    with pytest.raises(ConsumerExpired):
        table.move_consumer("etl", table.cut_now())
    table.drop_consumer("etl")


def test_what_was_left_of_a_consumer_is_deleted_by_the_next_one_of_the_name(
    table: ShardedTable, cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_shards = "replitree.client.sharded.feed.consumer_table.make_consumer"

    def once(*arguments: Any) -> None:
        monkeypatch.setattr(of_shards, make_consumer)
        make_consumer(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(of_shards, once)
    with pytest.raises(KeyboardInterrupt):
        table.create_consumer("etl")
    assert held_in(cluster, "d~0") == ("etl",)
    assert table.consumers() == ()
    made = table.create_consumer("etl")
    assert table.consumers() == (made,)
