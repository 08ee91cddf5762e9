"""The data source's reader without Spark: the lease that its tasks renew, against a scripted replica."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from replitree.errors import BadInput, LeaseLost
from replitree.spark.read import source_read
from replitree.spark.read.source_read import FilesPartition, ReadPlan, plan_partitions, plan_read, read_partition
from replitree.spark.session.types import spark_schema
from tests.client.conftest import TOKEN, FakeCluster
from tests.client.fake_replica import Failure, FakeReplica
from tests.client.test_snapshot import make


@pytest.fixture
def r1(cluster: FakeCluster, tmp_path: Path) -> FakeReplica:
    make(cluster, tmp_path)
    replica = cluster.replicas["r1"]
    replica.snapshot |= {"lease": "abc", "lease_s": 600.0}
    replica.answers["POST leases/abc"] = {"lease": "abc", "lease_s": 600.0}
    return replica


def plan(cluster: FakeCluster, **options: str) -> tuple[ReadPlan, list[FilesPartition]]:
    definition = cluster.catalog.definition("t")
    return plan_partitions(plan_read({"table": "t"} | options, spark_schema(definition)))


def rows(partition: FilesPartition) -> int:
    """Read a partition as a task does: it has nothing else of the plan."""
    return sum(batch.num_rows for batch in read_partition(pickle.loads(pickle.dumps(partition))))


def test_planner_leaves_the_lease_to_the_tasks(cluster: FakeCluster, r1: FakeReplica) -> None:
    planned, partitions = plan(cluster, lease="90", asof="3", partitions="2")
    (asked,) = r1.seen
    assert (asked.query["lease_s"], asked.query["as_of"]) == ("90", "3")
    assert planned.lease is not None
    assert sum(rows(partition) for partition in partitions) == 30
    assert r1.routes() == ["GET snapshot", "POST abc", "POST abc"]
    assert {seen.query["lease_s"] for seen in r1.seen[1:]} == {"600"}
    assert all(thread.name != "replitree-lease" for thread in threading.enumerate() if not thread.daemon)


def test_task_that_finds_the_lease_lost_says_what_to_do(cluster: FakeCluster, r1: FakeReplica) -> None:
    _, partitions = plan(cluster)
    r1.answers["POST leases/abc"] = Failure(410, "LeaseLost", "it expired")
    with pytest.raises(LeaseLost, match=r'make the frame again, or give it more time with .option."lease"'):
        rows(partitions[0])


def test_task_that_can_not_ask_reads_on(cluster: FakeCluster, r1: FakeReplica) -> None:
    _, partitions = plan(cluster, partitions="1")
    r1.answers["POST leases/abc"] = Failure(503, "ReplicaUnavailable")
    assert rows(partitions[0]) == 30


def test_lease_that_is_lost_while_a_task_reads_fails_it(
    cluster: FakeCluster, r1: FakeReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    r1.snapshot["lease_s"] = 3.0
    _, partitions = plan(cluster, partitions="1")
    lost = threading.Event()

    def slowly(*_: object) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"k": [1]})
        r1.answers["POST leases/abc"] = Failure(410, "LeaseLost", "it was released")
        while True:  # until the renewal has heard of it; the test's own time limit is the deadline
            lost.wait(0.02)
            yield pa.record_batch({"k": [1]})

    monkeypatch.setattr(source_read, "exactly", slowly)
    with pytest.raises(LeaseLost, match="it was released"):
        list(read_partition(partitions[0]))


def test_tasks_elsewhere_fetch_their_files_with_what_the_partition_says(cluster: FakeCluster, tmp_path: Path) -> None:
    make(cluster, tmp_path, machine="elsewhere")
    _, partitions = plan(cluster, partitions="2")
    assert sum(map(rows, partitions)) == 30
    fetched = [seen for seen in cluster.replicas["r1"].seen if "/files/" in seen.path]
    assert len(fetched) == 3
    assert all(
        seen.authorization.startswith("Bearer ticket.t.") and TOKEN not in seen.authorization for seen in fetched
    )


def test_wrong_lease_is_refused(cluster: FakeCluster, r1: FakeReplica) -> None:
    for wrong in ("0", "4000"):
        with pytest.raises(BadInput, match="a lease lasts"):
            plan(cluster, lease=wrong)
    with pytest.raises(BadInput, match="whole number"):
        plan(cluster, lease="long")
