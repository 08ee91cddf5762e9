"""Spark writes into a bucket, on a real S3 server: tasks put and merge files, a replica takes them by reference.

At night the server is behind the proxy that hurts requests, too: those of tasks, of replicas, and of the tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from replitree.client.admin.fsck import FsckReport
from replitree.client.cluster import LocalCluster
from replitree.client.table import Table
from replitree.client.transport.stored import THROUGH
from replitree.errors import SchemaMismatch, StoreError
from replitree.spark.merge.optimize import optimize_df
from replitree.spark.write.write import insert_df
from replitree.storage.parts.content_hash import content_hash
from replitree.storage.schema.definition import TableSettings
from tests.shared.stores import credentials as keys_of_the_store  # otherwise this process has none
from tests.spark.conftest import SharedSpark, uploads_left
from tests.spark.drivers import kill_driver_when
from tests.spark.stored import Stored, closed_gate, copies, let_uploads_age, without_credentials
from tests.storage.objects.seaweed import KEYS
from tests.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.system

ROWS = 40_000
FATAL_KEY = ROWS - 1


@pytest.fixture(scope="module")
def session(shared_spark: SharedSpark, credentials: Path) -> Iterator[SparkSession]:
    """Spark whose tasks have the store's credentials, and try twice."""
    # Java may have been started by a file of tests that puts the keys into its environment, where workers would find them.
    without = {f"spark.executorEnv.{name}": "" for name in KEYS}
    with shared_spark.with_keys(credentials, without) as made:
        yield made


@pytest.fixture
def table(stored_cluster: LocalCluster, url: str) -> Iterator[Table]:
    name = f"t_{len(stored_cluster.tables())}_{os.urandom(3).hex()}"
    made = stored_cluster.create_table(
        name,
        "d date, k bigint not null, s string",
        order_by="k",
        partition_by="month(d)",
        storage=url,
        settings=TableSettings(row_group_rows=1000),
        wait_replicas=2,
    )
    yield made
    stored_cluster.drop_table(name)


def frame_of(spark: SparkSession, tasks: int = 4) -> DataFrame:
    return spark.range(0, ROWS, 1, tasks).select(
        F.expr("date_add(date'2018-01-01', cast(id % 59 as int))").alias("d"),
        F.col("id").alias("k"),
        F.concat(F.lit("s"), F.col("id") % 10).alias("s"),
    )


def failing(rows: DataFrame, attempts: int) -> DataFrame:
    """Let the task with `FATAL_KEY` fail as often, after its other rows."""

    def check(key: int) -> int:
        context = TaskContext.get()
        assert context is not None
        if key == FATAL_KEY and context.attemptNumber() < attempts:
            raise ValueError("as the test wants")
        return key

    return rows.withColumn("k", F.udf(check, "bigint", useArrow=False)("k"))


def save(frame: DataFrame, cluster: LocalCluster, table: Table, **options: str) -> None:
    given = {"url": str(cluster.folder), "table": table.name} | options
    frame.write.format("replitree").options(**given).mode("append").save()


def keys(table: Table) -> list[int]:
    found: list[int] = table.to_arrow(columns=["k"], min_index=table.status().log_tail - 1)["k"].to_pylist()
    return sorted(found)


def test_tasks_put_the_files_and_the_replica_takes_them_by_reference(
    session: SparkSession, stored_cluster: LocalCluster, table: Table, stored: Stored
) -> None:
    save(frame_of(session), stored_cluster, table, through="store", inserttoken="job")
    assert copies(stored_cluster, table) == [], "no replica has had a row"
    assert keys(table) == list(range(ROWS))
    parts = table.snapshot().parts
    assert [len(part.manifest.files) for part in parts] == [4, 4], "each task has put one for each partition"
    files = {f"{part.manifest.share_id}/{file.name}" for part in parts for file in part.manifest.files}
    assert stored.objects() == files | {f"{part.manifest.share_id}/manifest.json" for part in parts}
    assert uploads_left(stored_cluster, table) == []
    save(frame_of(session), stored_cluster, table, through="store", inserttoken="job")
    assert len(keys(table)) == ROWS, "the same token again inserts nothing"
    wait_for(lambda: stored.attempts() == () and len(stored.owned()) == 2, "what the second job has put is gone")
    wait_for(lambda: stored.shares() == stored.owned(), "its objects, too")


def test_tasks_of_a_stream_put_the_files_and_a_batch_that_is_sent_again_leaves_nothing(
    session: SparkSession, stored_cluster: LocalCluster, table: Table, stored: Stored, tmp_path: Path
) -> None:
    def run() -> None:
        stream = session.readStream.schema(rows.schema).parquet(str(tmp_path / "in"))
        options = {"url": str(stored_cluster.folder), "table": table.name, "through": "store"}
        writer = stream.writeStream.format("replitree").options(**options)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()

    rows = frame_of(session)
    rows.write.parquet(str(tmp_path / "in"))
    run()
    assert copies(stored_cluster, table) == [], "no replica has had a row"
    # What the driver leaves that dies between the table's commit and Spark's own.
    for left in (tmp_path / "checkpoint/commits").glob("*0*"):
        left.unlink()
    run()
    assert keys(table) == list(range(ROWS))
    wait_for(lambda: stored.attempts() == () and stored.shares() == stored.owned(), "what was put again is gone")
    assert uploads_left(stored_cluster, table) == []


def test_of_a_task_that_fails_and_is_tried_again_one_attempt_stays(
    session: SparkSession, stored_cluster: LocalCluster, table: Table, stored: Stored
) -> None:
    save(failing(frame_of(session), 1), stored_cluster, table, through="store")
    assert keys(table) == list(range(ROWS))
    parts = table.snapshot().parts
    files = {f"{part.manifest.share_id}/{file.name}" for part in parts for file in part.manifest.files}
    assert stored.objects() == files | {f"{part.manifest.share_id}/manifest.json" for part in parts}


def test_a_job_that_fails_leaves_nothing(
    session: SparkSession, stored_cluster: LocalCluster, table: Table, stored: Stored
) -> None:
    with pytest.raises(PySparkException, match="as the test wants"):
        save(failing(frame_of(session), 9), stored_cluster, table, through="store")
    wait_for(lambda: stored.attempts() == () and stored.objects() == set(), "everything is gone")
    assert keys(table) == []
    assert uploads_left(stored_cluster, table) == []


DRIVER = """
import sys
from pyspark.sql import functions as F
from replitree.spark.merge.optimize import optimize_df
from replitree.spark.session.session import spark_session
from replitree.spark.source import register
from replitree.spark.write.write import insert_df
folder, table, credentials, gate, through = sys.argv[1:]
conf = {"spark.executorEnv.REPLITREE_STORE_CREDENTIALS": credentials} if credentials else {}
session = spark_session(master="local[2]", conf={"spark.driver.memory": "512m", **conf})
register(session)
def wait(key):
    import pathlib
    if key == 9999 and gate:
        pathlib.Path(gate).read_bytes()  # which ends when the test has closed it, or has ended
    return key
rows = session.range(0, 10_000, 1, 2).select(F.udf(wait, "bigint", useArrow=False)("id").alias("k"))
options = {"url": folder, "table": table, **({"through": through} if through else {})}
rows.write.format("replitree").options(**options).mode("append").save()
"""


def test_a_driver_that_is_killed_leaves_nothing_visible_and_nothing_for_good(
    stored_cluster: LocalCluster, table: Table, stored: Stored, credentials: Path, tmp_path: Path
) -> None:
    with closed_gate(tmp_path) as gate:
        kill_driver_when(
            lambda: any(key.endswith("parquet") for key in stored.objects()),
            "the first task has put",
            DRIVER,
            stored_cluster.folder,
            table.name,
            credentials,
            gate,
            "store",
        )
    (share,) = stored.attempts()
    assert keys(table) == []
    assert uploads_left(stored_cluster, table) != [], "it is given up when it has been silent for long"
    assert _fsck(stored_cluster, table).findings == (), "which is its replica's to do"
    let_uploads_age(stored_cluster, table)
    wait_for(lambda: stored.attempts() == () and stored.objects() == set(), "everything is gone", 90)
    stored.put_late(share)  # as a task that nobody could stop
    report = _fsck(stored_cluster, table)
    assert [(each.kind, each.share, each.repair) for each in report.findings] == [("orphan", share, "done")]
    assert stored.objects() == set()


def _fsck(cluster: LocalCluster, table: Table) -> FsckReport:
    with keys_of_the_store():
        return cluster.fsck(table.name, with_repair=True, grace_s=0.0)


@pytest.mark.nightly
def test_without_credentials_rows_go_through_a_replica_and_the_log_says_so(
    stored_cluster: LocalCluster, table: Table, stored: Stored
) -> None:
    arguments = [str(stored_cluster.folder), table.name, "", "", ""]
    driver = subprocess.run([sys.executable, "-c", DRIVER, *arguments], capture_output=True, text=True, check=False)
    assert driver.returncode == 0, driver.stderr
    assert "no credentials for the object store" in driver.stderr
    assert "the rows of this task go through replica r" in driver.stderr
    assert keys(table) == list(range(10_000))
    assert len(stored.owned()) == 1


def test_who_asks_for_the_store_is_told_when_a_replica_offers_none(
    session: SparkSession, stored_cluster: LocalCluster
) -> None:
    local = stored_cluster.create_table("local", "d date, k bigint not null, s string", order_by="k")
    with pytest.raises(PySparkException, match="leave the option through out"):
        save(frame_of(session), stored_cluster, local, through="store")
    save(frame_of(session), stored_cluster, local)
    assert keys(local) == list(range(ROWS))


# --- table.insert(df) ---------------------------------------------------------------------------------------------------------


def test_an_inserted_frame_is_put_by_its_tasks(
    session: SparkSession, stored_cluster: LocalCluster, table: Table, stored: Stored
) -> None:
    result = table.insert(frame_of(session), token="load", quorum="all")
    assert (result.outcome, result.rows, result.settled is not None) == ("inserted", ROWS, True)
    assert copies(stored_cluster, table) == [], "no replica has had a row"
    assert keys(table) == list(range(ROWS))
    assert [len(part.manifest.files) for part in table.snapshot().parts] == [4, 4]
    again = table.insert(frame_of(session), token="load")
    assert (again.outcome, again.index) == ("duplicate", result.index)
    wait_for(lambda: stored.attempts() == () and len(stored.owned()) == 2, "what the second insert has put is gone")
    wait_for(lambda: stored.shares() == stored.owned(), "its objects, too")
    assert uploads_left(stored_cluster, table) == []


def test_an_inserted_frame_takes_the_place_of_what_was_there(
    session: SparkSession, stored_cluster: LocalCluster, table: Table
) -> None:
    table.insert(frame_of(session))
    table.insert(frame_of(session).where("d < date'2018-02-01' and k < 100"), overwrite="partitions")
    assert copies(stored_cluster, table) == [], "no replica has had a row"
    found = table.to_arrow(["d", "k"])
    left = {(day.month, key) for day, key in zip(found["d"].to_pylist(), found["k"].to_pylist(), strict=True)}
    assert {key for month, key in left if month == 1} == {key for key in range(100) if key % 59 < 31}
    assert len({key for month, key in left if month == 2}) > ROWS // 3
    table.insert(frame_of(session).where("k < 0"), overwrite="all")
    assert keys(table) == []


def test_a_frame_whose_tasks_fail_is_inserted_once_or_not_at_all(
    session: SparkSession, stored_cluster: LocalCluster, table: Table, stored: Stored
) -> None:
    with pytest.raises(PySparkException, match="as the test wants"):
        table.insert(failing(frame_of(session), 9))
    with pytest.raises(SchemaMismatch, match="'k'"):
        table.insert(frame_of(session).withColumn("k", F.expr("nullif(k, 7)")))
    wait_for(lambda: stored.attempts() == () and stored.objects() == set(), "everything is gone")
    assert uploads_left(stored_cluster, table) == []
    table.insert(failing(frame_of(session), 1))
    assert keys(table) == list(range(ROWS))


def test_a_frame_goes_through_a_replica_when_workers_do_not_reach_the_store_and_a_log_says_so(
    session: SparkSession, table: Table, credentials: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with without_credentials(credentials):
        with pytest.raises(StoreError, match="leave through out"):
            insert_df(table, frame_of(session), through="store")
        assert table.insert(frame_of(session)).rows == ROWS
    (said,) = [record.getMessage() for record in caplog.records if record.name == "replitree.spark.write.task_insert"]
    assert "credentials" in said
    assert f"the rows for table {table.name} go through replica r" in said
    assert keys(table) == list(range(ROWS))


TYPES = """k bigint not null, b boolean, x float, d decimal(20,4), t timestamp, n timestamp_ntz, s string, y binary,
    a array<struct<p: int, q: string>>, m map<string, decimal(10,2)>"""


def test_values_of_all_types_arrive_alike_in_both_ways(
    session: SparkSession, stored_cluster: LocalCluster, url: str
) -> None:
    frame = session.range(0, 1000, 1, 3).selectExpr(
        "id as k",
        "id % 3 = 0 as b",
        "cast(id / 3 as float) as x",
        "cast(id as decimal(10,2)) as d",
        "timestamp_seconds(id * 1000) as t",
        "timestamp_ntz'2024-03-31 02:30:00' as n",
        "if(id % 7 = 0, null, concat('s', id)) as word",
        "encode(cast(id as string), 'utf-8') as y",
        "array(named_struct('p', cast(id as int), 'q', 'q')) as a",
        "map('one', cast(id as decimal(10,2))) as m",
    )
    found = []
    session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        for way in THROUGH:
            name = f"types_{way}"
            table = stored_cluster.create_table(name, TYPES, order_by="k", storage=url)
            table.alter("RENAME COLUMN s TO word")
            assert insert_df(table, frame, through=way).rows == 1000
            found.append(table.to_arrow().sort_by("k"))
            stored_cluster.drop_table(name)
    finally:
        session.conf.set("spark.sql.session.timeZone", "UTC")
    store, replica = found
    assert store.schema == replica.schema
    assert str(store.to_pylist()) == str(replica.to_pylist())


# --- merges -------------------------------------------------------------------------------------------------------------------


def filled(session: SparkSession, table: Table) -> None:
    """Insert overlapping parts, three in each of two partitions."""
    for number in range(3):
        table.insert(frame_of(session, 1).where(f"k % 3 = {number}"), token=f"{number}")


def merged_and_settled(table: Table, stored: Stored) -> None:
    assert keys(table) == list(range(ROWS))
    wait_for(lambda: len(stored.owned()) == 2 and stored.attempts() == (), "the sources are gone", 60)
    wait_for(lambda: stored.shares() == stored.owned(), "their objects, too")


def test_merges_are_read_and_put_by_tasks(
    session: SparkSession, stored_cluster: LocalCluster, table: Table, stored: Stored
) -> None:
    filled(session, table)
    result = optimize_df(table, session, final=True, range_bytes=2_000)
    assert (result.finished, result.reason, len(result.merges)) == (True, "", 2)
    assert copies(stored_cluster, table) == [], "no replica has read or written a row"
    merged_and_settled(table, stored)
    parts = table.snapshot().parts
    assert sorted(part.part for part in parts) == sorted(merge.result for merge in result.merges)
    assert all(len(part.manifest.files) > 1 for part in parts)
    for part in parts:
        sign = "<" if part.manifest.partition == "2018-01" else ">="
        found = table.to_arrow(where=f"d {sign} date'2018-02-01'").sort_by("k")
        assert part.manifest.content_hash == content_hash(found, table.schema)
    assert uploads_left(stored_cluster, table) == []


def test_merges_go_through_a_replica_when_workers_do_not_reach_the_store_and_a_log_says_so(
    session: SparkSession, table: Table, stored: Stored, credentials: Path, caplog: pytest.LogCaptureFixture
) -> None:
    filled(session, table)
    with without_credentials(credentials):
        result = optimize_df(table, session, final=True, range_bytes=2_000)
    assert (result.finished, len(result.merges)) == (True, 2)
    said = [record.getMessage() for record in caplog.records if record.name == "replitree.spark.merge.optimize"]
    assert len(said) == 2
    assert all("credentials" in each and "is merged through replica r" in each for each in said)
    merged_and_settled(table, stored)


MERGING_DRIVER = """
import sys
from replitree.client import connect
from replitree.client.change import reserved
from replitree.spark.merge import optimize
from replitree.spark import spark_session
folder, table, credentials, gate = sys.argv[1:]
session = spark_session(
    master="local[2]",
    conf={"spark.driver.memory": "512m", "spark.executorEnv.REPLITREE_STORE_CREDENTIALS": credentials},
)
def wait(*_, **__):
    import pathlib
    pathlib.Path(gate).read_bytes()  # which ends when the test has closed it, or has ended
optimize.publish_result, reserved.LEASE_S = wait, 3.0
with connect(folder) as connection:
    optimize.optimize_df(connection.table(table), session, final=True, range_bytes=2_000)
"""


def test_a_driver_that_is_killed_while_it_merges_leaves_nothing_for_good(
    session: SparkSession, stored_cluster: LocalCluster, table: Table, stored: Stored, credentials: Path, tmp_path: Path
) -> None:
    filled(session, table)
    wait_for(lambda: len(stored.owned()) == 6, "all parts are registered")
    before = stored.owned()
    with closed_gate(tmp_path) as gate:
        kill_driver_when(
            lambda: len(stored.attempts()) == 2 and stored.shares() >= set(stored.attempts()),
            "results are put",
            MERGING_DRIVER,
            stored_cluster.folder,
            table.name,
            credentials,
            gate,
        )
    assert stored.owned() == before
    assert len(stored.attempts()) == 2
    assert _fsck(stored_cluster, table).findings == (), "which are their replica's to give up"
    let_uploads_age(stored_cluster, table)
    wait_for(lambda: stored.attempts() == (), "what was put in vain is given up", 90)
    assert table.optimize(final=True).finished
    merged_and_settled(table, stored)
