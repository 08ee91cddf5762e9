from __future__ import annotations

import gc
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from replitree.client.read import scan as scan_module
from replitree.client.read.snapshot import Snapshot
from replitree.client.table import Table
from replitree.client.transport import lease as lease_module
from replitree.client.transport.lease import keep_for_frame
from replitree.errors import BadInput, LeaseLost, SnapshotExpired, StoreError
from tests.client.conftest import FakeCluster
from tests.client.fake_replica import Failure, FakeReplica
from tests.client.test_snapshot import make

LOST = Failure(410, "LeaseLost", "it expired")
LEASE_S = 0.3
"""Seconds of a lease that a test waits to see lost."""

KEPT_S = 3.0
"""Seconds of a lease that must not be lost, though a busy machine may hold up its renewal for a second."""


def wait_until(condition: Callable[[], object]) -> None:
    end, pause = time.monotonic() + 20, threading.Event()
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        pause.wait(0.01)


@pytest.fixture
def table(cluster: FakeCluster, tmp_path: Path) -> Table:
    made = make(cluster, tmp_path)
    grant(cluster.replicas["r1"], LEASE_S)
    return made


def grant(replica: FakeReplica, lease_s: float) -> None:
    """Let a replica give leases of so many seconds."""
    replica.snapshot |= {"lease": "abc", "lease_s": lease_s}
    replica.answers = {"POST leases/abc": {"lease": "abc", "lease_s": lease_s}, "DELETE leases/abc": {}}


@pytest.fixture
def r1(cluster: FakeCluster, table: Table) -> FakeReplica:
    return cluster.replicas["r1"]


def count(replica: FakeReplica, method: str) -> int:
    return sum(seen.method == method and seen.path.endswith("/leases/abc") for seen in replica.seen)


def test_lease_is_renewed_until_it_is_let_go(table: Table, r1: FakeReplica) -> None:
    grant(r1, KEPT_S)
    with table.snapshot(lease_s=KEPT_S) as snapshot:
        assert r1.seen[-1].query["lease_s"] == "3"
        wait_until(lambda: count(r1, "POST") >= 4)  # longer than one lease lasts
        assert snapshot.to_arrow().num_rows == 30
    assert count(r1, "DELETE") == 1
    renewed = count(r1, "POST")
    snapshot.close()
    assert (count(r1, "POST"), count(r1, "DELETE")) == (renewed, 1)
    assert {seen.query["lease_s"] for seen in r1.seen if "/leases/" in seen.path and seen.method == "POST"} == {"3"}


def test_lost_lease_is_said_at_the_next_use(table: Table, r1: FakeReplica) -> None:
    r1.answers["POST leases/abc"] = LOST
    snapshot = table.snapshot(lease_s=LEASE_S)
    assert snapshot.lease is not None
    wait_until(lambda: snapshot.lease is not None and snapshot.lease.is_lost)
    for use in (snapshot.to_arrow, snapshot.files, snapshot.check, lambda: list(snapshot.batches())):
        with pytest.raises(LeaseLost, match="take a new snapshot"):
            use()
    assert issubclass(LeaseLost, SnapshotExpired)
    snapshot.close()
    assert count(r1, "DELETE") == 0


def test_lease_that_nobody_renews_in_time_is_lost(table: Table, r1: FakeReplica) -> None:
    r1.answers["POST leases/abc"] = Failure(503, "ReplicaUnavailable")
    snapshot = table.snapshot(lease_s=LEASE_S)
    wait_until(lambda: snapshot.lease is not None and snapshot.lease.is_lost)
    with pytest.raises(LeaseLost, match=r"could not be renewed|not renewed for"):
        snapshot.to_arrow()


def test_one_failed_renewal_does_no_harm(table: Table, r1: FakeReplica) -> None:
    grant(r1, KEPT_S)
    with table.snapshot(lease_s=KEPT_S) as snapshot:
        r1.script.append(Failure(503, "ReplicaUnavailable"))
        wait_until(lambda: count(r1, "POST") >= 4)
        snapshot.check()


def test_whatever_fails_after_a_loss_is_told_as_the_loss(table: Table, r1: FakeReplica) -> None:
    r1.answers["POST leases/abc"] = LOST

    def read() -> None:
        with table.snapshot(lease_s=LEASE_S) as snapshot:
            wait_until(lambda: snapshot.lease is not None and snapshot.lease.is_lost)
            raise StoreError("a file is gone")

    with pytest.raises(LeaseLost) as caught:
        read()
    assert isinstance(caught.value.__context__, StoreError)


def test_forgotten_snapshot_lets_go(table: Table, r1: FakeReplica) -> None:
    snapshot = table.snapshot(lease_s=LEASE_S)
    del snapshot
    gc.collect()
    wait_until(lambda: count(r1, "DELETE") == 1)


def test_lease_that_is_handed_over_is_neither_renewed_nor_let_go(table: Table, r1: FakeReplica) -> None:
    grant(r1, KEPT_S)
    snapshot = table.snapshot(lease_s=KEPT_S)
    assert snapshot.lease is not None
    handle = snapshot.lease.hand_over()
    assert (handle.id, handle.table, handle.seconds) == ("abc", "t", KEPT_S)
    snapshot.close()
    del snapshot
    wait_until(lambda: all(thread.name != "replitree-lease" for thread in threading.enumerate()))
    assert (count(r1, "POST"), count(r1, "DELETE")) == (0, 0)


def test_batches_hold_a_lease_from_the_first_to_the_last(
    table: Table, r1: FakeReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    grant(r1, KEPT_S)
    monkeypatch.setattr(scan_module, "LEASE_S", KEPT_S)
    batches = table.batches()
    next(batches)
    assert r1.seen[0].query["lease_s"] == "3"
    wait_until(lambda: count(r1, "POST") >= 1)
    assert count(r1, "DELETE") == 0
    assert sum(batch.num_rows for batch in batches) > 0
    assert count(r1, "DELETE") == 1


def test_snapshot_without_a_lease_asks_for_none(table: Table, r1: FakeReplica) -> None:
    del r1.snapshot["lease"]
    with table.snapshot() as snapshot:
        assert snapshot.lease is None
    assert "lease_s" not in r1.seen[-1].query
    assert len(r1.seen) == 1


def test_rows_whose_parts_go_while_they_are_read_are_read_again_with_a_lease(
    table: Table, r1: FakeReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[bool] = []

    def read(self: Snapshot, *_: object, **__: object) -> pa.Table:
        asked = [seen for seen in r1.seen if seen.path.endswith("/snapshot")]
        reads.append("lease_s" in asked[-1].query)
        if len(reads) % 2:
            raise SnapshotExpired("part all_1_1_0 can't be had any more")
        return pa.table({"k": [len(reads)]})

    monkeypatch.setattr(Snapshot, "to_arrow", read)
    assert table.to_arrow()["k"].to_pylist() == [2]
    assert reads == [False, True]
    assert count(r1, "DELETE") == 1
    with pytest.raises(SnapshotExpired, match="all_1_1_0"):  # as it was asked for, no other one
        table.to_arrow(as_of=1)
    assert len(reads) == 3


def test_as_of_asks_for_exactly_that(table: Table, r1: FakeReplica) -> None:
    table.insert({"k": [1]})
    table.snapshot(as_of=2)
    assert (r1.seen[-1].query["as_of"], "min_index" in r1.seen[-1].query) == ("2", False)
    r1.answers["GET snapshot"] = Failure(410, "SnapshotExpired", "before what is remembered")
    with pytest.raises(SnapshotExpired, match="before what"):
        table.to_arrow(as_of=1)
    for wrong in ({"as_of": -1}, {"as_of": 1, "min_index": 2}, {"lease_s": 0.0}, {"lease_s": 1e9}):
        with pytest.raises(BadInput):
            table.snapshot(**wrong)


def test_only_the_newest_frames_of_a_process_keep_their_leases(
    table: Table, r1: FakeReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_module, "FRAMES_MAX", 2)
    monkeypatch.setattr(lease_module, "_frames", deque())
    for number in range(4):
        snapshot = table.snapshot(lease_s=LEASE_S)
        assert snapshot.lease is not None
        keep_for_frame((snapshot.lease,), table.http)
        assert count(r1, "DELETE") == max(0, number - 1)
