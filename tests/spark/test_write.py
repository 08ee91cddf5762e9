"""Writing DataFrames into tables: all or nothing, once, whatever the tasks go through."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from replitree.client.cluster import LocalCluster
from replitree.client.connection import connect
from replitree.client.table import Table
from replitree.errors import BadInput, SchemaMismatch
from replitree.protocol.core.parts import parse_part
from replitree.spark.session.columns import PARTITION_PREFIX, partition_columns
from replitree.spark.write.write import insert_df
from replitree.storage.parts.conform import conform
from replitree.storage.schema.definition import define_table
from replitree.storage.schema.partition import split_by_partition
from tests.spark.conftest import uploads_left

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.system

FATAL_KEY = 19_999
"""A key in the last batch of the second of four tasks with 10,000 rows each."""


def frame_of(spark: SparkSession, count: int, tasks: int = 4) -> DataFrame:
    return spark.range(0, count, 1, tasks).select(
        F.expr("date_add(date'2018-01-01', cast(id % 90 as int))").alias("d"),
        F.col("id").alias("k"),
        (F.col("id") / 3).alias("v"),
        F.concat(F.lit("s"), F.col("id") % 10).alias("s"),
    )


def save(frame: DataFrame, cluster: LocalCluster, table: Table, mode: str = "append", **options: str) -> None:
    given = {"url": str(cluster.folder), "table": table.name} | options
    frame.write.format("replitree").options(**given).mode(mode).save()


def keys(table: Table) -> list[int]:
    """Read what is in the log by now, whoever wrote it."""
    found: list[int] = table.to_arrow(columns=["k"], min_index=table.status().log_tail - 1)["k"].to_pylist()
    return sorted(found)


# --- the fast way ---------------------------------------------------------------------------------------------------------


def test_frame_becomes_one_insert_of_sorted_parts(spark: SparkSession, running: LocalCluster, table: Table) -> None:
    result = table.insert(frame_of(spark, 1000), token="a")
    assert (result.rows, result.outcome) == (1000, "inserted")
    assert keys(table) == list(range(1000))
    snapshot = table.snapshot()
    assert [part.manifest.partition for part in snapshot.parts] == ["2018-01", "2018-02", "2018-03"]
    assert len({part.part.split("_")[1] for part in snapshot.parts}) == 1, "one index for all partitions"
    for part in snapshot.parts:
        stats = part.manifest.columns["k"]
        assert stats.nulls == 0
        assert stats.min is not None
    assert table.insert(frame_of(spark, 5), token="a").outcome == "duplicate"
    assert uploads_left(running, table) == []


def test_same_rows_again_are_a_duplicate_unless_wanted(spark: SparkSession, table: Table) -> None:
    rows = frame_of(spark, 100, tasks=1)
    assert table.insert(rows).outcome == "inserted"
    assert table.insert(rows).outcome == "duplicate"
    assert table.insert(rows, deduplicate=False).outcome == "inserted"
    assert len(keys(table)) == 200


def test_columns_are_found_by_name_and_missing_ones_are_null(spark: SparkSession, table: Table) -> None:
    table.insert(spark.createDataFrame([("x", 7)], "S string, K int"))
    assert table.to_arrow().to_pylist() == [{"d": None, "k": 7, "v": None, "s": "x"}]


def test_frame_that_does_not_fit_is_refused_before_anything_runs(spark: SparkSession, table: Table) -> None:
    for ddl, message in (("k bigint, x int", "'x'"), ("s string", "'k' is missing"), ("k string", "cast it first")):
        with pytest.raises(SchemaMismatch, match=message):
            table.insert(spark.createDataFrame([], ddl))
    assert keys(table) == []


def test_null_in_a_column_that_may_have_none_is_refused(
    spark: SparkSession, running: LocalCluster, table: Table
) -> None:
    with pytest.raises(SchemaMismatch, match="'k'"):
        table.insert(spark.createDataFrame([(1,), (None,)], "k bigint"))
    assert keys(table) == []
    assert uploads_left(running, table) == []


def test_empty_frame_is_no_insert(spark: SparkSession, running: LocalCluster, table: Table) -> None:
    assert table.insert(frame_of(spark, 10).where("k < 0")).outcome == "empty"
    save(frame_of(spark, 10).where("k < 0"), running, table)
    assert table.status().log_tail == 0
    assert uploads_left(running, table) == []


def test_shuffled_frame_has_one_file_per_partition(spark: SparkSession, table: Table) -> None:
    insert_df(table, frame_of(spark, 1000, tasks=12))
    assert [len(part.manifest.files) for part in table.snapshot().parts] == [1, 1, 1]
    insert_df(table, frame_of(spark, 900, tasks=3), shuffle=False)
    assert {len(part.manifest.files) for part in table.snapshot().parts} == {1, 3}


def test_failed_spark_job_leaves_nothing(spark: SparkSession, running: LocalCluster, table: Table) -> None:
    broken = frame_of(spark, 100).withColumn("v", F.raise_error(F.lit("as the test wants")).cast("double"))
    with pytest.raises(PySparkException, match="as the test wants"):
        table.insert(broken)
    assert keys(table) == []
    assert uploads_left(running, table) == []


def test_too_many_partitions_are_refused(spark: SparkSession, running: LocalCluster, name: str) -> None:
    table = running.create_table(name, "k bigint", partition_by="k", settings={"partitions_per_insert_max": 5})
    for insert in (
        lambda: table.insert(spark.range(6).toDF("k")),
        lambda: save(spark.range(6).toDF("k"), running, table),
    ):
        with pytest.raises((BadInput, PySparkException), match="insert in slices"):
            insert()
    assert keys(table) == []
    assert uploads_left(running, table) == []
    running.drop_table(name)


TRANSFORMS = [
    "i", "dt", "b", "s", "x", "dec", "ts", "n",
    "year(dt)", "month(dt)", "day(dt)", "year(ts)", "month(ts)", "day(ts)", "hour(ts)",
    "year(n)", "month(n)", "day(n)", "hour(n)",
    "bucket(7,i)", "bucket(7,k)", "bucket(7,s)", "bucket(7,x)", "bucket(7,dec)", "bucket(7,dt)", "bucket(7,ts)", "bucket(7,n)",
    "truncate(10,i)", "truncate(10,k)", "truncate(2,s)", "truncate(1,x)", "truncate(50,dec)",
]  # fmt: skip
VALUES = "k bigint, i int, dt date, b boolean, s string, x binary, dec decimal(20,2), ts timestamp, n timestamp_ntz"
ODD_STRINGS = "case id % 9 when 0 then null when 1 then '' when 2 then 'Ä/_é' else concat('k', id) end"


@pytest.fixture(scope="module")
def values(spark: SparkSession) -> DataFrame:
    """Values on both sides of zero and of 1970, with nulls, empty and odd strings."""
    micros = "(id * 7919 - 400) * 3600000000 * 31 + id"
    return spark.range(0, 400, 1, 3).select(
        F.col("id").alias("k"),
        F.expr("if(id % 11 = 0, null, cast(id - 60 as int))").alias("i"),
        F.expr("if(id % 13 = 0, null, date_add(date'1970-01-01', cast(id * 37 - 2000 as int)))").alias("dt"),
        F.expr("if(id % 7 = 0, null, id % 2 = 0)").alias("b"),
        F.expr(ODD_STRINGS).alias("s"),
        F.expr("if(id % 10 = 0, null, cast(concat('x', id % 5) as binary))").alias("x"),
        F.expr("if(id % 12 = 0, null, cast(id - 60 as decimal(20,2)) / 7)").cast("decimal(20,2)").alias("dec"),
        F.expr(f"if(id % 8 = 0, null, timestamp_micros({micros}))").alias("ts"),
        F.expr(f"if(id % 8 = 1, null, cast(timestamp_micros({micros}) as timestamp_ntz))").alias("n"),
    )


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu"])
def test_spark_groups_rows_as_storage_does(spark: SparkSession, values: DataFrame, zone: str) -> None:
    definitions = [define_table(f"t{n}", VALUES, partition_by=text) for n, text in enumerate(TRANSFORMS)]
    groups = {d.name: partition_columns(d)[f"{PARTITION_PREFIX}0"].alias(d.name) for d in definitions}
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        found = values.select("*", *groups.values()).toArrow()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    rows = conform(found.select(values.columns), definitions[0])
    for definition in definitions:
        by_spark = dict(zip(found["k"].to_pylist(), found[definition.name].to_pylist(), strict=True))
        pairs = {
            (part.partition, by_spark[k])
            for part in split_by_partition(rows, definition)
            for k in part.rows["k"].to_pylist()
        }
        assert len({p for p, _ in pairs}) == len({g for _, g in pairs}) == len(pairs) > 1, definition.partition_by


def test_transforms_that_only_python_has_are_written_too(running: LocalCluster, name: str, values: DataFrame) -> None:
    table = running.create_table(name, VALUES, order_by=["s", "k"], partition_by=["bucket(3,s)", "month(ts)", "b"])
    table.insert(values.where("k < 60"), token="spark")
    table.insert(values.where("k < 60").toArrow(), token="arrow")
    both: list[list[tuple[str, int]]] = [[], []]
    for part in table.snapshot().parts:
        both[parse_part(part.part).block_min].append((part.manifest.partition, part.manifest.rows))
    assert sorted(both[0]) == sorted(both[1])
    assert len(both[0]) > 20
    running.drop_table(name)


# --- the data source ------------------------------------------------------------------------------------------------------


def test_data_source_appends_once(spark: SparkSession, running: LocalCluster, table: Table) -> None:
    save(frame_of(spark, 500), running, table)
    assert keys(table) == list(range(500))
    assert table.status().log_tail == 1
    assert uploads_left(running, table) == []
    save(frame_of(spark, 500), running, table)
    assert len(keys(table)) == 1000, "a job that is run again is a new insert"


def test_program_reads_what_its_job_has_written(spark: SparkSession, running: LocalCluster, table: Table) -> None:
    """A fresh connection asks for the job's index, whichever replica it reads; and so does the next job."""
    save(frame_of(spark, 10), running, table)
    index = table.snapshot(level="linearizable").index - 1
    with connect(running.folder) as other:
        fresh = other.table(table.name)
        assert fresh.inserter.written.index < index
        assert fresh.to_df(spark).count() == 10
        assert fresh.inserter.written.index == index
    reader = spark.read.format("replitree").option("url", str(running.folder)).option("replica", "r2")
    for start in range(10, 60, 10):
        save(frame_of(spark, start + 10).where(f"k >= {start}"), running, table, replica="r1")
        assert reader.load(table.name).count() == start + 10


def test_data_source_with_a_token_inserts_once(spark: SparkSession, running: LocalCluster, table: Table) -> None:
    for _ in range(2):
        save(frame_of(spark, 100), running, table, insertToken="load 1")
    assert keys(table) == list(range(100))


def test_both_ways_write_the_same_rows(spark: SparkSession, running: LocalCluster, table: Table) -> None:
    table.insert(frame_of(spark, 300))
    save(frame_of(spark, 300), running, table)
    rows = table.to_arrow(min_index=1).sort_by("k").to_pylist()
    assert rows[::2] == rows[1::2]


def failing(rows: DataFrame, attempts: int) -> DataFrame:
    """Give rows of which one comes only when its task has been tried that often before."""

    def pass_on(key: int) -> int:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        if key == FATAL_KEY and context.attemptNumber() < attempts:
            raise ValueError("as the test wants")
        return key

    return rows.withColumn("k", F.udf(pass_on, "bigint", useArrow=False)("k"))


def test_task_that_is_retried_leaves_no_duplicate(spark: SparkSession, running: LocalCluster, table: Table) -> None:
    retried = failing(frame_of(spark, 40_000), 1)
    save(retried, running, table)
    assert keys(table) == list(range(40_000))
    table.insert(retried, token="fast")
    assert len(keys(table)) == 80_000
    assert uploads_left(running, table) == []


def test_job_that_fails_for_good_leaves_nothing(spark: SparkSession, running: LocalCluster, table: Table) -> None:
    hopeless = failing(frame_of(spark, 40_000), 99)
    for write in (lambda: save(hopeless, running, table), lambda: table.insert(hopeless)):
        with pytest.raises(PySparkException, match="as the test wants"):
            write()
    assert keys(table) == []
    assert uploads_left(running, table) == []
    assert table.status().log_tail == 0


def test_wrong_columns_are_refused(spark: SparkSession, running: LocalCluster, table: Table) -> None:
    for ddl, message in (("k bigint, x int", "'x'"), ("s string", "'k' is missing")):
        with pytest.raises(AnalysisException, match=message):
            save(spark.createDataFrame([], ddl), running, table)
    with pytest.raises(PySparkException, match="'k'"):
        save(spark.createDataFrame([(1,), (None,)], "k bigint"), running, table)
    assert keys(table) == []
    assert uploads_left(running, table) == []


def test_replica_that_is_down_is_left_for_the_other(spark: SparkSession, running: LocalCluster, table: Table) -> None:
    running.kill("r2")
    try:
        save(frame_of(spark, 100), running, table)
        table.insert(frame_of(spark, 50), token="b")
    finally:
        running.start("r2")
    assert len(keys(table.replica("r2"))) == 150


def test_insert_into_a_view(spark: SparkSession, running: LocalCluster, table: Table) -> None:
    options = f"url '{running.folder}', table '{table.name}'"
    spark.sql(f"create or replace temporary view target using replitree options({options})")
    spark.sql("insert into target select date'2018-01-01' d, 1L k, 0.5D v, 'x' s")
    assert keys(table) == [1]


def test_upload_of_a_job_names_the_drivers_process(spark: SparkSession, running: LocalCluster, table: Table) -> None:
    """So the replica can tell when nobody will commit it any more, however long its tasks wait."""
    folders = [running.folder / name / "data" / "tables" / table.definition.folder_name for name in running.names]

    def writers(_: int) -> str:
        return " ".join(path.read_text() for folder in folders for path in (folder / "uploads").glob("*_life"))

    rows = spark.range(1).select(F.col("id").alias("k"), F.udf(writers, "string", useArrow=False)("id").alias("s"))
    save(rows, running, table)
    (text,) = table.to_arrow(["s"], None, table.status().log_tail - 1)["s"].to_pylist()
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - Spark tells its process nowhere else
    assert json.loads(text)["pid"] == jvm.java.lang.ProcessHandle.current().pid()
    assert uploads_left(running, table) == []
