"""Frames of Spark in a history: what is inserted, streamed and read through them is written down, and judged."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

import replitree
from replitree.client.cluster import LocalCluster
from replitree.client.table import Table
from replitree.errors import BadInput
from replitree.spark import RecordedSession, into, recorded
from replitree.spark.session.catalog import CATALOG_CLASS
from replitree.wire.history_format import Operation
from replitree.wire.history_recorder import Recorder
from replitree_verify.histories.judge import check
from replitree_verify.histories.reading import read_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.system, pytest.mark.slow]


@pytest.fixture
def history(tmp_path: Path) -> Path:
    return tmp_path / "history.jsonl"


@pytest.fixture
def table(running: LocalCluster, history: Path) -> Iterator[Table]:
    running.create_table("recorded", "k bigint not null, v double", order_by="k", wait_replicas=2)
    with replitree.connect(running.folder, record=history) as connection:
        yield connection.table("recorded")
    running.drop_table("recorded")


def rows(spark: SparkSession, first: int, last: int) -> DataFrame:
    return spark.range(first, last).selectExpr("id AS k", "rand() AS v")


def test_inserts_streams_and_reads_of_frames_are_recorded_and_fine(
    spark: SparkSession, table: Table, history: Path
) -> None:
    assert table.insert(rows(spark, 0, 100), token="first", quorum=2).rows == 100
    batch = into(table, "a stream")
    for number in (0, 1, 1):  # the last one is a duplicate
        batch(rows(spark, 100 + 10 * number, 110 + 10 * number), number)
    shown = table.to_df(spark, level="linearizable")
    assert (shown.count(), table.to_df(spark, ["v"]).count()) == (120, 120)
    assert table.replica("r2").to_df(spark, level="sequential").count() == 120
    verdict = check(read_files([history]))
    assert verdict.fine, verdict.anomalies
    # Each try of the last batch counts; the second read has no numbers.
    assert (verdict.inserts, verdict.reads) == (4, 2)


def test_rows_that_a_frame_lacks_are_an_anomaly(
    spark: SparkSession, table: Table, running: LocalCluster, history: Path
) -> None:
    table.insert(rows(spark, 0, 10))
    running.table("recorded").delete("k = 3")
    assert table.to_df(spark, level="linearizable").count() == 9
    assert check(read_files([history])).counts["S4"] == 1


def test_a_frame_that_numbers_a_row_twice_is_refused(spark: SparkSession, table: Table) -> None:
    with pytest.raises(BadInput, match="3 is there twice"):
        table.insert(rows(spark, 0, 5).union(rows(spark, 3, 4)))


# --- Spark's own ways: SQL, the catalog, the data source, streams ---


@pytest.fixture
def recorder(history: Path) -> Iterator[Recorder]:
    with closing(Recorder(history)) as made:
        yield made


@pytest.fixture
def session(spark: SparkSession, running: LocalCluster, recorder: Recorder) -> Iterator[RecordedSession]:
    running.create_table("spoken", "k bigint not null, v double", order_by="k", wait_replicas=2)
    spark.conf.set("spark.sql.catalog.spoken", CATALOG_CLASS)
    spark.conf.set("spark.sql.catalog.spoken.url", str(running.folder))
    yield recorded(spark, recorder)
    running.drop_table("spoken")


def operations(history: Path) -> list[Operation]:
    found = read_files([history])
    return [found.operation(number) for number in range(len(found))]


def test_sql_the_catalog_and_the_source_are_recorded_with_their_snapshots(
    spark: SparkSession, session: RecordedSession, running: LocalCluster, history: Path
) -> None:
    url = str(running.folder)
    session.sql("INSERT INTO spoken.default.spoken SELECT id, 0.5 FROM range(3)")
    session.write_to(rows(spark, 3, 5), "spoken.default.spoken").option("insertToken", "a").append()
    session.write(rows(spark, 5, 9)).option("url", url).option("quorum", 2).mode("append").save("spoken")
    now = session.sql("SELECT v, k FROM spoken.default.spoken WITH (level = 'linearizable')")
    session.sql("SELECT * FROM spoken.default.spoken VERSION AS OF 1")
    session.table("spoken.default.spoken", level="sequential")
    session.load("spoken", url=url, level="linearizable")
    session.load("spoken", url=url, level="sequential", replica="r2")  # by the source in Python
    running.table("spoken").insert({"k": [9], "v": [0.0]})
    assert now.count() == 9  # its rows stay
    *inserts, now_read, old, listed, named, at_r2 = operations(history)
    assert [(each.outcome, each.rows, each.index) for each in inserts] == [
        ("ok", ((0, 2),), 0), ("ok", ((3, 4),), 1), ("ok", ((5, 8),), 2),
    ]  # fmt: skip
    assert (inserts[1].token, inserts[2].quorum) == ("a", 2)
    assert (old.level, old.rows, old.index) == ("as_of", ((0, 2),), 1)
    assert {each.rows for each in (now_read, listed, named, at_r2)} == {((0, 8),)}
    assert [each.level for each in (now_read, listed, named)] == ["linearizable", "sequential", "linearizable"]
    assert all(each.replica in {"r1", "r2"} and each.index is not None for each in (now_read, old, listed, named))
    assert (at_r2.level, at_r2.replica, at_r2.index) == ("sequential", "r2", now_read.index)
    verdict = check(read_files([history]))
    assert verdict.fine, verdict.anomalies


def test_rows_that_a_query_lacks_or_nobody_inserted_are_anomalies(
    session: RecordedSession, running: LocalCluster, history: Path
) -> None:
    session.sql("INSERT INTO spoken.default.spoken SELECT id, 0.5 FROM range(10)")
    running.table("spoken").delete("k = 3")
    session.sql("SELECT k FROM spoken.default.spoken WITH (level = 'linearizable')")
    running.table("spoken").insert({"k": [77], "v": [0.0]})
    session.table("spoken.default.spoken", level="linearizable")
    counts = check(read_files([history])).counts
    assert (counts["S4"], counts["S1"]) == (2, 1)


@pytest.mark.parametrize(("statement", "says"), [
    ("SELECT * FROM spoken.default.spoken WHERE k > 1", "this one has Filter"),
    ("SELECT count(*) FROM spoken.default.spoken", "this one has Aggregate"),
    ("SELECT v FROM spoken.default.spoken", "shows column k"),
    ("SELECT k + 1 AS k FROM spoken.default.spoken", "shows column k"),
    ("SELECT * FROM spoken.default.spoken.history", "is not a table of a replitree catalog"),
    ("WITH x AS (SELECT 1 AS k, 0.5 AS v) INSERT INTO spoken.default.spoken SELECT * FROM x", "begins with INSERT INTO"),
    ("DROP TABLE spoken.default.spoken", "a query of one table, or a statement that begins with INSERT INTO"),
])  # fmt: skip
def test_what_a_history_can_not_hold_is_refused(session: RecordedSession, statement: str, says: str) -> None:
    with pytest.raises(BadInput, match=re.escape(says)):
        session.sql(statement)


def test_a_cached_table_is_not_read_for_a_history(spark: SparkSession, session: RecordedSession) -> None:
    session.sql("INSERT INTO spoken.default.spoken SELECT 1, 0.5")
    spark.sql("CACHE TABLE spoken.default.spoken")
    try:
        with pytest.raises(BadInput, match="UNCACHE TABLE first"):
            session.table("spoken.default.spoken")
    finally:
        spark.sql("UNCACHE TABLE spoken.default.spoken")


def test_parts_of_older_columns_are_read_for_a_history_as_the_source_reads_them(
    session: RecordedSession, running: LocalCluster, history: Path
) -> None:
    session.sql("INSERT INTO spoken.default.spoken SELECT id, 0.5 FROM range(3)")
    running.table("spoken").add_column("s", "string")
    session.table("spoken.default.spoken", level="linearizable")
    read = operations(history)[-1]
    assert (read.rows, read.level) == (((0, 2),), "linearizable")
    assert read.index is not None
    assert read.replica in {"r1", "r2"}


def test_an_insert_that_a_history_can_not_hold_changes_nothing(
    spark: SparkSession, session: RecordedSession, running: LocalCluster, history: Path
) -> None:
    twice = rows(spark, 0, 5).union(rows(spark, 3, 4))
    with pytest.raises(PySparkException, match="one is there twice"):
        session.write_to(twice, "spoken.default.spoken").append()
    with pytest.raises(PySparkException, match="overwrite without recording"):
        session.sql("INSERT OVERWRITE spoken.default.spoken SELECT 1, 0.5")
    assert running.table("spoken").to_arrow(level="linearizable").num_rows == 0
    assert operations(history) == []


def test_batches_of_a_stream_are_recorded_before_they_are_inserted_and_once(
    spark: SparkSession, session: RecordedSession, running: LocalCluster, history: Path, tmp_path: Path
) -> None:
    def run(number: int) -> None:
        rows(spark, 10 * number, 10 * number + 10).write.mode("append").parquet(str(tmp_path / "in"))
        stream = spark.readStream.schema("k bigint, v double").parquet(str(tmp_path / "in"))
        writer = session.write_stream(stream).option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).toTable("spoken.default.spoken").awaitTermination()

    run(0)
    run(1)
    # As a driver leaves it that is killed before Spark has noted that the batch is in the table.
    (tmp_path / "checkpoint" / "commits" / "1").unlink()
    (tmp_path / "checkpoint" / "commits" / ".1.crc").unlink(missing_ok=True)
    run(2)
    session.table("spoken.default.spoken", level="linearizable")
    *batches, read = operations(history)
    (stream,) = running.table("spoken").streams()
    assert [each.token for each in batches] == [f"{stream.id}/{number}" for number in (0, 1, 1, 2)]
    assert [each.rows for each in batches] == [((0, 9),), ((10, 19),), ((10, 19),), ((20, 29),)]
    assert read.rows == ((0, 29),)
    verdict = check(read_files([history]))
    assert verdict.fine, verdict.anomalies


def test_an_empty_table_is_read_for_a_history(session: RecordedSession, running: LocalCluster, history: Path) -> None:
    url = str(running.folder)
    session.table("spoken.default.spoken", level="linearizable")
    session.load("spoken", url=url, level="linearizable", replica="r2")
    session.load("spoken", url=url, asOf=0, replica="r2")
    assert [(each.level, each.rows, each.index) for each in operations(history)] == [
        ("linearizable", (), 0),
        ("linearizable", (), None),
        ("as_of", (), 0),
    ]
    assert check(read_files([history])).fine
