"""Reading tables with Spark: the JVM's reader, the data source, views."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException

from replitree.client.cluster import LocalCluster
from replitree.client.table import Table
from replitree.errors import BadInput, ReplicaBehind
from replitree.protocol.state.read import READ_LEVELS
from replitree.spark.read.views import sql_views
from replitree.spark.session.types import spark_schema
from tests.times import time_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.system

NESTED = (
    "k bigint not null, b boolean, i1 tinyint, i2 smallint, i4 int, f float, g double, d decimal(38,10), s string, x binary,"
    " dt date, ts timestamp, n timestamp_ntz, a array<struct<x: int, y: array<string>>>, m map<string, struct<z: double>>"
)


@pytest.fixture
def filled(table: Table) -> Table:
    """1,000 rows in three parts and two months; k from 0 to 999."""
    for start, count in ((0, 400), (400, 300), (700, 300)):
        keys = range(start, start + count)
        days = pa.array([17_532 + k % 59 for k in keys], pa.int32()).cast(pa.date32())
        table.insert({"d": days, "k": keys, "v": [k / 4 for k in keys], "s": [f"s{k % 7}" for k in keys]})
    return table


def load(spark: SparkSession, cluster: LocalCluster, table: Table, **options: str) -> DataFrame:
    reader = spark.read.format("replitree").option("URL", str(cluster.folder)).options(**options)
    return reader.load(table.name)


WAYS = pytest.mark.parametrize("way", [{}, {"partitions": "2"}], ids=["scan", "tasks"])
"""Options with which the source reads by Spark's own scan, and in Python tasks."""


def plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())  # noqa: SLF001 - Python has it not


def keys(frame: DataFrame) -> list[int]:
    return sorted(row["k"] for row in frame.select("k").collect())


@WAYS
def test_both_ways_read_the_same_rows(
    spark: SparkSession, running: LocalCluster, filled: Table, way: dict[str, str]
) -> None:
    direct, source = filled.to_df(spark), load(spark, running, filled, **way)
    assert direct.schema == source.schema == spark_schema(filled.definition)
    assert sorted(direct.collect()) == sorted(source.collect())
    assert keys(direct) == list(range(1000))


def test_condition_and_columns_are_pushed_down(spark: SparkSession, running: LocalCluster, filled: Table) -> None:
    where = "k >= 690 and d < date'2018-02-01' and s like 's1%'"
    expected = keys(filled.to_df(spark).where(where))
    assert expected
    direct = filled.to_df(spark, columns=["s", "k"], where=where)
    assert direct.columns == ["s", "k"]
    assert keys(direct) == expected
    source = load(spark, running, filled, columns="k, s", where=where)
    assert source.columns == ["k", "s"]
    assert keys(source) == expected
    assert len(filled.snapshot().select("k >= 700")) == 2, "one part per month of the last insert"
    assert len(direct.inputFiles()) <= 2


def test_condition_that_only_spark_understands_is_left_to_it(spark: SparkSession, filled: Table) -> None:
    assert keys(filled.to_df(spark, where="k % 100 = 7 and upper(s) != 'S9'")) == list(range(7, 1000, 100))
    with pytest.raises(BadInput, match="nope"):
        filled.to_df(spark, where="nope = 1")
    with pytest.raises(BadInput):
        filled.to_df(spark, where="k = = 1")
    with pytest.raises(BadInput, match="nope"):
        filled.to_df(spark, columns=["nope"])


def test_the_source_is_sparks_own_scan_until_an_option_needs_tasks(
    spark: SparkSession, running: LocalCluster, filled: Table
) -> None:
    index = str(filled.snapshot().index)
    for options in ({}, {"columns": "s, k"}, {"level": "linearizable"}, {"versionAsOf": index}, {"final": "true"}):
        frame = load(spark, running, filled, **options)
        assert "(Python)" not in plan(frame), options
        assert len(frame.columns) == (2 if "columns" in options else 4)
        last = frame.where("k >= 700")
        assert "SnapshotFiles(2 paths)" in plan(last), "one part per month of the last insert"
        assert keys(last) == list(range(700, 1000))
    for options in (
        {"where": "k < 5"},
        {"partitions": "1"},
        {"lease": "60"},
        {"replica": "r1"},
        {"through": "replica"},
    ):
        assert "(Python)" in plan(load(spark, running, filled, **options)), options
    reader = spark.read.format("replitree").option("url", str(running.folder))
    assert "(Python)" in plan(reader.schema("k bigint").load(filled.name))


@WAYS
def test_one_relation_with_different_filters_gives_the_right_rows(
    spark: SparkSession, running: LocalCluster, filled: Table, way: dict[str, str]
) -> None:
    frame = load(spark, running, filled, **way)
    assert frame.where("k < 5").count() == 5
    assert frame.count() == 1000
    assert frame.where("k < 5").union(frame.where("k >= 990")).count() == 15
    assert frame.where("k < 5").alias("a").crossJoin(frame.where("k >= 990").alias("b")).count() == 50
    first, second = load(spark, running, filled, where="k < 5"), load(spark, running, filled, where="k >= 990")
    assert (first.count(), second.count(), first.union(second).count(), first.count()) == (5, 10, 15, 5)


@WAYS
def test_frame_is_one_snapshot_for_ever(
    spark: SparkSession, running: LocalCluster, filled: Table, way: dict[str, str]
) -> None:
    direct, source = filled.to_df(spark), load(spark, running, filled, **way)
    assert (direct.count(), source.count()) == (1000, 1000)
    index = filled.insert({"k": [1000]}).index
    assert (direct.count(), source.count()) == (1000, 1000)
    assert filled.to_df(spark).count() == 1001
    assert load(spark, running, filled, minindex=str(index)).count() == 1001


def test_empty_table_has_its_columns_and_no_rows(spark: SparkSession, running: LocalCluster, table: Table) -> None:
    sources = [load(spark, running, table, **way) for way in ({}, {"partitions": "2"}, {"where": "k > 1"})]
    for frame in (table.to_df(spark), *sources):
        assert frame.schema == spark_schema(table.definition)
        assert frame.collect() == []
        assert frame.groupBy("s").count().count() == 0
    assert table.to_df(spark, columns=["s"], where="k > 1").columns == ["s"]


def test_nothing_matches_is_not_an_error(spark: SparkSession, running: LocalCluster, filled: Table) -> None:
    assert filled.to_df(spark, where="k > 5000").count() == 0
    assert load(spark, running, filled, where="k > 5000").count() == 0


@pytest.fixture
def nested(running: LocalCluster, name: str) -> Iterator[Table]:
    table = running.create_table(name, NESTED, order_by="k")
    full = {
        "k": 1, "b": True, "i1": -1, "i2": 2, "i4": 3, "f": 0.5, "g": 0.1, "d": "1.5", "s": "ä", "x": b"\x00\xff",
        "dt": 1, "ts": 1_000_001, "n": -1, "a": [{"x": 1, "y": ["p", None]}, None], "m": [("q", {"z": 1.0}), ("r", None)],
    }  # fmt: skip
    empty = {"k": 2} | {name: None for name in full if name != "k"}
    columns = {}
    for field in table.schema:
        values = [full[field.name], empty[field.name]]
        if pa.types.is_temporal(field.type):
            plain = pa.int32() if pa.types.is_date(field.type) else pa.int64()
            columns[field.name] = pa.array(values, plain).cast(field.type)
        elif pa.types.is_decimal(field.type):
            columns[field.name] = pa.array(values, pa.string()).cast(field.type)
        else:
            columns[field.name] = pa.array(values, field.type)
    table.insert(pa.table(columns))
    yield table
    running.drop_table(name)


@WAYS
def test_every_type_comes_through_both_ways(
    spark: SparkSession, running: LocalCluster, nested: Table, way: dict[str, str]
) -> None:
    direct = nested.to_df(spark).orderBy("k").collect()
    source = load(spark, running, nested, **way).orderBy("k").collect()
    assert direct == source
    assert direct[0]["a"][0]["y"] == ["p", None]
    assert direct[0]["m"]["q"]["z"] == 1.0
    assert direct[0]["ts"].microsecond == 1
    assert set(direct[1]) == {2, None}


def test_schema_given_by_the_reader_is_honoured(spark: SparkSession, running: LocalCluster, nested: Table) -> None:
    reader = spark.read.format("replitree").option("url", str(running.folder))
    frame = reader.schema("s string, k bigint").load(nested.name)
    assert [tuple(row) for row in frame.orderBy("k").collect()] == [("ä", 1), (None, 2)]
    with pytest.raises(PySparkException, match="read it as that"):
        reader.schema("k int").load(nested.name).collect()


def test_other_time_zone_of_the_session_does_not_lose_rows(
    spark: SparkSession, running: LocalCluster, name: str
) -> None:
    table = running.create_table(name, "ts timestamp", order_by="ts", partition_by="hour(ts)")
    for hour in range(4):
        table.insert({"ts": pa.array([hour * 3_600_000_000], pa.timestamp("us", "UTC"))})
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        where = "ts >= timestamp'1969-12-31 21:00:00'"  # 02:00 in UTC
        assert table.to_df(spark, where=where).count() == table.to_df(spark).where(where).count() == 2
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        running.drop_table(name)


def test_part_that_is_gone_is_an_error_or_read_elsewhere_never_fewer_rows(
    spark: SparkSession, running: LocalCluster, filled: Table
) -> None:
    snapshot = filled.replica("r1").snapshot()
    frame, source = snapshot.to_df(spark), load(spark, running, filled, replica="r1")
    assert source.count() == 1000
    part = snapshot.folders(snapshot.parts)[0]
    part.rename(part.with_name("hidden"))
    part.touch()  # in the way of the replica, which would fetch the part again
    try:
        assert snapshot.to_df(spark).count() == 1000  # the rows of the part come from another replica
        with pytest.raises(Exception, match=r"FileNotFound|does not exist|no good copy"):
            frame.select("v").collect()
        assert len(source.select("v").collect()) == 1000  # a task asks the other replica
    finally:
        part.unlink()
        part.with_name("hidden").rename(part)
    assert frame.count() == 1000


def test_views_are_there_for_sql(spark: SparkSession, running: LocalCluster, filled: Table) -> None:
    assert filled.name in sql_views(spark, running)
    assert spark.sql(f"select max(k) from {filled.name}").collect()[0][0] == 999
    spark.sql(f"create temporary view other using replitree options(url '{running.folder}', table '{filled.name}')")
    assert spark.sql("select count(*) from other where k < 10").collect()[0][0] == 10
    assert sql_views(spark, running, (filled.name,)) == (filled.name,)


def test_levels_are_asked_for_by_frames_sources_and_views(
    spark: SparkSession, running: LocalCluster, filled: Table
) -> None:
    last = filled.insert({"d": [date(2018, 1, 1)], "k": [1000], "v": [0.0], "s": ["x"]}).index
    assert last is not None
    for level in READ_LEVELS:
        assert filled.to_df(spark, level=level, min_index=last).count() == 1001
        assert load(spark, running, filled, level=level.upper(), minIndex=str(last)).count() == 1001
    query = f"select count(*) from {filled.name}"
    sql_views(spark, running, (filled.name,), level="linearizable", timeout_s=20)
    assert spark.sql(query).collect()[0][0] == 1001
    sql_views(spark, running, (filled.name,), level="linearizable", as_of={filled.name: last})
    assert spark.sql(query).collect()[0][0] == 1000
    before = next(time_of(each) for each in filled.history() if each.index < last)
    sql_views(spark, running, (filled.name,), as_of={filled.name: before})
    assert spark.sql(query).collect()[0][0] == 1000
    far = last + 1_000_000
    with pytest.raises(ReplicaBehind, match="the read needs it up to"):
        sql_views(spark, running, (filled.name,), min_index={filled.name: far}, timeout_s=0.2)
    with pytest.raises(PySparkException, match="the read needs it up to"):
        load(spark, running, filled, minIndex=str(far), timeout="0.2").count()


@WAYS
def test_limit_ends_early_without_an_error(
    spark: SparkSession, running: LocalCluster, filled: Table, way: dict[str, str]
) -> None:
    assert len(load(spark, running, filled, **way).limit(3).collect()) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table": "not_there"}, "does not exist"),
        ({"colums": "k"}, "no option 'colums'"),
        ({"where": "nope = 1"}, "nope"),
        ({"columns": "nope"}, "nope"),
        ({"level": "exact"}, "option level is eventual, sequential, linearizable, consistent, not 'exact'"),
        ({"replica": "r9"}, "no replica 'r9'"),
        ({"url": "/no/such/folder"}, "no cluster"),
    ],
)
def test_wrong_options_say_what_is_right(
    spark: SparkSession, running: LocalCluster, table: Table, options: dict[str, str], message: str
) -> None:
    given = {"url": str(running.folder), "table": table.name} | options
    with pytest.raises((AnalysisException, PySparkException), match=message):
        spark.read.format("replitree").options(**given).load().collect()
