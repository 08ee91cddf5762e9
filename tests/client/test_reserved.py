"""Reservations: which replica is asked, what lease the client holds, and what it does not believe of the answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from replitree.client.change.planned import planned_merges
from replitree.client.change.reserved import LEASE_S, Reservation, reserve
from replitree.client.change.rewrite import begun_rewrite
from replitree.client.table import Table
from replitree.errors import BadInput, CorruptPart, Unavailable
from tests.client.conftest import FakeCluster
from tests.client.fake_replica import FakeReplica
from tests.waiting import wait_for

EMPTY: dict[str, Any] = {
    "partition": "all",
    "rows": 0,
    "bytes": 0,
    "schema_version": 1,
    "files": [],
    "content_hash": "",
}
"""A manifest that can be none: a part has files."""


def answer(replica: FakeReplica, **more: Any) -> dict[str, Any]:
    return {"replica": replica.name, "machine": replica.machine, "schema_version": 1, **more}


@pytest.fixture
def two(cluster: FakeCluster) -> tuple[FakeReplica, FakeReplica]:
    """Two replicas, of which the second one leads."""
    cluster.create("t", "k bigint not null", order_by="k")
    first, second = cluster.add_replica("t", "r1"), cluster.add_replica("t", "r2")
    for replica in (first, second):
        replica.answers = {"GET status": {"leader": "r2"}}
        for verb in ("merges/plan", "rewrites/begin"):
            replica.answers[f"POST {verb}"] = answer(replica, lease="kept", lease_s=60.0, index=3)
    return first, second


@pytest.fixture
def table(cluster: FakeCluster, two: tuple[FakeReplica, FakeReplica]) -> Table:
    assert len(two) == 2
    return cluster.connect().table("t")


def plan(table: Table) -> str:
    """Reserve parts, release them, and return the replica that has kept them."""
    keeper, found, lease = reserve(table, "merges/plan", Reservation, {"final": True}, timeout_s=5)
    assert lease is not None
    lease.check()
    lease.release()
    assert [replica.name for replica in keeper.commander.replicas()] == [found.replica]
    return found.replica


def test_the_leader_keeps_the_parts_until_the_lease_is_released(
    table: Table, two: tuple[FakeReplica, FakeReplica]
) -> None:
    first, second = two
    assert plan(table) == "r2"
    assert "POST plan" not in first.routes()
    (asked,) = [seen for seen in second.seen if seen.path.endswith("merges/plan")]
    assert json.loads(asked.body) == {"final": True, "lease_s": LEASE_S}
    wait_for(lambda: "DELETE kept" in second.routes(), "the lease is released")


@pytest.mark.parametrize("leader", [None, "r3"])
def test_without_an_active_leader_the_replica_that_answers_keeps_the_parts(
    cluster: FakeCluster, table: Table, two: tuple[FakeReplica, FakeReplica], leader: str | None
) -> None:
    if leader is not None:
        cluster.add_replica("t", leader, active=False)
    for replica in two:
        replica.answers["GET status"] = {"leader": leader}
    (answered,) = [replica.name for replica in two if replica.name == plan(table)]
    (asked,) = [replica.name for replica in two if "GET status" in replica.routes()]
    assert answered == asked


def test_a_plan_without_merges_has_no_lease_but_a_rewrite_needs_one(
    table: Table, two: tuple[FakeReplica, FakeReplica]
) -> None:
    leader = two[1]
    leader.answers["POST merges/plan"] = answer(leader, busy=["all"])
    leader.answers["POST rewrites/begin"] = answer(leader, lease="", index=3)
    with planned_merges(table, None, final=True, timeout_s=5) as found:
        assert (found.lease, found.merges, found.busy) == (None, (), ("all",))
        found.check()
    with pytest.raises(Unavailable, match="nothing was begun"), begun_rewrite(table, timeout_s=5):
        pass


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("../x", BadInput, "not the name of a part"),
        ("all_0_0_0", CorruptPart, "r2 sent a damaged manifest of all_0_0_0"),
    ],
)
def test_names_and_manifests_of_sources_are_not_believed(
    table: Table, two: tuple[FakeReplica, FakeReplica], name: str, error: type[Exception], message: str
) -> None:
    leader = two[1]
    source = {"part": name, "path": "/nowhere", "manifest": EMPTY}
    kept = answer(leader, lease="kept", lease_s=60.0, index=3)
    leader.answers["POST merges/plan"] = {**kept, "merges": [{"sources": [source], "schema_version": 1}]}
    leader.answers["POST rewrites/begin"] = {**kept, "sources": [source]}
    with pytest.raises(error, match=message), planned_merges(table, None, final=True, timeout_s=5):
        pass
    with pytest.raises(error, match=message), begun_rewrite(table, timeout_s=5):
        pass
    wait_for(lambda: leader.routes().count("DELETE kept") == 2, "both leases are released")
