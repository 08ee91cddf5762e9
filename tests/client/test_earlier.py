"""Earlier entries: replicas are asked one after the other, and each goes on where the one before it had to stop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from replitree.client.read import earlier
from replitree.client.read.earlier import EarlierEntries
from replitree.client.transport.http import HttpClient
from replitree.client.transport.routing import Router
from replitree.errors import NotAuthorized, ReplicaUnavailable
from replitree.wire.reached import Reached
from tests.client.conftest import FakeCluster
from tests.client.fake_replica import Failure, FakeReplica

KNOWN = Reached(below=90, written_ms=9_000)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FakeCluster]:
    cluster = FakeCluster(tmp_path)
    cluster.create("t", "k bigint")
    for name in ("r1", "r2", "r3"):
        cluster.add_replica("t", name).answers["GET written-by"] = Reached(below=90)
    yield cluster
    cluster.close()


def ask(cluster: FakeCluster, time_ms: int = 5_000) -> Reached:
    http = HttpClient("token")
    try:
        return EarlierEntries("t", http, Router(cluster.catalog, "t")).written_by(time_ms, KNOWN)
    finally:
        http.close()


def asked(replica: FakeReplica) -> list[str]:
    return [seen.query["below"] for seen in replica.seen]


def test_the_replica_that_knows_the_entry_answers(cluster: FakeCluster) -> None:
    cluster.replicas["r2"].answers["GET written-by"] = Reached(index=41, below=41)
    assert ask(cluster) == Reached(index=41, below=41)
    assert {seen.query["time_ms"] for each in cluster.replicas.values() for seen in each.seen} == {"5000"}


def test_a_replica_goes_on_where_another_had_to_stop(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"r1": {90: 90, 60: 30, 30: 30}, "r2": {90: 60, 60: 60, 30: 30}, "r3": {90: 90, 60: 60, 30: 30}}
    for name, replica in cluster.replicas.items():

        def serve(seen: object, name: str = name) -> tuple[int, bytes]:
            below = int(seen.query["below"])  # type: ignore[attr-defined]
            return 200, b'{"below":%d,"written_ms":%d}' % (answers[name][below], 100 * answers[name][below])

        monkeypatch.setattr(replica, "serve", serve)
    assert ask(cluster) == Reached(below=30, written_ms=3_000)


def test_without_an_answer_of_any_replica_the_search_is_where_it_was(cluster: FakeCluster) -> None:
    assert ask(cluster) == KNOWN
    assert [asked(each) for each in cluster.replicas.values()] == [["90"]] * 3


def test_a_time_before_1970_is_asked_for_as_the_earliest(cluster: FakeCluster) -> None:
    ask(cluster, -3)
    assert cluster.replicas["r1"].seen[0].query["time_ms"] == "0"


def test_an_active_replica_that_does_not_answer_leaves_the_time_open(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(earlier, "PATIENCE_S", 0.05)
    cluster.replicas["r3"].answers["GET written-by"] = Failure(503, "ReplicaUnavailable", "starting")
    with pytest.raises(ReplicaUnavailable, match=r"replica r3 may know it and did not answer \(starting\)"):
        ask(cluster)
    # With an answer nothing is open.
    cluster.replicas["r1"].answers["GET written-by"] = Reached(below=0, written_ms=7_000)
    assert ask(cluster).below == 0


def test_a_replica_that_answers_a_moment_later_is_asked_again(cluster: FakeCluster) -> None:
    cluster.replicas["r2"].answers["GET written-by"] = Reached(below=50, written_ms=5_500)
    starting = cluster.replicas["r3"]
    starting.script.extend([Failure(503, "ReplicaUnavailable", "starting")] * 2)
    starting.answers["GET written-by"] = Reached(index=41, below=41)
    assert ask(cluster).index == 41


def test_a_refused_token_is_said(cluster: FakeCluster) -> None:
    for replica in cluster.replicas.values():
        replica.answers["GET written-by"] = Failure(401, "NotAuthorized", "wrong token")
    with pytest.raises(NotAuthorized):
        ask(cluster)
