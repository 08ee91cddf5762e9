"""Consumers of the change feed with real processes that are killed while rows come and go."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from replitree.client.cluster import LocalCluster
from replitree.client.table import Table
from replitree.wire.feed_errors import ConsumerExpired
from tests.waiting import wait_for

pytestmark = pytest.mark.system

ROUNDS = 3
"""Rounds of changes, each while a replica is down."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    settings = {"old_parts_lifetime_s": 0.0}
    with LocalCluster(tmp_path_factory.mktemp("cluster"), 3, durable=False, settings=settings) as cluster:
        yield cluster


def old_parts(running: LocalCluster, table: Table) -> list[int | None]:
    return [each.old_parts for each in running.status(table.name).tables[0].replicas]


def test_what_a_consumer_has_not_read_survives_kills_of_all_replicas(running: LocalCluster) -> None:
    table = running.create_table("t", "k bigint not null", order_by="k", wait_replicas=3, feed="1 day")
    table.create_consumer("etl", "earliest")
    table.set_feed(None)
    expected = list[tuple[str, int]]()
    for number in range(ROUNDS):
        victim, keys = running.names[number % len(running.names)], [10 * number, 10 * number + 1]
        # Enough replicas have the rows that one of them may be killed.
        table.insert({"k": keys}, quorum=2)
        running.kill(victim)
        table.delete(f"k = {keys[1]}", timeout_s=60.0)
        table.optimize(final=True)
        expected += [("insert", keys[0]), ("insert", keys[1]), ("delete", keys[1])]
        running.start(victim)
    for victim in running.names:
        running.kill(victim)
        running.start(victim)
    with table.changes(consumer="etl", timeout_s=60.0) as changes:
        rows, end = [(row["_change_type"], row["k"]) for row in changes.to_arrow().to_pylist()], changes.end
    assert rows == expected
    table.move_consumer("etl", end)
    wait_for(lambda: old_parts(running, table) == [0, 0, 0], "nothing is kept for the consumer any more", 60.0)
    running.drop_table("t")


def test_a_consumer_that_keeps_too_much_is_marked_before_its_parts_go(running: LocalCluster) -> None:
    table = running.create_table("full", "k bigint not null", order_by="k", wait_replicas=3, feed="1 day")
    begin = table.create_consumer("etl", bytes_max=1).index
    table.insert({"k": [1, 2]}, quorum=3)
    table.truncate()
    table.set_feed(None)
    wait_for(lambda: old_parts(running, table) == [0, 0, 0], "its parts go", 90.0)
    (found,) = table.consumers()
    assert (found.index, "1 is its limit" in found.expired) == (begin, True)
    with pytest.raises(ConsumerExpired, match=f"stood at {begin}"):
        table.changes(consumer="etl")
    running.drop_table("full")
