"""Jobs of Spark that take the place of rows of a sharded table, with real replicas in this process, and without a JVM."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from replitree.client.connection import Connection
from replitree.spark.stream.stream_write import BatchMessage, commit_batch, plan_batch
from replitree.spark.write.source_write import commit_job, plan_write, stage_rows
from tests.replica.fixtures import cluster_and_connection
from tests.replica.inprocess import InProcessCluster, rows
from tests.spark.test_sharded import create, planner_of, uploads_left, writing
from tests.waiting import wait_for

cluster, connection = cluster_and_connection()


@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_jobs_that_overwrite_replace_the_rows_of_all_shards(
    connection: Connection, cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    create(planner_of(connection, monkeypatch))
    table = connection.table("d")
    table.insert(rows(0, 100))
    schema = from_arrow_schema(rows(0).schema)

    def overwrite(data: Sequence[pa.Table], **options: str) -> None:
        plan = plan_write({"table": "d", **options}, schema, overwrite=True)
        commit_job(plan, [stage_rows(plan.job, iter(each.to_batches())) for each in data])

    with writing(connection, monkeypatch):
        overwrite([rows(200, 30), rows(230, 1)], partitionoverwritemode=mode)
        assert sorted(table.to_arrow().column("k").to_pylist()) == list(range(200, 231))
        overwrite([rows(7, 1), rows(0, 0)], inserttoken="one")
        overwrite([rows(7, 1), rows(0, 0)], inserttoken="one")
        assert table.to_arrow().column("k").to_pylist() == [7]
        overwrite([rows(0, 0)], partitionoverwritemode="dynamic")
        assert table.to_arrow().column("k").to_pylist() == [7]
        overwrite([], partitionoverwritemode="static")
        assert table.to_arrow().num_rows == 0
        plan = plan_batch({"table": "d"}, schema, overwrite=True)
        messages = [BatchMessage(plan, "q", stage_rows(plan.job, iter(rows(0, 9).to_batches())))]
        commit_batch({"table": "d"}, messages, 0, overwrite=True)
    assert sorted(table.to_arrow().column("k").to_pylist()) == list(range(9))
    wait_for(lambda: not uploads_left(cluster), lambda: f"left: {uploads_left(cluster)}")
