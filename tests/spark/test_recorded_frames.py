"""Frames of Spark in a history: what is inserted, streamed and read through them is written down, and judged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import replitree
from replitree.client.cluster import LocalCluster
from replitree.client.table import Table
from replitree.errors import BadInput
from replitree.spark import into
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
