"""Tables as sources of streams: each row once, from a place that the checkpoint keeps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from replitree.client.cluster import LocalCluster
from replitree.client.table import Table
from replitree.spark.session.catalog import CATALOG
from tests.spark.stream_queries import finished, run_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

pytestmark = pytest.mark.system


@pytest.fixture
def fed(running: LocalCluster, name: str) -> Iterator[Table]:
    """An empty table with a feed."""
    yield running.create_table(name, "k bigint not null, s string", order_by="k", feed="1 day", wait_replicas=2)
    running.drop_table(name)


class Reader:
    """A query that collects the rows of each of its batches, and its checkpoint."""

    def __init__(self, spark: SparkSession, running: LocalCluster, table: Table, checkpoint: Path) -> None:
        self._spark, self._url, self._table, self.checkpoint = spark, str(running.folder), table.name, checkpoint
        self.batches: list[list[Any]] = []

    def stream(self, **options: Any) -> DataFrame:
        """The table as a stream."""
        reader = self._spark.readStream.format("replitree").option("url", self._url).option("table", self._table)
        return reader.options(**options).load()

    def named(self, **options: Any) -> DataFrame:
        """The table as a stream, named by the catalog."""
        self._spark.conf.set(f"{CATALOG}.url", self._url)
        return self._spark.readStream.options(**options).table(f"replitree.default.{self._table}")

    def run(self, writer: DataStreamWriter) -> None:
        """Read what is there."""
        finished(writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True).start)

    def read(self, stream: DataFrame | None = None, **options: Any) -> list[list[Any]]:
        """Read what is there, by default by the format; return the rows of each batch."""
        first = len(self.batches)
        self.run((self.stream(**options) if stream is None else stream).writeStream.foreachBatch(self.take))
        return self.batches[first:]

    def take(self, rows: DataFrame, number: int) -> None:
        """Keep the rows of a batch."""
        del number
        self.batches.append(sorted(tuple(row) for row in rows.collect()))

    def fail(self, rows: DataFrame, number: int) -> None:
        """Keep the rows of a batch, and fail."""
        self.take(rows, number)
        raise RuntimeError("as the test wants")


@pytest.fixture
def reader(spark: SparkSession, running: LocalCluster, fed: Table, tmp_path: Path) -> Reader:
    return Reader(spark, running, fed, tmp_path / "checkpoint")


def add(table: Table, *keys: int) -> int:
    """Insert rows; return the index of their entry."""
    index = table.insert({"k": list(keys), "s": [f"s{key}" for key in keys]}).index
    assert index is not None
    return index


def rows(*keys: int) -> list[tuple[int, str]]:
    return [(key, f"s{key}") for key in keys]


def test_first_the_table_and_then_what_comes(reader: Reader, fed: Table) -> None:
    add(fed, 1, 2)
    fed.update({"s": "'x'"}, "k = 1")
    assert reader.read() == [[(1, "x"), (2, "s2")]]
    add(fed, 3)
    fed.optimize(final=True)
    add(fed, 4)
    assert reader.read() == [rows(3, 4)]
    assert reader.read() == []


def test_batches_of_a_running_query_have_all_changes_once(reader: Reader, fed: Table) -> None:
    stream = reader.stream(startingVersion="earliest", readChangeFeed="true", maxRowsPerTrigger=4, pollWait=20)
    collected = stream.drop("_commit_timestamp").writeStream.foreachBatch(reader.take)
    keys = iter(range(0, 12, 3))

    def look() -> bool:
        first = next(keys, None)
        if first is not None:
            add(fed, first, first + 1, first + 2)
        elif fed.history(limit=1)[0].kind != "mutate":
            fed.delete("k = 4")
        return sum(map(len, reader.batches)) >= 13

    run_until(collected.option("checkpointLocation", str(reader.checkpoint)).start, look)
    with fed.changes(0) as changes:
        expected = sorted(tuple(row.values())[:-1] for row in changes.to_arrow().to_pylist())
    assert sorted(row for batch in reader.batches for row in batch) == expected
    assert all(len(batch) <= 4 for batch in reader.batches)


def test_a_batch_that_fails_is_read_again_with_the_same_rows(reader: Reader, fed: Table) -> None:
    add(fed, 1, 2)
    with pytest.raises(Exception, match="as the test wants"):
        reader.run(reader.stream().writeStream.foreachBatch(reader.fail))
    add(fed, 3)
    # The options have changed, and batch 0 has not.
    assert reader.read(startingVersion="latest") == [rows(1, 2), rows(3)]
    assert reader.batches[0] == rows(1, 2)


def test_a_stream_with_a_consumer_goes_on_from_its_checkpoint_when_the_feed_is_off(reader: Reader, fed: Table) -> None:
    add(fed, 1, 2)
    assert reader.read(consumer="etl") == [rows(1, 2)]
    assert reader.read(consumer="etl") == []
    (stands,) = fed.consumers()
    assert (stands.name, stands.snapshot, stands.expired) == ("etl", None, "")
    index = add(fed, 3)
    fed.set_feed(None)
    # By the catalog it is the same stream, and the consumer holds what the feed does not.
    assert reader.read(reader.named(consumer="etl")) == [rows(3)]
    fed.set_feed("1 day")
    # The end of the batch is told to the consumer at the next start.
    reader.read(consumer="etl")
    assert fed.consumers()[0].index > index


def test_two_uses_of_a_stream_in_a_query_read_the_same(reader: Reader, fed: Table) -> None:
    add(fed, 1, 2, 3)
    stream = reader.stream()
    both = stream.where("k > 1").union(stream.where("k < 3"))
    reader.run(both.writeStream.foreachBatch(reader.take))
    assert reader.batches == [sorted([*rows(2, 3), *rows(1, 2)])]


def test_errors_of_a_stream_reach_the_program(reader: Reader, fed: Table) -> None:
    add(fed, 1)
    fed.delete("k = 1")
    with pytest.raises(Exception, match="skipChangeCommits=true"):
        reader.read(startingVersion=0)
    with pytest.raises(Exception, match="can't be a consumer's name"):
        reader.read(consumer="7")


def test_every_option_of_a_stream_works_where_batches_are_read_by_spark(reader: Reader, fed: Table) -> None:
    add(fed, 1)
    # With these alone the catalog's jar reads batches by Spark's own scan.
    for options, expected in (({"columns": "k"}, [(1,)]), ({"final": "true", "timeout": "60"}, rows(1))):
        reader.checkpoint = reader.checkpoint.with_name("_".join(options))
        assert reader.read(reader.stream(**options)) == [expected]


def test_a_table_that_the_catalog_names_is_the_same_stream(reader: Reader, fed: Table) -> None:
    add(fed, 1, 2)
    assert reader.read() == [rows(1, 2)]
    add(fed, 3)
    with pytest.raises(Exception, match="as the test wants"):
        reader.run(reader.named().writeStream.foreachBatch(reader.fail))
    add(fed, 4)
    add(fed, 5)
    # The batch that failed comes again as it was; then what came since, as the options say.
    assert reader.read(reader.named(maxEntriesPerTrigger=1)) == [rows(3), rows(4), rows(5)]
    add(fed, 6)
    assert reader.read(maxEntriesPerTrigger=1) == [rows(6)]
    assert reader.read(reader.named()) == []


def test_a_stream_from_one_table_of_the_catalog_to_another_has_each_row_once(
    spark: SparkSession, running: LocalCluster, reader: Reader, fed: Table
) -> None:
    target = running.create_table(f"{fed.name}_2", "k bigint not null, s string", order_by="k", wait_replicas=2)
    for key in range(3):
        add(fed, key)
        stream = reader.named(startingVersion="earliest").where("k <> 1")
        writer = stream.writeStream.option("checkpointLocation", str(reader.checkpoint)).trigger(availableNow=True)
        finished(lambda writer=writer: writer.toTable(f"replitree.default.{target.name}"))  # type: ignore[misc]
    assert sorted(map(tuple, spark.table(f"replitree.default.{target.name}").collect())) == rows(0, 2)
    running.drop_table(target.name)


def test_a_final_stream_of_the_catalog_begins_with_rows_as_its_policy_merges_them(
    running: LocalCluster, reader: Reader, fed: Table
) -> None:
    running.drop_table(fed.name)
    table = running.create_table(
        fed.name, "k bigint not null, s string", order_by="k", feed="1 day", policy="replacing", wait_replicas=2
    )
    table.insert({"k": [1], "s": ["a"]})
    table.insert({"k": [1], "s": ["b"]})
    assert reader.read(reader.named(final="true")) == [[(1, "b")]]


def test_what_a_stream_of_the_catalog_can_not_do_it_says(running: LocalCluster, reader: Reader, fed: Table) -> None:
    add(fed, 1)
    for options, message in {
        ("asOf", "1"): "startingVersion says where it begins",
        ("level", "sequential"): "begins with a linearizable snapshot",
        ("columns", "k"): "has all its columns, so name it by format",
        ("endingVersion", "1"): "availableNow",
        ("maxFiles", "1"): "did you mean",
    }.items():
        with pytest.raises(Exception, match=message):
            reader.read(reader.named(**dict([options])))
    assert reader.read(reader.named()) == [rows(1)]
    running.drop_table(fed.name)
    running.create_table(fed.name, "k bigint not null, s string", order_by="k", feed="1 day", wait_replicas=2)
    with pytest.raises(Exception, match="the checkpoint belongs to another table"):
        reader.read(reader.named())
