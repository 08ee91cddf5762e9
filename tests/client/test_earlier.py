"""Earlier entries: replicas are asked one after the other, and each goes on where the one before it had to stop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from replitree.client.read import earlier
from replitree.client.read.earlier import EarlierEntries
from replitree.client.transport.http import HttpClient
from replitree.client.transport.routing import Router
from replitree.errors import NotAuthorized, ReplicaUnavailable
from replitree.wire.reached import Reached
from replitree.wire.remembered import Earlier, Remembered, Summary
from tests.client.conftest import FakeCluster
from tests.client.fake_replica import Failure, FakeReplica, Seen

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


# --- what entries did -------------------------------------------------------------------------------------------------


def entry(index: int) -> Remembered:
    return Remembered(index, 1_000 + index, Summary("get", "r1", 1, 2))


def remembered(cluster: FakeCluster, below: int, limit: int) -> list[int]:
    http = HttpClient("token")
    try:
        return [each.index for each in EarlierEntries("t", http, Router(cluster.catalog, "t")).before(below, limit)]
    finally:
        http.close()


def remember(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, known: dict[str, range]
) -> list[tuple[str, int, int]]:
    """Let replicas remember these entries; return a list of who is asked for what."""
    seen = list[tuple[str, int, int]]()
    for name, replica in cluster.replicas.items():

        def serve(request: Seen, name: str = name) -> tuple[int, bytes]:
            below, limit = int(request.query["below"]), int(request.query["limit"])
            seen.append((name, below, limit))
            found = [entry(index) for index in reversed(known[name]) if index < below]
            # Not beyond a gap.
            there = found[:limit] if found and found[0].index == below - 1 else []
            return 200, msgspec.json.encode(Earlier(tuple(there)))

        monkeypatch.setattr(replica, "serve", serve)
    return seen


def test_entries_come_in_pages_and_from_the_next_replica_where_one_has_a_gap(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(earlier, "PAGE_MAX", 10)
    seen = remember(cluster, monkeypatch, {"r1": range(60, 90), "r2": range(55, 65), "r3": range(20, 60)})
    assert remembered(cluster, 90, 100) == list(reversed(range(20, 90)))
    assert {limit for _, _, limit in seen} == {10}
    seen.clear()
    assert remembered(cluster, 90, 4) == [89, 88, 87, 86]
    assert len(seen) <= 3
    assert {limit for _, _, limit in seen} == {4}


def test_nothing_is_asked_for_before_the_first_entry_and_for_none(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = remember(cluster, monkeypatch, {"r1": range(5), "r2": range(5), "r3": range(5)})
    assert remembered(cluster, 0, 9) == remembered(cluster, 5, 0) == []
    assert seen == []
    assert remembered(cluster, 5, 9) == [4, 3, 2, 1, 0]
    assert len(seen) == 1


def test_a_replica_that_does_not_know_the_request_is_left_out(cluster: FakeCluster) -> None:
    for name in ("r1", "r3"):
        cluster.replicas[name].answers["GET earlier"] = Failure(404, "BadInput", "there is no such request")
    cluster.replicas["r2"].answers["GET earlier"] = Earlier((entry(7), entry(6)))
    assert remembered(cluster, 8, 2) == [7, 6]
    for replica in cluster.replicas.values():
        replica.answers["GET earlier"] = Failure(401, "NotAuthorized", "wrong token")
    with pytest.raises(NotAuthorized):
        remembered(cluster, 8, 2)
