"""Sharded tables in Spark, with replicas in processes of their own: SQL, frames and the data source see one table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from replitree.client.cluster import LocalCluster
from replitree.client.connection import connect
from replitree.client.sharded.sharded_table import ShardedTable
from replitree.spark.session.catalog import CATALOG
from replitree.spark.stream.into import Via, into
from replitree.spark.write.sharded_write import shard_column
from replitree.spark.write.write import insert_df
from tests.spark.test_catalog import plan_of
from tests.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.system


@pytest.fixture
def session(spark: SparkSession, running: LocalCluster) -> Iterator[SparkSession]:
    """The session, whose catalog is that of the cluster; tables that a test leaves are dropped."""
    spark.conf.set(f"{CATALOG}.url", str(running.folder))
    yield spark
    for name in ("d", "other"):
        spark.sql(f"DROP TABLE IF EXISTS replitree.default.{name}")


def sharded(session: SparkSession, running: LocalCluster, more: str = "") -> ShardedTable:
    session.sql(
        "CREATE TABLE replitree.default.d (k BIGINT NOT NULL, kind STRING, v DOUBLE)"
        f" TBLPROPERTIES ('order_by'='k', 'shard_by'='k', 'shards'='2', 'buckets'='16'{more})"
    )
    table = running.table("d")
    assert isinstance(table, ShardedTable)
    return table


def rows(first: int, count: int) -> pa.Table:
    keys = range(first, first + count)
    return pa.table({"k": list(keys), "kind": [f"kind {k % 3}" for k in keys], "v": [k / 2 for k in keys]})


def test_spark_reads_the_rows_of_all_shards_as_one_table(session: SparkSession, running: LocalCluster) -> None:
    table = sharded(session, running)
    table.insert(rows(0, 300))
    assert [row.tableName for row in session.sql("SHOW TABLES IN replitree.default").collect()].count("d") == 1
    shown = {row.key: row.value for row in session.sql("SHOW TBLPROPERTIES replitree.default.d").collect()}
    assert (shown["shard_by"], shown["shards"], shown["buckets"]) == ("k", "2", "16")

    def one(text: str) -> int:
        ((found,),) = session.sql(text).collect()
        return int(found)

    name = "replitree.default.d"
    assert one(f"SELECT count(*) FROM {name}") == 300
    groups = session.sql(f"SELECT kind, count(*) AS n FROM {name} GROUP BY kind").collect()
    assert {(row.kind, row.n) for row in groups} == {(f"kind {k}", 100) for k in range(3)}
    # Rows of different shards meet in a join and in a subquery.
    assert one(f"SELECT count(*) FROM {name} a JOIN {name} b ON a.kind = b.kind") == 3 * 100 * 100
    assert one(f"SELECT count(*) FROM {name} WHERE k IN (SELECT k + 1 FROM {name})") == 299
    pruned = session.sql(f"SELECT v FROM {name} WHERE k = 17")
    assert [row.v for row in pruned.collect()] == [8.5]
    # The same by frames and by the source, which see what SQL of the same program sees.
    table.insert(rows(300, 100))
    frame = table.to_df(session, ["k"], "k >= 100")
    assert sorted(row.k for row in frame.collect()) == list(range(100, 400))
    source = session.read.format("replitree").option("url", str(running.folder)).load("d")
    assert source.count() == 400
    in_python = session.read.format("replitree").options(url=str(running.folder), where="k IN (1, 2, 3)").load("d")
    assert sorted(row.k for row in in_python.collect()) == [1, 2, 3]
    assert one(f"SELECT count(*) FROM {name}") == 400


def test_spark_writes_into_all_shards_by_one_insert(session: SparkSession, running: LocalCluster) -> None:
    table = sharded(session, running)
    name = "replitree.default.d"
    frame = session.createDataFrame(rows(0, 200))
    done = table.insert(frame, token="one", quorum="majority")
    assert (done.outcome, done.rows) == ("inserted", 200)
    assert table.insert(frame, token="one", quorum="majority").outcome == "duplicate"
    # Brought together by shard: by Spark's own hash, which is that of the map.
    assert insert_df(table, session.createDataFrame(rows(200, 100)).repartition(12), shuffle=True).outcome == "inserted"
    session.createDataFrame(rows(300, 100)).write.format("replitree").options(url=str(running.folder), table="d").mode(
        "append"
    ).save()
    session.sql(f"INSERT INTO {name} SELECT k + 400, kind, v FROM {name} WHERE k < 100")
    session.createDataFrame(rows(500, 100)).writeTo(name).append()
    assert sorted(row.k for row in session.table(name).select("k").collect()) == list(range(600))
    found = table.to_arrow(["k"]).column("k").to_pylist()
    assert sorted(found) == list(range(600))
    info = table.info
    keyed = session.createDataFrame(rows(0, 600)).select("k", shard_column(table.definition, info.map).alias("shard"))
    for shard, part in zip(info.map.shards, table.snapshot().shards, strict=True):
        own = {row.k for row in keyed.collect() if row.shard == shard}
        assert own == set(part.to_arrow(["k"]).column("k").to_pylist())
    session.sql(f"DELETE FROM {name} WHERE k < 10")
    assert session.table(name).count() == 590
    # It replaces what it reads, in all shards by one commit.
    before = len(table.history())
    session.sql(f"INSERT OVERWRITE {name} SELECT k, kind, v FROM {name} WHERE k < 20")
    assert (len(table.history()), sorted(row.k for row in session.table(name).collect())) == (
        before + 1,
        list(range(10, 20)),
    )
    session.createDataFrame(rows(700, 50)).writeTo(name).overwritePartitions()
    assert sorted(row.k for row in session.table(name).collect()) == list(range(700, 750))
    writer = (
        session.createDataFrame(rows(800, 50)).write.format("replitree").options(url=str(running.folder), table="d")
    )
    writer.mode("overwrite").save()
    assert sorted(row.k for row in session.table(name).collect()) == list(range(800, 850))


def test_statements_change_rows_of_all_shards_by_one_commit_each(session: SparkSession, running: LocalCluster) -> None:
    table, name = sharded(session, running), "replitree.default.d"
    table.insert(rows(0, 300))

    def found(where: str = "true") -> list[int]:
        return sorted(row.k for row in session.sql(f"SELECT k FROM {name} WHERE {where}").collect())

    session.sql(f"UPDATE {name} SET v = -1 WHERE k IN (SELECT k * 10 FROM {name} WHERE k < 10)")
    assert found("v = -1") == list(range(0, 100, 10))
    session.sql(f"DELETE FROM {name} WHERE k IN (SELECT k + 200 FROM {name})")
    assert found() == list(range(200))
    # Rows whose key changes go to the shard that the map says, and new rows come with them.
    source = f"SELECT k, k + 1000 AS n FROM {name} WHERE k < 20 UNION ALL SELECT 5000, 5000"
    session.sql(
        f"MERGE INTO {name} t USING ({source}) s ON t.k = s.k WHEN MATCHED THEN UPDATE SET k = s.n"
        " WHEN NOT MATCHED THEN INSERT (k, kind, v) VALUES (s.k, 'new', 0.5)"
    )
    assert found() == [*range(20, 200), *range(1000, 1020), 5000]
    for k in (20, 1007, 1019, 5000):
        assert found(f"k = {k}") == [k]
    assert sorted(table.to_arrow(["k"])["k"].to_pylist()) == found()
    assert [each.kind for each in table.history()] == ["rewrite", "rewrite", "rewrite", "get"]


def test_tasks_put_the_rows_of_all_shards_into_the_store(
    session: SparkSession, running: LocalCluster, tmp_path: Path
) -> None:
    table, name = sharded(session, running, f", 'storage'='file://{tmp_path}/objects'"), "replitree.default.d"
    frame = session.createDataFrame(rows(0, 200)).repartition(3)
    assert insert_df(table, frame, token="one", through="store").outcome == "inserted"
    assert insert_df(table, frame, token="one", through="replica").outcome == "duplicate"
    options = {"url": str(running.folder), "table": "d", "through": "store"}
    session.createDataFrame(rows(200, 100)).write.format("replitree").options(**options).mode("append").save()
    session.sql(f"INSERT INTO {name} SELECT k + 300, kind, v FROM {name} WHERE k < 100")
    session.sql(f"DELETE FROM {name} WHERE k < 10")
    assert sorted(row.k for row in session.table(name).select("k").collect()) == list(range(10, 400))
    with connect(running.folder) as connection:
        wait_for(lambda: connection.fsck("d", grace_s=0.0).clean, "all objects are owned", 60.0)


@pytest.mark.nightly
def test_streams_write_each_batch_once(session: SparkSession, running: LocalCluster, tmp_path: Path) -> None:
    table = sharded(session, running)
    name, source = "replitree.default.d", tmp_path / "source"
    checkpoint = str(tmp_path / "checkpoint")

    def run() -> None:
        stream = session.readStream.schema("k BIGINT, kind STRING, v DOUBLE").parquet(str(source))
        query = stream.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True).toTable(name)
        assert query.awaitTermination(120)

    for first in (0, 100):
        session.createDataFrame(rows(first, 100)).write.mode("append").parquet(str(source))
        run()
    # The query has forgotten that it has committed the last batch, and sends it again.
    newest = max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    run()
    assert sorted(row.k for row in session.table(name).select("k").collect()) == list(range(200))
    batches = session.readStream.schema("k BIGINT, kind STRING, v DOUBLE").parquet(str(source)).writeStream
    ways: tuple[Via, ...] = ("executors", "driver")
    for via in ways:
        into_table = into(table, f"by {via}", via=via)
        query = batches.foreachBatch(into_table).option("checkpointLocation", f"{checkpoint}-{via}")
        assert query.trigger(availableNow=True).start().awaitTermination(120)
    assert table.scan().count() == 600


def test_tables_with_equal_buckets_are_joined_without_a_shuffle(session: SparkSession, running: LocalCluster) -> None:
    table = sharded(session, running)
    session.sql(
        "CREATE TABLE replitree.default.other (id BIGINT NOT NULL, name STRING)"
        " TBLPROPERTIES ('order_by'='id', 'shard_by'='id', 'shards'='2', 'buckets'='16')"
    )
    other = running.table("other")
    for first in (0, 300):
        table.insert(rows(first, 300))
        other.insert(
            pa.table({"id": list(range(first, first + 300)), "name": [f"n{k}" for k in range(first, first + 300)]})
        )
    session.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    try:
        joined = session.sql(
            "SELECT d.k, o.name FROM replitree.default.d d JOIN replitree.default.other o ON d.k = o.id WHERE d.v >= 50"
        )
        assert {(row.k, row.name) for row in joined.collect()} == {(k, f"n{k}") for k in range(100, 600)}
        assert "Exchange" not in plan_of(joined)
        # The shard of a row follows from its whole shard key, and from nothing else.
        by_kind = session.sql(
            "SELECT count(*) FROM replitree.default.d a JOIN replitree.default.d b ON a.kind = b.kind"
        )
        assert "Exchange hashpartitioning(kind" in plan_of(by_kind)
    finally:
        session.conf.unset("spark.sql.autoBroadcastJoinThreshold")


def test_streams_and_batches_read_the_change_feed_of_all_shards(
    session: SparkSession, running: LocalCluster, tmp_path: Path
) -> None:
    table = sharded(session, running, ", 'feed'='1 day'")
    table.insert(rows(0, 100))
    start = table.cut_now("linearizable")
    url, target = str(running.folder), str(tmp_path / "target")

    def stream(source: str) -> None:
        reader = session.readStream.option("skipChangeCommits", "true")
        frame = (
            reader.format("replitree").option("url", url).option("table", "d").load()
            if source == "format"
            else reader.table("replitree.default.d")
        )
        writer = frame.writeStream.format("parquet").option("path", target)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination(120)

    stream("format")
    table.insert(rows(100, 50))
    table.delete("k = 3")
    # The checkpoint is the same, whichever way the table is named.
    stream("catalog")
    shown = sorted(row.k for row in session.read.parquet(target).collect())
    assert shown == list(range(150))
    changes = session.read.format("replitree").option("url", url).option("readChangeFeed", "true")
    found = changes.option("startingVersion", start).load("d").groupBy("_change_type").count().collect()
    assert {row[0]: row[1] for row in found} == {"insert": 50, "delete": 1}
    named = session.sql(f"SELECT k, _change_type FROM replitree.default.d CHANGES FROM VERSION '{start}' WHERE k < 101")
    assert sorted(tuple(row) for row in named.collect()) == [(3, "delete"), (100, "insert")]
    deleted = table.history(1)[0].time
    assert deleted is not None
    since = session.sql(f"SELECT k FROM replitree.default.d CHANGES FROM TIMESTAMP '{deleted.isoformat()}'")
    assert [row.k for row in since.collect()] == [3]


@pytest.mark.nightly
def test_a_frame_goes_through_the_views_of_a_sharded_table(session: SparkSession, running: LocalCluster) -> None:
    source = running.create_table("d", "k bigint not null, ts timestamp", order_by="k", shard_by="k")
    sums = running.create_table(
        "sums", "g bigint not null, n bigint", order_by="g", policy="summing(n)", shard_by="g", shards=1
    )
    source.create_view("v", "sums", {"g": "k % 3", "n": "count(*)"}, group_by="g")
    frame = session.sql("SELECT id AS k, TIMESTAMP '2026-11-30 12:00:00' AS ts FROM range(30)")
    for outcome in ("inserted", "duplicate"):
        assert source.insert(frame, token="once").outcome == outcome
    found = sums.to_arrow(level="linearizable").sort_by("g").to_pylist()
    source.drop_view("v")
    for name in ("d", "sums"):
        running.drop_table(name)
    assert found == [{"g": 0, "n": 10}, {"g": 1, "n": 10}, {"g": 2, "n": 10}]
