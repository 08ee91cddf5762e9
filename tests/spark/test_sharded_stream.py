"""What Spark asks of a stream of a sharded table, without Spark: replicas in this process keep old parts for the feed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from replitree.client.connection import Connection
from replitree.client.sharded.moving import resharding
from replitree.client.sharded.moving.moves import MoveCarrier
from replitree.client.sharded.sharded_table import ShardedTable
from replitree.client.transport.access import Access
from replitree.coordination.memory import MemoryCoordination
from replitree.errors import BadInput
from replitree.protocol.sharded.moves.carry import MoverEnd
from replitree.spark.read import source_read
from replitree.spark.read.feed_read import FEED_FIELDS
from replitree.spark.session.types import spark_schema
from replitree.spark.source import ReplitreeSource, ReplitreeStreamReader
from replitree.spark.stream import stream_read
from replitree.spark.stream.admission import NotAppendOnly
from replitree.wire.feed_errors import FeedGap, OffsetExpired, SchemaChanged, TableReplaced
from tests.client.lost_entries import lose_second_entry
from tests.replica.fixtures import cluster_with_clock
from tests.replica.inprocess import TOKEN
from tests.waiting import wait_for


@pytest.fixture
def connect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[object], Connection]]:
    cluster, made = cluster_with_clock(tmp_path, old_parts_lifetime_s=0.0), list[Connection]()

    def connect(_: object) -> Connection:
        made.append(Connection(Access("zk://nowhere:1/replitree", TOKEN), lambda: MemoryCoordination(cluster.shared)))
        return made[-1]

    for module in (stream_read, source_read):
        monkeypatch.setattr(module, "open_connection", connect)
    yield connect
    for each in made:
        each.close()
    cluster.close()


@pytest.fixture
def table(connect: Callable[[object], Connection]) -> ShardedTable:
    return create(connect)


def create(connect: Callable[[object], Connection], **options: Any) -> ShardedTable:
    wanted = {"order_by": "k", "feed": "1 day", "shard_by": "k", "shards": 2, "buckets": 8, **options}
    made = connect(None).create_table("d", "k bigint not null, s string", **wanted)
    assert isinstance(made, ShardedTable)
    return made


def add(table: ShardedTable, first: int, count: int = 10) -> None:
    table.insert({"k": keys(first, count), "s": ["a"] * count})


def keys(first: int, count: int = 10) -> list[int]:
    return list(range(first, first + count))


class Query:
    """A query with the trigger `availableNow`, as Spark runs it again and again: `log` has the ends of its batches."""

    def __init__(self, table: ShardedTable, **options: Any) -> None:
        self._table, self.options = table, options
        self.log: list[dict[str, Any]] = []
        self.committed = 0

    def start(self, **options: Any) -> ReplitreeStreamReader:
        """Start it again, with a new process that reads the stream."""
        self.options |= options
        texts = {name: str(value).lower() for name, value in self.options.items()}
        schema = spark_schema(self._table.refresh())
        if texts.get("readChangeFeed") == "true":
            schema = StructType([*schema.fields, *FEED_FIELDS.fields])
        return ReplitreeSource({"table": "d", "pollWait": "1", "timeout": "10"} | texts).streamReader(schema)

    def position(self, reader: ReplitreeStreamReader) -> dict[str, Any]:
        """Where the next batch starts."""
        return self.log[self.committed - 1] if self.committed else reader.initialOffset()

    def plan(self, reader: ReplitreeStreamReader) -> bool:
        """Write the next batch down, if there is one."""
        start = self.position(reader)
        end = json.loads(json.dumps(reader.latestOffset(start, reader.getDefaultReadLimit())))
        if end == start:
            return False
        self.log.append(end)
        return True

    def read(self, reader: ReplitreeStreamReader) -> pa.Table:
        """Read the batch that is written down."""
        partitions = reader.partitions(self.position(reader), self.log[self.committed])
        batches = [batch for each in partitions for batch in reader.read(each)]
        return pa.Table.from_batches(batches) if batches else pa.table({"k": pa.array([], pa.int64())})

    def run(self, **options: Any) -> list[pa.Table]:
        """Run all batches up to now; return what each has read."""
        reader, found = self.start(**options), list[pa.Table]()
        reader.prepareForTriggerAvailableNow()
        while self.plan(reader):
            found.append(self.read(reader))
            self.committed += 1
        reader.stop()
        return found

    def shown(self, **options: Any) -> list[list[int]]:
        """Run all batches up to now; return the keys of each."""
        return [sorted(each["k"].to_pylist()) for each in self.run(**options)]


def test_the_table_comes_first_and_each_later_row_once(table: ShardedTable) -> None:
    add(table, 0)
    add(table, 10)
    query = Query(table)
    assert query.shown() == [keys(0, 20)]
    add(table, 20)
    add(table, 30)
    assert query.shown() == [keys(20, 20)]
    assert query.shown() == []


def test_a_query_begins_where_its_options_say_and_batch_0_keeps_that(table: ShardedTable) -> None:
    add(table, 0)
    at = table.cut_now("linearizable")
    add(table, 10)
    expected = {"earliest": keys(0, 20), "latest": [], at: keys(10), "snapshot": keys(0, 20)}
    queries = []
    for where in expected:
        query = Query(table, startingVersion=where)
        reader = query.start()
        assert query.plan(reader)
        reader.stop()
        queries.append(query)
    # The drivers die; what comes then is none of batch 0, whatever the options say now.
    add(table, 20)
    for query, wanted in zip(queries, expected.values(), strict=True):
        reader = query.start(startingVersion="earliest")
        assert sorted(query.read(reader)["k"].to_pylist()) == wanted
        query.committed = 1
        reader.stop()
        assert query.shown() == [keys(20)]
    with pytest.raises(BadInput, match="no index over all shards"):
        Query(table, startingVersion="7").run()
    with pytest.raises(BadInput, match="is later than"):
        Query(table, startingVersion=f"{at.partition('@')[0]}@{1 << 60}").run()


def test_a_transaction_is_never_split_by_limits(table: ShardedTable) -> None:
    query = Query(table, startingVersion="latest", maxEntriesPerTrigger=2)
    query.shown()
    for first in range(0, 50, 10):
        add(table, first)
    assert query.shown() == [keys(0, 20), keys(20, 20), keys(40)]


def test_rows_that_move_are_in_no_batch(table: ShardedTable, connect: Callable[[object], Connection]) -> None:
    add(table, 0, 40)
    query, feed = Query(table), Query(table, readChangeFeed="true", startingVersion="latest")
    assert query.shown() == [keys(0, 40)]
    feed.run()
    connection = connect(None)
    resharding.add_shard(connection.catalog, "d", weight=2)
    carrier, done = MoveCarrier(connection.catalog, table.http, "d"), object()
    steps, came = carrier.steps(), list[int]()
    for first in range(40, 70, 10):
        add(table, first)
        for _ in range(9):
            next(steps, done)
        came += [key for batch in query.shown() for key in batch]
    steps.close()
    assert carrier.run() is MoverEnd.DONE
    table.refresh()
    table.update({"s": "'b'"}, "k = 41")
    with pytest.raises(NotAppendOnly, match="changes or replaces"):
        query.run()
    came += [key for batch in query.shown(skipChangeCommits="true") for key in batch]
    assert sorted(came) == keys(40, 30)
    fed = pa.concat_tables(each for each in feed.run() if each.num_rows)
    assert Counter(fed["_change_type"].to_pylist()) == {"insert": 30, "update_preimage": 1, "update_postimage": 1}
    assert len(set(fed["_commit_version"].to_pylist())) == 4


def test_a_running_query_sees_what_comes(table: ShardedTable) -> None:
    query = Query(table, startingVersion="latest")
    reader = query.start()
    assert query.plan(reader)
    query.committed = 1
    assert not query.plan(reader)
    add(table, 0)
    wait_for(lambda: query.plan(reader), "a batch is there")
    assert sorted(query.read(reader)["k"].to_pylist()) == keys(0)
    assert reader.reportLatestOffset() is not None
    reader.stop()


def test_the_rows_of_the_first_batch_are_inserts_before_all_others(table: ShardedTable) -> None:
    add(table, 0)
    query = Query(table, readChangeFeed="true")
    (first,) = query.run()
    add(table, 10)
    (second,) = query.run()
    assert set(first["_change_type"].to_pylist()) == {"insert"}
    assert max(first["_commit_version"].to_pylist()) < min(second["_commit_version"].to_pylist())
    assert max(first["_commit_timestamp"].to_pylist()) <= min(second["_commit_timestamp"].to_pylist())


def test_what_a_stream_can_not_go_on_with_is_an_error(
    table: ShardedTable, connect: Callable[[object], Connection]
) -> None:
    add(table, 0)
    query = Query(table, skipChangeCommits="true")
    query.run()
    old = query.start()
    table.drop_column("s")
    table.refresh()
    table.insert({"k": keys(30)})
    # Up to now: a replica that has not fetched the insert would let a batch without rows go past the dropped column.
    old.prepareForTriggerAvailableNow()
    assert query.plan(old)
    with pytest.raises(SchemaChanged, match="same checkpoint"):
        query.read(old)
    # It goes on with the present columns.
    reader = query.start()
    assert sorted(query.read(reader)["k"].to_pylist()) == keys(30)
    query.committed += 1
    connect(None).drop_table("d")
    create(connect)
    with pytest.raises(TableReplaced, match="new checkpoint"):
        query.run()


def test_what_is_not_kept_is_an_error_or_is_skipped(connect: Callable[[object], Connection]) -> None:
    table = create(connect, feed=None)
    at = table.cut_now("linearizable")
    add(table, 0)
    table.set_feed("1 day")
    add(table, 10)
    query = Query(table, startingVersion=at)
    with pytest.raises(OffsetExpired, match="failOnDataLoss=false"):
        query.run()
    assert query.shown(failOnDataLoss="false") == [keys(10)]


def test_a_consumer_follows_the_query_and_holds_what_it_has_not_read(table: ShardedTable) -> None:
    add(table, 0)
    query = Query(table, consumer="etl")
    assert query.shown() == [keys(0)]
    add(table, 10)
    assert query.shown() == [keys(10)]
    # It is moved once a second at most: the next start moves it past what the last one has finished.
    assert query.shown() == []
    (found,) = table.consumers()
    assert (found.cut, found.snapshot) == (query.log[-1]["z"], None)


def test_a_query_begins_where_its_consumer_stands(table: ShardedTable) -> None:
    add(table, 0)
    table.create_consumer("etl")
    add(table, 10)
    assert Query(table, consumer="etl", startingVersion="earliest").shown() == [keys(10)]


def test_a_checkpoint_that_is_behind_its_consumer_is_refused(table: ShardedTable) -> None:
    query = Query(table, consumer="etl", startingVersion="latest")
    assert query.shown() == [[]]
    add(table, 0)
    table.move_consumer("etl", table.cut_now("linearizable"))
    with pytest.raises(BadInput, match="another query has moved it"):
        query.shown()
    table.drop_consumer("etl")
    assert query.shown() == [keys(0)]
    assert table.consumers()[0].name == "etl"


def test_a_stream_goes_on_behind_a_gap_when_it_may(table: ShardedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query(table, startingVersion="latest")
    assert query.shown() == [[]]
    for first in (0, 20, 40):
        add(table, first)
    lose_second_entry(monkeypatch)
    # Up to there everything can be read.
    reader = query.start()
    reader.prepareForTriggerAvailableNow()
    assert query.plan(reader)
    assert sorted(query.read(reader)["k"].to_pylist()) == keys(0)
    query.committed += 1
    with pytest.raises(FeedGap, match=r"go on behind transaction .* failOnDataLoss=false"):
        query.run()
    assert query.shown(failOnDataLoss="false") == [keys(40)]


def test_a_batch_that_was_planned_before_a_loss_has_what_can_be_read(
    table: ShardedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(table, startingVersion="latest")
    assert query.shown() == [[]]
    for first in (0, 20, 40):
        add(table, first)
    reader = query.start()
    reader.prepareForTriggerAvailableNow()
    assert query.plan(reader)
    lose_second_entry(monkeypatch)
    with pytest.raises(FeedGap, match="failOnDataLoss=false"):
        query.read(reader)
    assert sorted(query.read(query.start(failOnDataLoss="false"))["k"].to_pylist()) == [*keys(0), *keys(40)]


def test_a_stream_with_a_condition_on_the_shard_key_reads_one_shard(table: ShardedTable) -> None:
    query = Query(table, where="k = 25", startingVersion="latest")
    assert query.shown() == [[]]
    add(table, 0)
    add(table, 20)
    assert query.shown() == [[25]]
    add(table, 40)
    assert [each for each in query.shown() if each] == []
