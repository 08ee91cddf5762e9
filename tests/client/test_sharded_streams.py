"""Batches of streams into a sharded table, with real replicas in this process: each is inserted once, over all shards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from replitree.client.connection import Connection
from replitree.client.insert.terms import Terms
from replitree.client.sharded.sharded_table import ShardedTable
from replitree.errors import BadInput, QuorumNotReached, StreamReplaced, TableNotFound
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.streams import decode_stream
from replitree.protocol.membership.table import join_table
from replitree.protocol.upkeep.clean_blocks import Window
from replitree.protocol.upkeep.clean_tokens import clean_tokens
from replitree.wire.sent_batch import SentBatch
from tests.client.lost_answers import lose_answers
from tests.replica.fixtures import cluster_and_connection, hosted_everywhere
from tests.replica.inprocess import ROOT, SCHEMA, InProcessCluster, rows

PLACE = layout.sharded(ROOT, "d")
NAMES = ("d~0", "d~1")

cluster, connection = cluster_and_connection()


@pytest.fixture
def table(cluster: InProcessCluster, connection: Connection) -> Iterator[ShardedTable]:
    """A table of two shards by `k`."""
    made = connection.create_table("d", SCHEMA, order_by="k", shard_by="k", buckets=16)
    assert isinstance(made, ShardedTable)
    yield made
    connection.drop_table("d")
    assert cluster.admin.perform(fx.Children(f"{ROOT}/sharded")) == ()


def send(
    table: ShardedTable, number: int, first: int, count: int = 20, query: str = "q", *, takes_over: bool = False
) -> str:
    """Insert rows as a batch of the stream `etl`; return the outcome."""
    batch = SentBatch("etl", number, query, takes_over)
    return table.insert_on_terms(rows(first, count), Terms(None, batch=batch)).outcome


def last_batch(cluster: InProcessCluster) -> tuple[str, int]:
    path = layout.stream(TablePlace(PLACE), fx.StreamId("etl"))
    node = cluster.admin.perform(fx.Get(path))
    assert node is not None
    value = decode_stream(node.value, path)
    return value.query, value.batch


# One row lies in one shard, and is prepared and committed by one request.
@pytest.mark.parametrize("count", [20, 1])
def test_a_batch_is_inserted_once(table: ShardedTable, cluster: InProcessCluster, count: int) -> None:
    assert [send(table, 0, 0, count), send(table, 0, 0, count)] == ["inserted", "duplicate"]
    # A batch below the last one is in the table, or had no rows.
    assert [send(table, 2, 100, count), send(table, 1, 200, count)] == ["inserted", "duplicate"]
    assert last_batch(cluster) == ("q", 2)
    found = sorted(table.to_arrow().column("k").to_pylist())
    assert found == [*range(count), *range(100, 100 + count)]


def test_a_duplicate_says_where_the_batch_is(table: ShardedTable) -> None:
    terms = Terms(None, batch=SentBatch("etl", 7, "q"))
    first, again = (table.insert_on_terms(rows(0, 20), terms) for _ in range(2))
    assert (first.outcome, again.outcome) == ("inserted", "duplicate")
    assert [name for name, _ in first.shards] == ["d~0", "d~1"]  # type: ignore[attr-defined]
    assert again.shards == first.shards  # type: ignore[attr-defined]


def test_a_batch_whose_token_was_forgotten_is_known_by_its_stream(
    table: ShardedTable, cluster: InProcessCluster
) -> None:
    assert send(table, 0, 0) == "inserted"
    tokens = cluster.admin.perform(fx.Children(layout.joint_tokens(PLACE)))
    assert len(tokens) == 1
    path = layout.joint_token(PLACE, fx.BlockId(tokens[0]))
    assert isinstance(cluster.admin.perform(fx.Commit(fx.Delete(path, fx.ANY_VERSION))), fx.Applied)
    assert send(table, 0, 0) == "duplicate"
    assert table.scan().count() == 20


def test_a_batch_of_another_query_is_refused_unless_it_takes_the_stream_over(
    table: ShardedTable, cluster: InProcessCluster
) -> None:
    assert send(table, 5, 0) == "inserted"
    with pytest.raises(StreamReplaced, match="belongs to query q, whose last batch is 5") as caught:
        send(table, 3, 100, query="p")
    assert (caught.value.stream, caught.value.query, caught.value.batch) == ("etl", "q", 5)
    assert table.scan().count() == 20
    assert send(table, 3, 100, query="p", takes_over=True) == "inserted"
    assert last_batch(cluster) == ("p", 3)
    with pytest.raises(StreamReplaced):
        send(table, 3, 200)


def test_a_batch_whose_answer_was_lost_is_sent_again_and_inserted_once(
    table: ShardedTable, cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = lose_answers(monkeypatch, "/joint?")
    assert send(table, 0, 0) == "duplicate"
    assert lost
    assert table.scan().count() == 20
    assert last_batch(cluster) == ("q", 0)


def test_batch_writes_with_a_version_are_batches(table: ShardedTable) -> None:
    for _ in range(2):
        table.insert(rows(0, 20), txn_app_id="load", txn_version=3)
    assert table.scan().count() == 20


def test_streams_are_listed_and_forgotten(table: ShardedTable) -> None:
    assert table.streams() == ()
    with pytest.raises(BadInput, match="has no stream 'etl'; it has none"):
        table.drop_stream("etl")
    for number in (0, 1):
        send(table, number, 0)
    table.insert(rows(20, 20), txn_app_id="load/7", txn_version=3)
    first, second = table.streams()
    assert (first.id, first.query, first.batch, second.id, second.query) == ("etl", "q", 1, "load/7", "")
    assert first.time <= second.time
    table.drop_stream("load/7")
    assert [each.id for each in table.streams()] == ["etl"]
    # A batch that is sent again is inserted again, and the other stream goes on.
    assert table.insert(rows(40, 20), txn_app_id="load/7", txn_version=3).outcome == "inserted"
    assert [send(table, 1, 100), send(table, 2, 100)] == ["duplicate", "inserted"]


def test_streams_of_a_table_that_is_gone_are_not_found(connection: Connection) -> None:
    table = connection.create_table("e", SCHEMA, order_by="k", shard_by="k", buckets=16)
    connection.drop_table("e")
    for call in (table.streams, lambda: table.drop_stream("etl")):
        with pytest.raises(TableNotFound):
            call()


@contextmanager
def idle_replica(cluster: InProcessCluster, connection: Connection) -> Iterator[None]:
    """Add a replica to both shards that is active and does nothing; take it out behind the block."""
    idle = [Replica(place_of(cluster, name), "r9") for name in NAMES]
    for each in idle:
        cluster.run(join_table(each))
        active = fx.Create(layout.is_active(each), b"", ephemeral=True)
        assert isinstance(cluster.admin.perform(fx.Commit(active)), fx.Applied)
    yield
    for each in idle:
        gone = fx.Commit(fx.Delete(layout.is_active(each), fx.ANY_VERSION))
        assert isinstance(cluster.admin.perform(gone), fx.Applied)
        connection.drop_replica(each.table.name, each.name)


def place_of(cluster: InProcessCluster, name: str) -> TablePlace:
    """Return the place of a shard."""
    return cluster.nodes[0].table(name).context.replica.table


@pytest.mark.parametrize("count", [20, 1])
def test_a_batch_with_a_quorum_is_inserted_once(table: ShardedTable, cluster: InProcessCluster, count: int) -> None:
    def outcome(number: int, first: int, quorum: int | None) -> str:
        return table.insert(rows(first, count), txn_app_id="etl", txn_version=number, quorum=quorum).outcome

    hosted_everywhere(cluster, *NAMES)
    assert [outcome(0, 0, 2), outcome(0, 0, 2), outcome(0, 0, None)] == ["inserted", "duplicate", "duplicate"]
    assert [outcome(1, 100, None), outcome(2, 200, 2), outcome(1, 300, 2)] == ["inserted", "inserted", "duplicate"]
    assert last_batch(cluster) == ("", 2)
    found = sorted(table.to_arrow(level="linearizable").column("k").to_pylist())
    assert found == [first + key for first in (0, 100, 200) for key in range(count)]


def test_a_batch_whose_quorum_was_not_reached_is_inserted_when_it_is_sent_again(
    table: ShardedTable, cluster: InProcessCluster, connection: Connection
) -> None:
    hosted_everywhere(cluster, *NAMES)
    assert table.insert(rows(0, 20), txn_app_id="etl", txn_version=0, quorum=2).outcome == "inserted"
    with idle_replica(cluster, connection):
        for number in (1, 2):
            with pytest.raises(QuorumNotReached):
                table.insert(rows(100, 20), txn_app_id="etl", txn_version=number, quorum=3, quorum_timeout_s=0.3)
            with pytest.raises(QuorumNotReached):
                table.insert(rows(100, 20), txn_app_id="new", txn_version=0, quorum=3, quorum_timeout_s=0.3)
        # The node of a stream names the batch that has failed until the next one comes.
        assert [(each.id, each.batch) for each in table.streams()] == [("etl", 0)]
    again = table.insert(rows(200, 20), txn_app_id="etl", txn_version=1, quorum=2)
    assert (again.outcome, last_batch(cluster)) == ("inserted", ("", 1))
    assert table.insert(rows(200, 20), txn_app_id="etl", txn_version=0).outcome == "duplicate"
    found = sorted(table.to_arrow(level="linearizable").column("k").to_pylist())
    assert found == [*range(20), *range(200, 220)]


def test_the_token_of_a_batch_with_a_quorum_is_kept_until_the_next_batch(
    table: ShardedTable, cluster: InProcessCluster
) -> None:
    def clean() -> tuple[str, ...]:
        replica = cluster.nodes[0].table("d~0").context.replica
        epoch = cluster.admin.perform(fx.Get(layout.host(replica))).version
        cluster.run(clean_tokens(replica, epoch, Window(count=0), {}))
        found: tuple[str, ...] = cluster.admin.perform(fx.Children(layout.joint_tokens(PLACE)))
        return found

    hosted_everywhere(cluster, *NAMES)
    assert table.insert(rows(0, 20), txn_app_id="etl", txn_version=0, quorum=2).outcome == "inserted"
    assert len(clean()) == 1
    assert table.insert(rows(0, 20), txn_app_id="etl", txn_version=0, quorum=2).outcome == "duplicate"
    assert table.insert(rows(100, 20), txn_app_id="etl", txn_version=1).outcome == "inserted"
    assert clean() == ()
    assert [send(table, number, 0, query="") for number in (0, 1)] == ["duplicate"] * 2
