"""Cuts over HTTP: what replicas of two tables have seen, and snapshots of both at one transaction."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.sharded.cut import Cut, cut_of, ensemble, parse_cut
from tests.replica.inprocess import ROOT, InProcessCluster, Node, rows

TABLES = ("t", "u")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[InProcessCluster]:
    """Two replicas, each with two tables, which stand for the shards of one."""
    cluster = InProcessCluster(tmp_path)
    for table in TABLES:
        cluster.create_table(table)
    yield cluster
    cluster.close()


def read(node: Node, table: str, at: object, **query: object) -> tuple[int, Any]:
    """Ask a replica for a snapshot at a cut."""
    return node.request("GET", f"/v1/tables/{table}/cut/snapshot?{urlencode({'at': str(at), **query})}")


def rows_at(node: Node, table: str, at: object, **query: object) -> int:
    """How many rows a table has at a cut."""
    status, body = read(node, table, at, wait_s=20, **query)
    assert status == 200, body
    return sum(part["manifest"]["rows"] for part in body["parts"])


def consistent(cluster: InProcessCluster, last: Cut | None = None) -> Cut:
    """Return the cut of a consistent read, which asks another replica for each table."""
    # The second answer knows of all that the first one was told.
    for node in cluster.nodes:
        node.get("cut")
    nodes = zip(cluster.nodes, TABLES, strict=True)
    found = cut_of([parse_cut(node.get("cut", table=table, wait_s=20)["cut"]) for node, table in nodes], last)
    assert isinstance(found, Cut)
    return found


def test_both_tables_are_shown_at_one_moment_at_whichever_replica(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    cuts = [consistent(cluster)]
    for number, table in enumerate(("t", "u", "t", "u")):
        assert first.insert(rows(10 * number), table=table)[0] == 200
        cuts.append(consistent(cluster, cuts[-1]))
    assert cuts == sorted(cuts, key=lambda each: each.zxid)
    for node in (first, second):
        shown = [tuple(rows_at(node, table, at) for table in TABLES) for at in cuts]
        assert shown == [(0, 0), (10, 0), (10, 10), (20, 10), (20, 20)]


def test_a_replica_that_has_not_heard_of_a_cut_says_so(cluster: InProcessCluster) -> None:
    at = consistent(cluster)
    status, body = read(cluster.nodes[0], "t", Cut(at.ensemble, type(at.zxid)(at.zxid + 1000)))
    assert (status, body["error"]) == (503, "ReplicaBehind")
    assert "has not heard of the cut" in body["message"]


def test_a_snapshot_at_a_cut_has_a_lease(cluster: InProcessCluster) -> None:
    first = cluster.nodes[0]
    assert first.insert(rows(0))[0] == 200
    status, body = read(first, "t", consistent(cluster), lease_s=30, wait_s=20)
    assert (status, body["lease_s"], body["index"]) == (200, 30, 1)
    assert first.request("DELETE", f"/v1/tables/t/leases/{body['lease']}")[0] == 200


def test_a_cut_of_another_ensemble_and_what_is_no_cut_are_refused(cluster: InProcessCluster) -> None:
    first, at = cluster.nodes[0], consistent(cluster)
    status, body = read(first, "t", Cut("5f0c", at.zxid))
    assert (status, body["error"]) == (410, "SnapshotExpired")
    assert "ensemble that was replaced" in body["message"]
    assert read(first, "t", "7")[0] == 400
    assert cluster.admin.perform(fx.Exists(ensemble(ROOT)))


def test_a_cut_whose_entries_were_removed_is_gone(cluster: InProcessCluster) -> None:
    first, old = cluster.nodes[0], consistent(cluster)
    for number in range(2):
        assert first.insert(rows(10 * number))[0] == 200
    cluster.clean(2)
    status, body = read(first, "t", old)
    assert (status, body["error"]) == (410, "SnapshotExpired")
    assert rows_at(first, "t", consistent(cluster)) == 20


def test_a_table_that_is_no_shard_has_no_clock(cluster: InProcessCluster) -> None:
    status, body = cluster.nodes[0].request("POST", "/v1/tables/t/cut")
    assert (status, body["error"]) == (503, "CoordinationUnavailable")
    assert "no shard of a sharded table" in body["message"]


def test_a_linearizable_cut_has_what_was_acknowledged_before(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = layout.sharded(ROOT, "d")
    for path in (f"{ROOT}/sharded", place):
        cluster.admin.perform(fx.Commit(fx.Create(path)))
    monkeypatch.setattr(layout, "sharded_of", lambda _: place)
    first, second = cluster.nodes
    before = consistent(cluster)
    assert first.insert(rows(0))[0] == 200
    at = parse_cut(first.post("cut", table="u")["cut"])
    assert at.zxid > before.zxid
    assert first.insert(rows(10))[0] == 200
    # This replica's session learns of the cut by the clock.
    assert rows_at(second, "t", at, clock=1) == rows_at(first, "t", at, clock=1) == 10
    assert parse_cut(second.post("cut")["cut"]).zxid > at.zxid
