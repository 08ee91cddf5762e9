"""Streams with a consumer: what they have not read is kept for them, and a checkpoint that disagrees is refused."""

from __future__ import annotations

import pytest

from replitree.client.table import Table
from replitree.errors import BadInput
from replitree.spark.stream import stream_consumer
from replitree.wire.feed_errors import ConsumerExpired
from tests.replica.inprocess import InProcessCluster, wait_for
from tests.spark import test_stream_read as streams
from tests.spark.test_stream_read import Query, add

cluster, connect, table = streams.cluster, streams.connect, streams.table


@pytest.fixture(autouse=True)
def _moves_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_consumer, "MOVE_S", 0.0)


def stands(table: Table) -> tuple[int, int | None]:
    """Return where the only consumer stands, and the snapshot that it has not read."""
    (found,) = table.consumers()
    return found.index, found.snapshot


def finish(query: Query) -> None:
    """Tell the source that the last batch is finished, as Spark does when it plans the next one."""
    query.reader.commit(query.log[query.committed - 1])


def test_a_stream_makes_its_consumer_and_moves_it_when_a_batch_is_finished(table: Table) -> None:
    add(table, 1, 2)
    query = Query(table, consumer="etl")
    assert query.keys() == [1, 2]
    begin = query.log[0]["i"]
    # The first batch may be asked for again until it is finished.
    assert stands(table) == (begin, begin)
    finish(query)
    assert stands(table) == (begin, None)
    end = add(table, 3) + 1
    assert query.keys() == [3]
    assert stands(table) == (begin, None)
    # Nothing comes, so Spark says nothing more: the stream sees that the batch is finished.
    assert query.keys() is None
    assert stands(table) == (end, None)


def test_a_stream_that_was_away_for_longer_than_the_feed_goes_on_with_its_consumer(
    cluster: InProcessCluster, table: Table
) -> None:
    add(table, 1)
    query = Query(table, consumer="etl", lease=1, startingVersion="earliest")
    assert query.keys() == [1]
    finish(query)
    add(table, 2)
    add(table, 3)
    table.set_feed(None)
    table.optimize(final=True)
    cluster.wait_alike()
    # What only the table's own time has kept is gone: the part of the first insert.
    wait_for(lambda: all(node.get("status")["consumer_parts"] == 2 for node in cluster.nodes), "held for the consumer")
    query.start()
    assert query.keys() == [2, 3]


def test_the_first_batch_with_a_consumer_outlives_its_version(cluster: InProcessCluster, table: Table) -> None:
    add(table, 1)
    add(table, 2)
    query = Query(table, consumer="etl", lease=1)
    assert query.plan()
    table.set_feed(None)
    table.optimize(final=True)
    cluster.wait_alike()
    wait_for(lambda: all(node.get("status")["consumer_parts"] == 2 for node in cluster.nodes), "held for the consumer")
    query.start()
    assert sorted(query.run()["k"].to_pylist()) == [1, 2]


def test_a_query_without_a_checkpoint_begins_where_its_consumer_stands(table: Table) -> None:
    add(table, 1)
    first = Query(table, consumer="etl")
    assert first.plan()
    index = add(table, 2)
    # Batch 0 was not written down: the next start asks anew where it ends.
    again = Query(table, consumer="etl")
    assert again.all_keys() == [[1], [2]]
    assert again.log[0]["i"] == index
    finish(again)
    add(table, 3)
    other = Query(table, consumer="etl", startingVersion="earliest")
    other.start(available_now=True)
    assert other.all_keys() == [[3]]


def test_a_checkpoint_below_its_consumer_is_refused_with_both_numbers(table: Table) -> None:
    add(table, 1)
    query = Query(table, consumer="etl", startingVersion="earliest")
    query.all_keys()
    stood, end = query.log[-1]["i"], add(table, 2) + 1
    table.move_consumer("etl", end)
    query.start()
    with pytest.raises(BadInput, match=f"the checkpoint of the stream stands at {stood} .* etl at {end}"):
        query.plan()
    # Without the consumer the feed's own time counts.
    del query.options["consumer"]
    query.start()
    assert query.keys() == [2]


def test_a_stream_makes_the_consumer_that_is_missing_where_its_checkpoint_stands(table: Table) -> None:
    add(table, 1)
    query = Query(table)
    query.all_keys()
    stood = query.log[-1]["i"]
    query.start(consumer="etl")
    assert query.keys() is None
    assert stands(table) == (stood, None)


def test_a_stream_whose_consumer_has_expired_is_refused(
    cluster: InProcessCluster, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    from replitree.replica.table import consuming

    monkeypatch.setattr(consuming, "LOOK_S", 0.0)
    table.create_consumer("etl", hold="1s")
    add(table, 1)
    cluster.wait_alike()
    cluster.shared.now_ms += 3_600_000
    wait_for(lambda: bool(table.consumers()[0].expired), "marked")
    with pytest.raises(ConsumerExpired, match=r"had not moved .* begin with a new checkpoint"):
        Query(table, consumer="etl").plan()
