"""Overwriting with Spark, and reading what other changes leave: one commit, one snapshot, one lease."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PySparkException

from replitree.client.cluster import LocalCluster
from replitree.client.table import Table
from replitree.spark.read.read import session_conf
from replitree.spark.write.write import insert_df
from replitree.spark.write.write_tasks import SESSION_MODE
from tests.spark.conftest import uploads_left
from tests.spark.test_write import failing, frame_of, save

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.system

MONTHS = ["2018-01", "2018-02", "2018-03"]


def keys(table: Table) -> list[int]:
    """Read what each replica shows of the whole log; they must agree."""
    tail = table.status().log_tail - 1
    found = [sorted(table.replica(name).to_arrow(["k"], None, tail)["k"].to_pylist()) for name in ("r1", "r2")]
    assert found[0] == found[1]
    return found[0]


def partitions(table: Table) -> dict[str, int]:
    keys(table)
    return {found.partition: found.rows for found in table.partitions()}


def test_overwrite_replaces_the_whole_table_in_one_commit(
    spark: SparkSession, running: LocalCluster, table: Table
) -> None:
    table.insert(frame_of(spark, 900))
    tail = table.status().log_tail
    save(frame_of(spark, 30), running, table, mode="overwrite")
    assert table.status().log_tail == tail + 1
    assert keys(table) == list(range(30))
    insert_df(table, frame_of(spark, 20), overwrite="all")
    assert table.insert(frame_of(spark, 20), overwrite="all").outcome == "inserted"
    assert keys(table) == list(range(20))
    assert uploads_left(running, table) == []


def test_dynamic_overwrite_replaces_the_touched_partitions(
    spark: SparkSession, running: LocalCluster, table: Table
) -> None:
    table.insert(frame_of(spark, 900))
    assert partitions(table) == {"2018-01": 310, "2018-02": 280, "2018-03": 310}
    some = frame_of(spark, 40).where("d < date'2018-02-01'")
    save(some, running, table, mode="overwrite", partitionOverwriteMode="dynamic")
    keys(table)
    assert partitions(table) == {"2018-01": 31, "2018-02": 280, "2018-03": 310}
    table.insert(frame_of(spark, 40).where("d >= date'2018-02-01'"), overwrite="partitions")
    keys(table)
    assert partitions(table) == {"2018-01": 31, "2018-02": 9, "2018-03": 310}


def test_session_says_what_is_overwritten_unless_the_job_does(
    spark: SparkSession, running: LocalCluster, table: Table
) -> None:
    table.insert(frame_of(spark, 900))
    january = frame_of(spark, 40).where("d < date'2018-02-01'")
    with session_conf(spark, {SESSION_MODE: "DYNAMIC"}):
        save(january, running, table, mode="overwrite")
        assert partitions(table) == {"2018-01": 31, "2018-02": 280, "2018-03": 310}
        options = f"url '{running.folder}', table '{table.name}'"
        spark.sql(f"create or replace temporary view target_s using replitree options({options})")
        with pytest.raises(AnalysisException, match="does not support dynamic overwrite"):  # Spark's own word
            spark.sql("insert overwrite target_s select date'2018-02-01' d, 1L k, 0.5D v, 'x' s")
        save(january.where("k < 0"), running, table, mode="overwrite")
        assert partitions(table) == {"2018-01": 31, "2018-02": 280, "2018-03": 310}
        save(january, running, table, mode="overwrite", partitionOverwriteMode="static")
        assert partitions(table) == {"2018-01": 31}
    with session_conf(spark, {SESSION_MODE: "static"}):
        february = frame_of(spark, 40).where("d >= date'2018-02-01'")
        save(february, running, table, mode="overwrite", partitionOverwriteMode="dynamic")
        assert partitions(table) == {"2018-01": 31, "2018-02": 9}
        save(february, running, table, mode="overwrite")
        assert partitions(table) == {"2018-02": 9}


def test_job_may_overwrite_what_it_reads(spark: SparkSession, running: LocalCluster, table: Table) -> None:
    table.insert(frame_of(spark, 90))
    read = spark.read.format("replitree").option("url", str(running.folder)).load(table.name)
    save(read.where("k < 10"), running, table, mode="overwrite")
    assert keys(table) == list(range(10))


def test_failed_overwrite_leaves_everything(spark: SparkSession, running: LocalCluster, table: Table) -> None:
    table.insert(frame_of(spark, 90))
    with pytest.raises(PySparkException, match="as the test wants"):
        save(failing(frame_of(spark, 40_000), 99), running, table, mode="overwrite")
    assert keys(table) == list(range(90))
    assert uploads_left(running, table) == []


def test_overwriting_with_nothing_empties_the_table(spark: SparkSession, running: LocalCluster, table: Table) -> None:
    table.insert(frame_of(spark, 90))
    nothing = frame_of(spark, 10).where("k < 0")
    save(nothing, running, table, mode="overwrite", partitionOverwriteMode="dynamic")
    assert len(keys(table)) == 90
    save(nothing, running, table, mode="overwrite")
    assert keys(table) == []
    table.insert(frame_of(spark, 90))
    assert table.insert(nothing, overwrite="all").index is not None
    assert keys(table) == []


def test_insert_overwrite_into_a_view(spark: SparkSession, running: LocalCluster, table: Table) -> None:
    table.insert(frame_of(spark, 90))
    options = f"url '{running.folder}', table '{table.name}'"
    spark.sql(f"create or replace temporary view target using replitree options({options})")
    spark.sql("insert overwrite target select date'2018-01-01' d, 1L k, 0.5D v, 'x' s")
    assert keys(table) == [1]


def test_columns_that_the_table_lacks_are_merged_when_asked_for(
    spark: SparkSession, running: LocalCluster, table: Table
) -> None:
    table.insert(frame_of(spark, 3))
    save(spark.createDataFrame([(7, "a")], "k bigint, extra string"), running, table, mergeSchema="true")
    table.insert(spark.createDataFrame([(8, 1)], "k bigint, more int"), merge_schema=True)
    found = running.table(table.name).to_df(spark, where="k > 1", min_index=table.status().log_tail - 1)
    assert [(r.k, r.extra, r.more) for r in found.orderBy("k").collect()] == [
        (2, None, None),
        (7, "a", None),
        (8, None, 1),
    ]


# --- reading ----------------------------------------------------------------------------------------------------------------


def test_frames_stay_what_they_were_whatever_is_done_to_the_table(
    spark: SparkSession, running: LocalCluster, table: Table
) -> None:
    table.insert(frame_of(spark, 90))
    table.insert(frame_of(spark, 90), deduplicate=False)
    index = table.snapshot().index
    frames = [table.to_df(spark), spark.read.format("replitree").option("url", str(running.folder)).load(table.name)]
    assert [frame.count() for frame in frames] == [180, 180]
    assert table.optimize(final=True).finished
    table.truncate()
    assert keys(table) == []
    assert [frame.count() for frame in frames] == [180, 180]
    assert table.to_df(spark, as_of=index).count() == 180
    source = spark.read.format("replitree").option("url", str(running.folder)).option("asOf", index)
    assert source.load(table.name).count() == 180
    with table.snapshot(as_of=index, lease_s=5) as snapshot:
        assert snapshot.to_df(spark, where="k < 10").count() == 20


def test_job_whose_lease_is_gone_says_so(spark: SparkSession, running: LocalCluster, table: Table) -> None:
    table.insert(frame_of(spark, 90))
    reader = spark.read.format("replitree").option("url", str(running.folder)).option("lease", 1)
    frame = reader.load(table.name)
    # Spark takes the snapshot, and with it the lease, when it first asks for the tasks; no task runs here.
    assert frame.rdd.getNumPartitions() > 0
    wait_until(lambda: leases(table) == 0)
    with pytest.raises(PySparkException, match="make the frame again"):
        frame.count()


def leases(table: Table) -> int:
    """Count the leases on snapshots of a table, at all replicas."""
    route = f"/v1/tables/{table.name}/status"
    answers = [table.http.request(replica.address, "GET", route, timeout_s=10) for replica in table.replicas()]
    return sum(int(answer.decode(dict[str, Any])["leases"]) for answer in answers)


def wait_until(condition: Callable[[], bool]) -> None:
    end, pause = time.monotonic() + 30, threading.Event()
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        pause.wait(0.05)


@pytest.mark.parametrize("policy", ["replacing(v)", "summing(v)"])
def test_final_frame_is_what_a_merge_leaves(spark: SparkSession, running: LocalCluster, name: str, policy: str) -> None:
    table = running.create_table(
        name, "p int, k bigint, v bigint, s string", order_by="k", partition_by="p", policy=policy
    )
    for version in range(3):
        rows = spark.range(100).selectExpr("cast(id % 3 as int) p", "id % 50 k", f"{version}L v", f"'v{version}' s")
        table.insert(rows)
    final = sorted(table.to_df(spark, final=True).collect())
    reader = spark.read.format("replitree").option("url", str(running.folder)).option("final", "true")
    assert sorted(reader.load(table.name).collect()) == final
    assert reader.load(table.name).where("v = 0").count() == sum(row.v == 0 for row in final)
    pushed = reader.option("where", "p = 1 and v > 1").option("columns", "s,k").option("partitions", 1)
    assert sorted(pushed.load(table.name).collect()) == sorted((r.s, r.k) for r in final if r.p == 1 and r.v > 1)
    assert final == sorted(spark.createDataFrame(table.to_arrow(final=True)).collect())
    assert table.to_df(spark, columns=["s"], where="k = 7", final=True).columns == ["s"]
    some = table.to_df(spark, ["k", "v"], "upper(s) = 'V2' and k < 10", final=True)
    assert sorted(some.collect()) == sorted((r.k, r.v) for r in final if r.s == "v2" and r.k < 10)
    assert table.optimize(final=True).finished
    assert sorted(table.to_df(spark).collect()) == final
    running.drop_table(name)
