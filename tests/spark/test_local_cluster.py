"""A cluster whose executors see the replicas' folders: each task finds that out, whatever the master is called."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from replitree.client.cluster import LocalCluster
from replitree.client.read.part_cache import PartCache, ReplicaAccess
from replitree.client.table import Table
from replitree.spark.session.session import spark_session
from replitree.spark.store.located import is_local
from replitree.spark.write import task_insert
from replitree.spark.write.write_tasks import WriteJob, job_of
from replitree.storage.files.sums import is_summed
from tests.spark.conftest import SharedSpark, uploads_left
from tools.class_archive import java_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.system

NOWHERE = "127.0.0.1:1"
"""An address where no replica listens."""

COUNT = 100_000
"""So many rows that each file has block checksums beside it: a task opens no other file on its own disk."""


@pytest.fixture
def two_executors(shared_spark: SharedSpark) -> Iterator[SparkSession]:
    shared_spark.stop()
    session = spark_session(
        master="local-cluster[2,1,1024]",
        conf={
            "spark.driver.memory": "1g",
            "spark.executor.memory": "512m",
            "spark.sql.shuffle.partitions": 2,
            "spark.executor.extraJavaOptions": java_options(),
        },
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


def test_tasks_use_the_disk_that_they_see_and_ask_no_replica(
    two_executors: SparkSession, running: LocalCluster, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def jobs(*given: Any, **more: Any) -> WriteJob:
        return replace(job_of(*given, **more), address=NOWHERE)

    access = PartCache.access

    def nowhere(cache: PartCache) -> ReplicaAccess:
        return access(cache)._replace(addresses=(NOWHERE,))

    assert not is_local(two_executors)
    monkeypatch.setattr(task_insert, "job_of", jobs)
    monkeypatch.setattr(PartCache, "access", nowhere)
    rows = two_executors.range(0, COUNT, 1, 2).selectExpr(
        "date'2024-01-15' d", "id k", "double(id) v", "sha2(string(id), 256) s"
    )
    assert table.insert(rows).rows == COUNT
    assert uploads_left(running, table) == []
    (part,) = table.snapshot().parts
    assert [is_summed(file.bytes) for file in part.manifest.files] == [True, True]
    found = table.to_df(two_executors).selectExpr("count(s)", "sum(k)").first()
    assert found == (COUNT, COUNT * (COUNT - 1) // 2)
