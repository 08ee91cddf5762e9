"""Changes of a table through the catalog: the rows of `table.changes`, in SQL, in frames and in streams."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from replitree.client.cluster import LocalCluster
from replitree.client.table import Table
from replitree.errors import BadInput
from replitree.spark.catalog.feed_range import NET_CHANGES, range_options
from replitree.spark.catalog.requests import PlannerRequest
from replitree.spark.session.catalog import CATALOG
from tests.spark.stream_queries import finished

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOON_US = 1_795_953_600_000_000
"""2026-11-29 12:00 UTC, in microseconds since 1970."""


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        (("3", "7", True, True), ("3", "7")),
        (("3", "7", False, False), ("4", "6")),
        (("3", None, True, True), ("3", "")),
        ((None, None, True, True), ("", "")),
        (("latest", None, True, True), ("latest", "")),
        # At noon the log has 5 entries, and one of them was written at noon.
        ((NOON_US, NOON_US, True, True), ("4", "4")),
        ((NOON_US, None, False, True), ("5", "")),
        ((NOON_US - 1_000, NOON_US, True, False), ("4", "3")),
    ],
)
def test_a_range_of_spark_is_one_of_indexes(ends: Any, expected: tuple[str, str]) -> None:
    def index_of(time: object) -> int:
        assert isinstance(time, datetime)
        return 5 if time >= datetime(2026, 11, 29, 12, tzinfo=UTC) else 4

    found = range_options(PlannerRequest(0, "range", ends=ends), index_of)
    assert (found.pop("startingversion"), found.pop("endingversion")) == expected
    assert set(found.values()) == {""}, "what Spark has made the range of goes"


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ((NOON_US, NOON_US, True, True), ("e@11", "e@12")),
        ((NOON_US, None, False, True), ("e@12", "")),
        ((NOON_US - 1_000, NOON_US, True, False), ("e@11", "e@11")),
        (("e@7", "e@9", True, True), ("e@7", "e@9")),
    ],
)
def test_a_range_of_a_sharded_table_is_one_of_cuts(ends: Any, expected: tuple[str, str]) -> None:
    def cut_at(time: datetime) -> str:
        return "e@12" if time >= datetime(2026, 11, 29, 12, tzinfo=UTC) else "e@11"

    found = range_options(PlannerRequest(0, "range", ends=ends), cut_at)
    assert (found["startingversion"], found["endingversion"]) == expected


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (PlannerRequest(0, "range", mode=NET_CHANGES), "no identity of their own"),
        (PlannerRequest(0, "range", computes=True), "an UPDATE has both images as it is"),
        (PlannerRequest(0, "range", ends=("latest", None, False, True)), "an index of the log, not 'latest'"),
        (PlannerRequest(0, "range", ends=(10**18, None, True, True)), "the years 1 to 9999"),
    ],
)
def test_a_range_that_can_not_be_given_is_refused(request_: PlannerRequest, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        range_options(request_, lambda _: 0)


@pytest.fixture
def sql(spark: SparkSession, running: LocalCluster) -> SparkSession:
    """A session whose catalog has the tables of the cluster."""
    spark.conf.set(f"{CATALOG}.url", str(running.folder))
    return spark


@pytest.fixture
def fed(running: LocalCluster, name: str) -> Iterator[Table]:
    """An empty table with a feed."""
    yield running.create_table(
        name,
        "k bigint not null, s string, l array<int>",
        order_by="k",
        partition_by="bucket(2,k)",
        feed="1 day",
        wait_replicas=2,
    )
    running.drop_table(name)


def named(table: Table) -> str:
    return f"replitree.default.{table.name}"


def add(table: Table, *keys: int) -> None:
    table.insert({"k": list(keys), "s": [f"s{key}" for key in keys], "l": [[key, None] for key in keys]})


def counted(frame: DataFrame) -> Counter[str]:
    return Counter(repr(tuple(row)) for row in frame.collect())


def expected(table: Table, spark: SparkSession, first: int, last: int) -> Counter[str]:
    """Return the rows of a range, both ends of which are included."""
    with table.changes(first, last + 1) as changes:
        return counted(changes.to_df(spark))


@pytest.mark.system
@pytest.mark.parametrize("seed", [1, 2])
def test_changes_of_a_random_table_are_those_of_the_client(sql: SparkSession, fed: Table, seed: int) -> None:
    draw, there = random.Random(seed), named(fed)
    steps = (
        lambda: add(fed, *draw.sample(range(50), 9)),
        lambda: fed.update({"s": "concat(s, 'x')"}, f"k % 3 = {draw.randrange(3)}"),
        lambda: fed.delete(f"k % 5 = {draw.randrange(5)}"),
        lambda: fed.insert({"k": [60 + seed], "s": [None], "l": [None]}, overwrite="all"),
        lambda: fed.optimize(final=True),
    )
    add(fed, *range(20))
    for step in draw.choices(steps, weights=(4, 3, 3, 1, 1), k=8):
        step()
    fed.snapshot(level="linearizable").close()
    end = fed.history(limit=1)[0].index
    assert counted(sql.sql(f"SELECT * FROM {there} CHANGES FROM VERSION 0")) == expected(fed, sql, 0, end)
    first = draw.randrange(end)
    last = draw.randrange(first, end + 1)
    wanted = expected(fed, sql, first, last)
    clause = f"CHANGES FROM VERSION {first} TO VERSION {last}"
    assert counted(sql.sql(f"SELECT * FROM {there} {clause}")) == wanted
    reader = sql.read.option("startingVersion", first).option("endingVersion", last)
    assert counted(reader.changes(there)) == wanted
    if sql.version >= "4.3":
        assert counted(reader.option("readChangeFeed", "true").table(there)) == wanted


@pytest.mark.system
def test_a_query_of_changes_reads_what_it_needs(sql: SparkSession, fed: Table) -> None:
    add(fed, 1, 2, 3)
    fed.update({"s": "'x'"}, "k = 2")
    fed.delete("k = 3")
    there = named(fed)

    def rows(query: str) -> list[tuple[Any, ...]]:
        return sorted(tuple(row) for row in sql.sql(query).collect())

    assert rows(f"SELECT _commit_version, count(*) FROM {there} CHANGES FROM VERSION 0 GROUP BY 1") == [
        (0, 3),
        (1, 2),
        (2, 1),
    ]
    # A name of its own, conditions about the table's columns and about those of the feed, and both ends excluded.
    query = f"SELECT c.s FROM {there} CHANGES FROM VERSION 0 c WHERE c.k = 2 AND c._change_type <> 'insert'"
    assert rows(query) == [("s2",), ("x",)]
    (plan,) = sql.sql(f"EXPLAIN {query}").collect()[0]
    assert "`k` = 2" in plan.partition("condition:")[2]
    assert "_change_type" not in plan.partition("condition:")[2].partition("]")[0]
    assert rows(f"SELECT k FROM {there} CHANGES FROM VERSION 0 EXCLUSIVE TO VERSION 2 EXCLUSIVE") == [(2,), (2,)]
    (_, updated, first) = (entry.time for entry in fed.history(limit=3))
    assert updated is not None
    assert first is not None
    times = f"FROM TIMESTAMP '{first.isoformat()}' EXCLUSIVE TO TIMESTAMP '{updated.isoformat()}'"
    assert rows(f"SELECT k FROM {there} CHANGES {times}") == [(2,), (2,)]
    every = f"{there} CHANGES FROM VERSION 0"
    both = f"SELECT count(*) FROM {every} a JOIN {every} b USING (_commit_version)"
    assert rows(both) == [(9 + 4 + 1,)]


@pytest.mark.system
def test_what_can_not_be_read_is_said(sql: SparkSession, running: LocalCluster, fed: Table) -> None:
    add(fed, 1)
    there = named(fed)
    without = running.create_table(f"{fed.name}_0", "k bigint not null", order_by="k")
    without.insert({"k": [1]})
    reader = sql.read.option("startingVersion", 0)
    reads: list[tuple[Callable[[], DataFrame], str]] = [
        (lambda: sql.read.changes(there), "changes need startingVersion"),
        (lambda: sql.sql(f"SELECT * FROM {there}_x CHANGES FROM VERSION 0"), "TABLE_OR_VIEW_NOT_FOUND"),
        (lambda: sql.sql(f"SELECT * FROM {there}.history CHANGES FROM VERSION 0"), "TABLE_OR_VIEW_NOT_FOUND"),
        (lambda: sql.sql(f"SELECT * FROM {there}_0 CHANGES FROM VERSION 0"), "FeedOff"),
        (
            lambda: sql.sql(f"SELECT * FROM {there} VERSION AS OF 1 WITH (readChangeFeed = true, startingVersion = 0)"),
            "a version of a table",
        ),
        (lambda: reader.option("computeUpdates", "true").changes(there), "computeUpdates"),
        (lambda: reader.option("deduplicationMode", "netChanges").changes(there), "netChanges"),
    ]
    for read, message in reads:
        with pytest.raises(Exception, match=message):
            read().collect()
    if sql.version < "4.3":
        with pytest.raises(Exception, match="does not pass readChangeFeed to it"):
            sql.read.option("readChangeFeed", "true").option("startingVersion", 0).table(there).collect()
    running.drop_table(without.name)


@pytest.mark.system
def test_a_stream_of_changes_is_the_same_by_every_name(
    sql: SparkSession, running: LocalCluster, fed: Table, tmp_path: Path
) -> None:
    there, batches = named(fed), list[list[tuple[Any, ...]]]()

    def take(rows: DataFrame, number: int) -> None:
        del number
        batches.append(sorted(tuple(row) for row in rows.select("k", "_change_type", "_commit_version").collect()))

    def read(stream: DataFrame) -> list[list[tuple[Any, ...]]]:
        batches.clear()
        writer = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "checkpoint"))
        finished(writer.trigger(availableNow=True).start)
        return list(batches)

    reader = sql.readStream.option("startingVersion", 0).option("maxEntriesPerTrigger", 1)
    add(fed, 1, 2)
    assert read(reader.changes(there)) == [[(1, "insert", 0), (2, "insert", 0)]]
    fed.delete("k = 1")
    by_format = sql.readStream.format("replitree").option("url", str(running.folder)).option("readChangeFeed", "true")
    assert read(by_format.load(fed.name)) == [[(1, "delete", 1)]]
    fed.update({"s": "'x'"}, "k = 2")
    add(fed, 3)
    last = [[(2, "update_postimage", 2), (2, "update_preimage", 2)], [(3, "insert", 3)]]
    assert read(reader.changes(there)) == last
    add(fed, 4)
    assert read(sql.sql(f"SELECT * FROM STREAM {there} CHANGES FROM VERSION 0")) == [[(4, "insert", 4)]]
    if sql.version >= "4.3":
        add(fed, 5)
        assert read(reader.option("readChangeFeed", "true").table(there)) == [[(5, "insert", 5)]]
