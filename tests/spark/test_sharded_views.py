"""Spark's tasks and the materialised views of a sharded table, which they do not compute."""

from __future__ import annotations

import pytest

from replitree.client.connection import Connection
from replitree.errors import BadInput, Unavailable
from tests.replica.fixtures import cluster_and_connection
from tests.replica.inprocess import InProcessCluster, rows
from tests.spark.test_sharded import create, job, planner_of, uploads_left, writing
from tests.waiting import wait_for

cluster, connection = cluster_and_connection()


def test_a_job_inserts_nothing_beside_a_view_that_its_tasks_did_not_compute(
    connection: Connection, cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(planner_of(connection, monkeypatch))
    table = connection.table("d")
    connection.create_table("sums", "k bigint not null, n bigint", order_by="k", shard_by="k", shards=1)

    def view() -> None:
        table.create_view("v", "sums", {"k": "k % 2", "n": "count(*)"}, group_by="k")

    with writing(connection, monkeypatch):
        with pytest.raises(Unavailable, match="nothing was inserted, run the job again"):
            job([rows(0, 50)], before_commit=view)
        with pytest.raises(BadInput, match="has materialised views, which Spark's tasks can't compute"):
            job([rows(0, 50)])
        assert table.scan(level="linearizable").count() == 0
        table.drop_view("v")
        job([rows(0, 50)])
    assert table.scan(level="linearizable").count() == 50
    wait_for(lambda: not uploads_left(cluster), "nothing is left")
