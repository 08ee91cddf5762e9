"""Streams into tables: each batch once, through failures, kills of the driver, and other queries of the same name."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from replitree import connect
from replitree.client.cluster import LocalCluster
from replitree.client.table import Table
from replitree.errors import BadInput
from replitree.spark import into
from replitree.spark.session.catalog import CATALOG
from replitree.spark.session.types import spark_schema
from replitree.spark.source import ReplitreeSource, ReplitreeStreamWriter
from replitree.spark.stream.stream_write import BatchMessage, abort_batch, plan_batch
from replitree.spark.write.write_commit import MARK
from replitree.spark.write.write_tasks import write_task
from tests.client.conftest import FakeCluster
from tests.project.source import ROOT
from tests.spark.drivers import kill_driver_when
from tests.spark.test_source_write import batches, left

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

pytestmark = pytest.mark.system

DAY = dt.date(2026, 11, 1)
QUERY_S_MAX = 300
ROWS = 10


class Feed:
    """A folder of Parquet files, each of which becomes a batch, and the checkpoint of a query that reads them."""

    def __init__(self, folder: Path, spark: SparkSession) -> None:
        self.folder, self.checkpoint, self._spark = folder / "in", folder / "checkpoint", spark
        self.folder.mkdir()
        self.files = 0

    def add(self, files: int = 1) -> Feed:
        """Add files of ten rows."""
        for _ in range(files):
            keys = range(ROWS * self.files, ROWS * (self.files + 1))
            table = pa.table({"d": [DAY for _ in keys], "k": pa.array(keys, pa.int64()), "s": [f"s{k}" for k in keys]})
            pq.write_table(table, self.folder / f"{self.files:04d}.parquet")
            self.files += 1
        return self

    @property
    def stream(self) -> DataFrame:
        """The rows, file by file."""
        reader = self._spark.readStream.schema("d date, k bigint, s string").option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.folder))

    def run(self, writer: DataStreamWriter, checkpoint: Path | None = None, to_table: str = "") -> None:
        """Run a query over what is there."""
        at = str(checkpoint or self.checkpoint)
        ready = writer.option("checkpointLocation", at).trigger(availableNow=True)
        query = ready.toTable(to_table) if to_table else ready.start()
        assert query.awaitTermination(QUERY_S_MAX)

    def forget_end(self) -> None:
        """Make the checkpoint what it is when the driver dies after the table's commit of a batch, and before Spark's own."""
        commits = sorted((self.checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
        commits[-1].unlink()
        (self.checkpoint / "commits" / f".{commits[-1].name}.crc").unlink(missing_ok=True)


@pytest.fixture
def feed(tmp_path: Path, spark: SparkSession) -> Feed:
    return Feed(tmp_path, spark)


def sink(rows: DataFrame, running: LocalCluster, table: Table, **options: Any) -> DataStreamWriter:
    """Write through the data source."""
    writer = rows.writeStream.format("replitree").option("url", str(running.folder)).option("table", table.name)
    return writer.options(**options)


def keys(table: Table) -> list[int]:
    found: list[int] = sorted(table.to_arrow(level="linearizable")["k"].to_pylist())
    return found


def last_batches(table: Table) -> list[int]:
    return [each.batch for each in table.streams()]


def test_each_batch_is_one_insert_and_a_repeated_one_none(feed: Feed, running: LocalCluster, table: Table) -> None:
    feed.add(3).run(sink(feed.stream, running, table, quorum=2))
    assert keys(table) == list(range(30))
    (stream,) = table.streams()
    assert (stream.id, stream.batch) == (stream.query, 2)
    feed.forget_end()
    before = len(table.history(limit=100))
    feed.run(sink(feed.stream, running, table, quorum=2))
    assert len(table.history(limit=100)) == before
    feed.add().run(sink(feed.stream, running, table, quorum=2))
    assert (keys(table), last_batches(table)) == (list(range(40)), [3])


def test_another_checkpoint_of_the_same_name_is_refused_and_takes_over_when_told(
    feed: Feed, running: LocalCluster, table: Table, tmp_path: Path
) -> None:
    feed.add(2).run(sink(feed.stream, running, table, txnAppId="load"))
    other = tmp_path / "other"
    with pytest.raises(Exception, match=r"stream load belongs to query .* whose last batch is 1, so batch 0"):
        feed.run(sink(feed.stream, running, table, txnAppId="load"), other)
    assert keys(table) == list(range(20))
    feed.run(sink(feed.stream, running, table, txnAppId="load", newCheckpoint=True), other)
    assert keys(table) == sorted([*range(20), *range(20)])


def test_complete_replaces_everything(feed: Feed, running: LocalCluster, table: Table) -> None:
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

    counts = feed.stream.groupBy("d", (F.col("k") % 3).alias("k")).agg(F.count("*").cast("double").alias("v"))
    for _ in range(2):
        feed.add().run(sink(counts, running, table).outputMode("complete"))
        rows = table.to_arrow(level="linearizable")
        assert (sorted(rows["k"].to_pylist()), sum(rows["v"].to_pylist())) == ([0, 1, 2], ROWS * feed.files)


def test_update_is_refused_by_spark(feed: Feed, running: LocalCluster, table: Table) -> None:
    counts = feed.add().stream.groupBy("d").count().selectExpr("d", "count k")
    with pytest.raises(Exception, match="does not support Update mode"):
        feed.run(sink(counts, running, table).outputMode("update"))
    assert keys(table) == []


def test_a_stream_goes_on_when_the_table_gets_a_column(feed: Feed, running: LocalCluster, table: Table) -> None:
    feed.add().run(sink(feed.stream, running, table))
    table.alter("ADD COLUMN currency string DEFAULT 'EUR'")
    feed.add().run(sink(feed.stream, running, table))
    rows = running.table(table.name).to_arrow(level="linearizable")
    assert (sorted(rows["k"].to_pylist()), set(rows["currency"].to_pylist())) == (list(range(20)), {"EUR"})


# --- wrong input -----------------------------------------------------------------------------------------------------------


def test_a_query_that_can_not_begin_says_what_to_do(
    feed: Feed, running: LocalCluster, table: Table, tmp_path: Path
) -> None:
    feed.add()
    token_file = tmp_path / "token"
    token_file.write_text("of another cluster")
    token_file.chmod(0o600)
    named = {"url": str(running.folder), "table": table.name}
    wrong: list[tuple[dict[str, str], tuple[str, ...], str]] = [
        (named | {"table": "nosuch"}, ("*",), "create it, or see `replitree table list`"),
        (named | {"url": ""}, ("*",), r'which cluster\? Say .option\("url"'),
        (named | {"url": running.access.url, "tokenFile": str(token_file)}, ("*",), "use the token of this cluster"),
        (named, ("d", "k", "s as other"), "has no column 'other'; it has d, k, v, s"),
        (named, ("d", "s as k"), "column 'k': expected bigint, found string; cast it first"),
        (named | {"replica": "nosuch"}, ("*",), "no replica 'nosuch'"),
    ]
    for number, (options, columns, advice) in enumerate(wrong):
        writer = feed.stream.selectExpr(*columns).writeStream.format("replitree").options(**options)
        with pytest.raises(Exception, match=advice):
            feed.run(writer, tmp_path / str(number))
    with pytest.raises(Exception, match="checkpointLocation must be specified"):
        feed.stream.writeStream.format("replitree").options(**named).start()
    assert (keys(table), last_batches(table)) == ([], [])


def test_a_batch_that_no_replica_takes_says_so_and_comes_when_one_does(feed: Feed, tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "lone", 1, durable=False) as lone:
        made = lone.create_table("t", "d date, k bigint not null, s string", order_by="k")
        lone.kill("r1")
        with pytest.raises(Exception, match="can't be reached: Connection refused; is its server running"):
            feed.add().run(sink(feed.stream, lone, made, timeout=3))
        lone.start("r1")
        feed.run(sink(feed.stream, lone, made))
        assert (keys(made), last_batches(made)) == (list(range(10)), [0])


# --- through the catalog ---------------------------------------------------------------------------------------------------


@pytest.fixture
def catalog(spark: SparkSession, running: LocalCluster) -> str:
    """The catalog's name for the cluster's tables, without the table."""
    spark.conf.set(f"{CATALOG}.url", str(running.folder))
    return "replitree.default."


def test_to_table_of_the_catalog_inserts_each_batch_once(feed: Feed, table: Table, catalog: str) -> None:
    def run() -> None:
        writer = feed.stream.writeStream.option("txnAppId", "orders").option("quorum", 2)
        feed.run(writer, to_table=catalog + table.name)

    feed.add(2)
    run()
    feed.forget_end()
    feed.add()
    run()
    assert (keys(table), last_batches(table)) == (list(range(30)), [2])
    (stream,) = table.streams()
    assert stream.id == "orders"


def test_to_table_with_complete_replaces_everything(feed: Feed, table: Table, catalog: str) -> None:
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

    counts = feed.stream.groupBy("d", (F.col("k") % 3).alias("k")).agg(F.count("*").cast("double").alias("v"))
    for _ in range(2):
        feed.add().run(counts.writeStream.outputMode("complete"), to_table=catalog + table.name)
        rows = table.to_arrow(level="linearizable")
        assert (sorted(rows["k"].to_pylist()), sum(rows["v"].to_pylist())) == ([0, 1, 2], ROWS * feed.files)


def test_to_table_creates_a_table_that_is_missing_and_says_how_one_gets_an_order_key(
    feed: Feed, running: LocalCluster, name: str, catalog: str, tmp_path: Path
) -> None:
    feed.add().run(feed.stream.writeStream, to_table=catalog + name)
    made = running.table(name)
    try:
        assert (keys(made), made.definition.order_by) == (list(range(10)), ())
        with pytest.raises(Exception, match=r"TBLPROPERTIES \(order_by = 'k'\), and then the write"):
            feed.run(feed.stream.writeStream.option("order_by", "k"), tmp_path / "other", catalog + name)
    finally:
        running.drop_table(name)


@pytest.mark.parametrize("via", ["executors", "driver"])
def test_into_inserts_each_batch_of_foreach_batch_once(feed: Feed, table: Table, via: Any) -> None:
    write = into(table, "orders", via=via, quorum=2)
    feed.add(2).run(feed.stream.writeStream.foreachBatch(write))
    feed.forget_end()
    feed.add().run(feed.stream.writeStream.foreachBatch(write))
    assert (keys(table), last_batches(table)) == (list(range(30)), [2])


PROGRAM = """
import sys, threading
from pathlib import Path
from replitree import connect
from replitree.spark import into, spark_session
cluster, name, folder, checkpoint, mark = sys.argv[1:]
table = connect(cluster).table(name)
write = into(table, "orders")
def insert(rows, number):
    write(rows, number)
    if number == 1:
        Path(mark).touch()
        threading.Event().wait()
spark = spark_session(master="local[1]", conf={"spark.driver.memory": "1g"})
stream = spark.readStream.schema("d date, k bigint, s string").option("maxFilesPerTrigger", 1).parquet(folder)
query = stream.writeStream.foreachBatch(insert).option("checkpointLocation", checkpoint).start()
query.awaitTermination()
"""


@pytest.mark.slow
def test_a_driver_that_is_killed_after_its_commit_repeats_the_batch_and_inserts_nothing(
    feed: Feed, running: LocalCluster, table: Table, tmp_path: Path
) -> None:
    feed.add(2)
    mark = tmp_path / "inserted"
    kill_driver_when(
        mark.exists, "batch 1 is inserted", PROGRAM, running.folder, table.name, feed.folder, feed.checkpoint, mark
    )
    assert not (feed.checkpoint / "commits" / "1").exists()
    feed.add().run(feed.stream.writeStream.foreachBatch(into(table, "orders")))
    assert (keys(table), last_batches(table)) == (list(range(30)), [2])


def test_a_batch_whose_task_fails_leaves_nothing(feed: Feed, running: LocalCluster, table: Table) -> None:
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

    broken = feed.add().stream.withColumn(
        "s", F.when(F.col("k") == 7, F.raise_error(F.lit("as the test wants"))).otherwise("s")
    )
    with pytest.raises(Exception, match="as the test wants"):
        feed.run(sink(broken, running, table))
    assert (keys(table), last_batches(table)) == ([], [])
    feed.run(sink(feed.stream, running, table))
    assert keys(table) == list(range(10))


def test_batch_writes_with_a_version_are_inserted_once(
    spark: SparkSession, running: LocalCluster, table: Table
) -> None:
    frame = spark.range(5).selectExpr("date'2026-11-01' d", "id k")

    def save(version: int) -> None:
        writer = frame.write.format("replitree").option("url", str(running.folder)).option("table", table.name)
        writer.option("txnAppId", "load").option("txnVersion", version).mode("append").save()

    for version in (3, 3, 2, 4):
        save(version)
    assert keys(table) == sorted([*range(5), *range(5)])
    with connect(running.folder) as connection:
        other = connection.table(table.name)
        assert other.insert({"d": [DAY], "k": [9]}, txn_app_id="load", txn_version=4).outcome == "duplicate"
        assert other.insert({"d": [DAY], "k": [9]}, txn_app_id="load", txn_version=5).outcome == "inserted"


# --- without Spark's tasks -------------------------------------------------------------------------------------------------


@pytest.fixture
def fake(cluster: FakeCluster) -> Table:
    cluster.create("t", "k bigint not null, s string", order_by="k")
    cluster.add_replica("t", "r1")
    return cluster.connect().table("t")


@pytest.mark.parametrize("may_have_begun", [False, True])
def test_abort_leaves_what_a_commit_may_have_begun_to_take(
    cluster: FakeCluster, fake: Table, *, may_have_begun: bool
) -> None:
    plan = plan_batch({"table": "t", "timeout": "5"}, spark_schema(fake.definition, ["s", "k"]), overwrite=False)
    messages = [BatchMessage(plan, "q", write_task(plan.job, batches(0, 5))), None]
    scratch = plan.job.scratch
    assert scratch is not None
    if may_have_begun:
        (scratch / MARK).touch()
    abort_batch(messages)
    assert bool(left(cluster.replicas["r1"])) is may_have_begun


PAGE = (ROOT / "docs" / "streams.md").read_text(encoding="utf-8")
DELTA = re.compile(r"^\| (`[^|]*`) \| (works|alias|refused)[^|]* \|$", re.MULTILINE)


def test_options_of_delta_are_what_the_page_says() -> None:
    rows = [(name, what) for names, what in DELTA.findall(PAGE) for name in re.findall(r"`(\w+)`", names)]
    assert {what for _, what in rows} == {"works", "alias", "refused"}
    assert len(rows) > 10
    for name, what in rows:
        options = {"table": "t", name: "t" if what == "alias" else "true"}
        if what == "refused":
            with pytest.raises(BadInput, match=f"(?i)no option {name}: "):
                ReplitreeSource(options).streamWriter(None, overwrite=False)  # type: ignore[arg-type]
        else:
            made = ReplitreeSource(options).streamWriter(None, overwrite=False)  # type: ignore[arg-type]
            assert isinstance(made, ReplitreeStreamWriter)


@pytest.mark.parametrize("option", ["insertToken", "txnVersion", "partitionOverwriteMode"])
def test_options_of_batch_writes_are_refused(option: str) -> None:
    with pytest.raises(BadInput, match=f"a stream has no option {option.lower()}"):
        ReplitreeSource({"table": "t", option: "1"}).streamWriter(None, overwrite=False)  # type: ignore[arg-type]


@pytest.mark.parametrize(("mode", "overwrite"), [("static", False), ("dynamic", True)])
def test_an_overwrite_of_partitions_is_no_mode_of_a_stream(mode: str, *, overwrite: bool) -> None:
    source = ReplitreeSource({"table": "t", "partitionOverwriteMode": mode})
    with pytest.raises(BadInput, match=r'outputMode\("complete"\) replaces everything, outputMode\("append"\) nothing'):
        source.streamWriter(None, overwrite=overwrite)  # type: ignore[arg-type]
