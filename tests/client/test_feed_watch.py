"""How far the feed goes, asked again and again: replicas are asked in turn, and the others when one dies."""

from __future__ import annotations

import pytest

from replitree.client.read.feed_watch import FeedWatch
from replitree.errors import ReplicaUnavailable
from tests.client.conftest import FakeCluster
from tests.client.fake_replica import Failure


@pytest.fixture
def watch(cluster: FakeCluster) -> FeedWatch:
    cluster.create("t", "k bigint not null")
    for number, name in enumerate(("r1", "r2"), 1):
        replica = cluster.add_replica("t", name)
        replica.answers["GET feed/end"] = {
            "end": 10 * number,
            "feed_from": 3 - number,
            "origin": "t.0",
            "replica": name,
        }
    return cluster.connect().table("t").watch_feed()


def test_replicas_are_asked_in_turn_and_wait_for_what_is_new(cluster: FakeCluster, watch: FeedWatch) -> None:
    watch.end(-1, 0.0, 5.0)
    ends = [watch.end(7, 0.25, 5.0).end for _ in range(4)]
    assert sorted(ends[:2]) == [10, 20]
    assert ends[:2] == ends[2:]
    assert cluster.replicas["r1"].seen[-1].query == {"earliest": "0", "after": "7", "wait_ms": "250"}


def test_a_replica_that_dies_holds_nothing_up(cluster: FakeCluster, watch: FeedWatch) -> None:
    watch.end(-1, 0.0, 5.0)
    cluster.replicas["r1"].close()
    assert [watch.end(7, 0.0, 5.0).replica for _ in range(3)] == ["r2"] * 3
    cluster.replicas["r2"].close()
    with pytest.raises(ReplicaUnavailable):
        watch.end(7, 0.0, 0.2)


def test_the_earliest_of_all_feeds_is_found(cluster: FakeCluster, watch: FeedWatch) -> None:
    found = watch.earliest(5.0)
    assert (found.feed_from, found.replica) == (1, "r2")
    cluster.replicas["r2"].answers["GET feed/end"] = Failure(503, "ReplicaUnavailable")
    assert watch.earliest(5.0).feed_from == 2
