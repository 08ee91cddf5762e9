"""The data source's writer on a table in an object store, without Spark: real replicas in this process, a folder of objects."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from replitree.client.connection import Connection
from replitree.client.transport.access import Access
from replitree.coordination.memory import MemoryCoordination
from replitree.errors import BadInput, StoreError
from replitree.spark.session.types import spark_schema
from replitree.spark.write import source_write
from replitree.spark.write.source_write import WritePlan, abort_job, commit_job, plan_write
from replitree.spark.write.write_tasks import StagedMessage, write_task
from tests.replica.inprocess import TOKEN, wait_for
from tests.replica.test_sharing import SharedCluster

NAMES = ["k", "v", "s"]


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SharedCluster]:
    cluster = SharedCluster(tmp_path, f"file://{tmp_path}/objects")
    connections: list[Connection] = []

    def connect(_: object) -> Connection:
        access = Access("zk://nowhere:1/replitree", TOKEN)
        connections.append(Connection(access, lambda: MemoryCoordination(cluster.shared)))
        return connections[-1]

    monkeypatch.setattr(source_write, "kept_connection", connect)
    yield cluster
    for connection in connections:
        connection.close()
    cluster.close()


def plan_of(shared: SharedCluster, **options: str) -> WritePlan:
    return plan_write({"table": "t", "timeout": "20"} | options, spark_schema(shared.definition, NAMES))


def batches(first: int, count: int = 10) -> Iterator[pa.RecordBatch]:
    keys = list(range(first, first + count))
    columns = [pa.array(keys, pa.int64()), pa.array([key / 3 for key in keys]), pa.array([f"s{key}" for key in keys])]
    yield pa.RecordBatch.from_arrays(columns, names=NAMES)


def hidden_store(shared: SharedCluster, plan: WritePlan, first: int) -> StagedMessage:
    """Write a task's rows while it does not see the store's folder."""
    objects = shared.folder / "objects"
    aside = objects.rename(shared.folder / "aside")
    try:
        return write_task(plan.job, batches(first))
    finally:
        aside.rename(objects)


def test_tasks_put_and_the_driver_joins_manifests(shared: SharedCluster) -> None:
    plan = plan_of(shared, through="store")
    messages = [write_task(plan.job, batches(10 * number)) for number in range(3)]
    assert all(message.tags and not message.folder for message in messages)
    commit_job(plan, messages)
    shared.wait_equal(list(range(30)))
    shared.wait_settled()
    assert len(shared.shares()) == 1


def test_a_job_may_have_tasks_that_do_not_reach_the_store(
    shared: SharedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plan_of(shared)
    near, far = write_task(plan.job, batches(0)), hidden_store(shared, plan, 10)
    assert (near.tags is None, far.tags is None) == (False, True)
    assert "is its disk mounted here?: the rows of this task go through replica r" in capsys.readouterr().err
    commit_job(plan, [near, far])
    shared.wait_equal(list(range(20)))
    shared.wait_settled()


def test_a_job_of_which_no_task_reaches_the_store_writes_as_ever(shared: SharedCluster) -> None:
    plan = plan_of(shared)
    commit_job(plan, [hidden_store(shared, plan, 0), hidden_store(shared, plan, 10)])
    shared.wait_equal(list(range(20)))
    shared.wait_settled()


def test_who_has_to_go_into_the_store_fails_where_it_is_not(shared: SharedCluster) -> None:
    plan = plan_of(shared, through="store")
    with pytest.raises(StoreError, match="is its disk mounted here"):
        hidden_store(shared, plan, 0)
    abort_job(plan)


def test_an_aborted_job_leaves_nothing(shared: SharedCluster) -> None:
    plan = plan_of(shared)
    write_task(plan.job, batches(0))
    abort_job(plan)
    shared.wait_empty()
    uploads = [node.table().uploads.root for node in shared.nodes]
    wait_for(lambda: not any(path for root in uploads for path in root.iterdir()), "no upload is left")


def test_a_job_that_leaves_the_store_alone_writes_as_ever(shared: SharedCluster) -> None:
    plan = plan_of(shared, through="replica")
    message = write_task(plan.job, batches(0))
    assert (plan.job.store, message.tags) == ("", None)
    commit_job(plan, [message])
    shared.wait_equal(list(range(10)))


def test_a_job_that_overwrites_puts_in_the_store(shared: SharedCluster) -> None:
    for first in (0, 10):
        plan = plan_write({"table": "t"}, spark_schema(shared.definition, NAMES), overwrite=True)
        commit_job(plan, [write_task(plan.job, batches(first))])
    shared.wait_equal(list(range(10, 20)))


def test_the_option_says_store_or_replica(shared: SharedCluster) -> None:
    with pytest.raises(BadInput, match="store or replica"):
        plan_of(shared, through="wall")
