"""The data source's writer on a sharded table in an object store, without Spark: real replicas, a folder of objects."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from replitree.client.connection import Connection
from replitree.client.sharded.sharded_table import ShardedTable
from replitree.errors import BadInput
from replitree.spark.session.types import spark_schema
from replitree.spark.write import source_write
from replitree.spark.write.sharded_write import ShardedMessage
from replitree.spark.write.source_write import WritePlan, abort_job, commit_job, plan_write, stage_rows
from tests.client.test_sharded_stores import StoreCluster, create
from tests.replica.inprocess import rows
from tests.waiting import wait_for


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StoreCluster]:
    made = StoreCluster(tmp_path)
    yield made
    made.close()


@pytest.fixture
def table(cluster: StoreCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[ShardedTable]:
    made: list[Connection] = [cluster.connect()]

    def connect(_: object) -> Connection:
        made.append(cluster.connect())
        return made[-1]

    monkeypatch.setattr(source_write, "kept_connection", connect)
    yield create(made[0], cluster.url)
    for each in made:
        each.close()


def plan_of(table: ShardedTable, **options: str) -> WritePlan:
    return plan_write({"table": "d", "timeout": "20"} | options, spark_schema(table.definition, ["k", "v", "s"]))


def staged(plan: WritePlan, data: pa.Table) -> ShardedMessage:
    message = stage_rows(plan.job, iter(data.to_batches()))
    assert isinstance(message, ShardedMessage)
    return message


def hidden_store(cluster: StoreCluster, plan: WritePlan, data: pa.Table) -> ShardedMessage:
    """Write a task's rows while it does not see the store's folder."""
    objects = cluster.folder / "objects"
    aside = objects.rename(cluster.folder / "aside")
    try:
        return staged(plan, data)
    finally:
        aside.rename(objects)


def test_tasks_put_the_files_of_each_shard_and_one_commit_takes_them(
    cluster: StoreCluster, table: ShardedTable
) -> None:
    plan = plan_of(table, through="store")
    messages = [staged(plan, rows(100 * number, 100)) for number in range(2)]
    assert all(each.tags and not each.folder for message in messages for _, each in message.staged)
    commit_job(plan, messages)
    assert sorted(table.scan().to_arrow()["k"].to_pylist()) == list(range(200))
    cluster.wait_settled(table)
    # Files of several tasks are one part.
    assert [len(cluster.stored(each.definition.table_id)) for each in table.find(None).all] == [1, 1]


def test_a_job_may_have_tasks_that_do_not_reach_the_store(cluster: StoreCluster, table: ShardedTable) -> None:
    plan = plan_of(table)
    near, far = staged(plan, rows(0, 100)), hidden_store(cluster, plan, rows(100, 100))
    assert all(each.tags is None for _, each in far.staged)
    commit_job(plan, [near, far])
    assert sorted(table.scan().to_arrow()["k"].to_pylist()) == list(range(200))
    cluster.wait_settled(table)


def test_a_job_that_is_aborted_leaves_no_objects(cluster: StoreCluster, table: ShardedTable) -> None:
    plan = plan_of(table)
    staged(plan, rows(0, 100))
    assert cluster.objects()
    abort_job(plan)
    wait_for(lambda: not cluster.objects(), "the objects are deleted", 60.0)


def test_a_job_that_leaves_the_store_alone_writes_through_replicas(cluster: StoreCluster, table: ShardedTable) -> None:
    plan = plan_of(table, through="replica")
    message = staged(plan, rows(0, 100))
    assert all(each.tags is None for _, each in message.staged)
    commit_job(plan, [message])
    assert table.scan().count() == 100
    cluster.wait_settled(table)


def test_a_job_that_has_to_go_into_a_store_is_refused_where_there_is_none(
    cluster: StoreCluster, table: ShardedTable
) -> None:
    table.set_storage("local")

    def have_heard() -> bool:
        tables = (node.table(name) for node in cluster.nodes for name in ("d~0", "d~1"))
        return not any(each.sharing and each.sharing.is_for_new_parts for each in tables)

    wait_for(have_heard, "all replicas know it")
    with pytest.raises(BadInput, match="takes nothing of table d~0 from an object store"):
        plan_of(table, through="store")
