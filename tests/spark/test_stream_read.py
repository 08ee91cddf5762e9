"""What Spark asks of a stream of a table, without Spark: replicas in this process, which keep old parts for the feed alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType
from typing_extensions import override

from replitree.client.connection import Connection
from replitree.client.read.feed import FeedPage
from replitree.client.table import Table
from replitree.client.transport.access import Access
from replitree.coordination.memory import MemoryCoordination
from replitree.errors import BadInput, SnapshotExpired
from replitree.spark.read import source_read
from replitree.spark.read.feed_read import FEED_FIELDS
from replitree.spark.session.types import spark_schema
from replitree.spark.source import ReplitreeSource, ReplitreeStreamReader
from replitree.spark.stream import stream_read
from replitree.spark.stream.admission import NotAppendOnly
from replitree.wire.feed_errors import FeedOff, OffsetExpired, SchemaChanged, TableReplaced
from tests.replica.fixtures import cluster_with_clock
from tests.replica.inprocess import TOKEN, InProcessCluster, wait_for

FEED = ["_change_type", "_commit_version", "_commit_timestamp"]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[InProcessCluster]:
    made = cluster_with_clock(tmp_path, old_parts_lifetime_s=0.0, lost_part_after_s=0.0)
    yield made
    made.close()


class Counted(MemoryCoordination):
    """A session that notes what it is asked."""

    asked: ClassVar[list[str]] = []

    @override
    def perform(self, effect: Any) -> Any:
        self.asked.append(type(effect).__name__)
        return super().perform(effect)


@pytest.fixture
def connect(cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[object], Connection]]:
    made = list[Connection]()

    def connect(_: object) -> Connection:
        made.append(Connection(Access("zk://nowhere:1/replitree", TOKEN), lambda: Counted(cluster.admin.shared)))
        return made[-1]

    for module in (stream_read, source_read):
        monkeypatch.setattr(module, "open_connection", connect)
    yield connect
    for each in made:
        each.close()


@pytest.fixture
def table(connect: Callable[[object], Connection]) -> Table:
    return create(connect)


def create(connect: Callable[[object], Connection], **options: Any) -> Table:
    return connect(None).create_table(
        "t", "k bigint not null, s string", **{"order_by": "k", "feed": "1 day", "wait_replicas": 2, **options}
    )


class Query:
    """A query as Spark runs it: `log` has the ends of its batches, and `committed` says how many of them are done."""

    def __init__(self, table: Table, **options: Any) -> None:
        self._table = table
        self.log: list[dict[str, Any]] = []
        self.committed = 0
        self.options: dict[str, Any] = options
        self.start()

    def start(self, *, available_now: bool = False, **options: Any) -> None:
        """Start it again, with a new process that reads the stream."""
        self.options |= options
        texts = {name: str(value).lower() for name, value in self.options.items()}
        source = ReplitreeSource({"table": "t", "pollWait": "1", "timeout": "5"} | texts)
        schema = spark_schema(self._table.refresh())
        if texts.get("readChangeFeed") == "true":
            schema = StructType([*schema.fields, *FEED_FIELDS.fields])
        self.reader: ReplitreeStreamReader = source.streamReader(schema)
        if available_now:
            self.reader.prepareForTriggerAvailableNow()

    @property
    def position(self) -> dict[str, Any]:
        """Where the next batch starts."""
        return self.log[self.committed - 1] if self.committed else self.reader.initialOffset()

    def plan(self) -> bool:
        """Write the next batch down, if there is one."""
        assert self.committed == len(self.log)
        # A replica that is behind would make this batch smaller, and another one of the rest.
        for replica in self._table.replicas():
            self._table.replica(replica.name).snapshot(level="linearizable")
        start = self.position
        end = json.loads(json.dumps(self.reader.latestOffset(start, self.reader.getDefaultReadLimit())))
        if end == start:
            return False
        self.log.append(end)
        return True

    def run(self) -> pa.Table:
        """Read the batch that is written down, and commit it."""
        found = self.read()
        self.committed += 1
        return found

    def read(self) -> pa.Table:
        """Read the batch that is written down."""
        partitions = self.reader.partitions(self.position, self.log[self.committed])
        batches = [batch for each in partitions for batch in self.reader.read(each)]
        return pa.Table.from_batches(batches) if batches else pa.table({"k": pa.array([], pa.int64())})

    def batch(self) -> pa.Table | None:
        """Run the next batch, if there is one."""
        return self.run() if self.plan() else None

    def keys(self) -> list[int] | None:
        """Run the next batch, if there is one, and return its keys."""
        found = self.batch()
        return None if found is None else sorted(found["k"].to_pylist())

    def all_keys(self) -> list[list[int]]:
        """Run all batches that there are; return the keys of each."""
        return list(iter(self.keys, None))


def add(table: Table, *keys: int) -> int:
    """Insert rows; return the index of their entry."""
    index = table.insert({"k": list(keys), "s": [f"s{key}" for key in keys]}).index
    assert index is not None
    return index


# --- where a query begins -------------------------------------------------------------------------------------------------


def test_the_table_comes_first_and_each_later_row_once(table: Table) -> None:
    add(table, 1, 2)
    add(table, 3)
    query = Query(table)
    assert query.keys() == [1, 2, 3]
    add(table, 4)
    add(table, 5)
    assert query.keys() == [4, 5]
    assert query.keys() is None
    query.start()
    assert query.keys() is None


@pytest.mark.parametrize(
    ("where", "expected"), [("earliest", [1, 2]), ("latest", []), ("1", [2]), ("marked", [2]), ("snapshot", [1, 2])]
)
def test_a_query_begins_where_its_options_say_and_batch_0_keeps_that(
    table: Table, where: str, expected: list[int]
) -> None:
    add(table, 1)
    table.tag("marked")
    add(table, 2)
    query = Query(table, startingVersion=where)
    assert query.plan()
    # The driver dies; what comes then is none of batch 0, whatever the options say now.
    add(table, 3)
    query.start(startingVersion="earliest" if where == "latest" else "latest")
    assert sorted(query.run()["k"].to_pylist()) == expected
    assert query.all_keys() == [[3]]


def test_the_first_offset_says_no_index(table: Table) -> None:
    before = Query(table, startingVersion="latest").reader.initialOffset()
    add(table, 1)
    assert Query(table, startingVersion="latest").reader.initialOffset() == before == {"v": 1, "start": "latest"}


def test_a_time_includes_what_was_written_at_that_time(cluster: InProcessCluster, table: Table) -> None:
    add(table, 1)
    cluster.shared.now_ms += 5_000
    add(table, 2)
    written = table.history(limit=1)[0].time
    assert written is not None
    cluster.shared.now_ms += 5_000
    assert Query(table, startingTimestamp=written.isoformat()).all_keys() == [[2]]


def test_an_index_above_the_end_is_refused(table: Table) -> None:
    add(table, 1)
    with pytest.raises(BadInput, match="startingVersion=7 is above the end of the log of table t, which is at 1"):
        Query(table, startingVersion=7).plan()


def test_a_query_of_an_empty_table_begins_by_an_empty_batch(table: Table) -> None:
    query = Query(table)
    assert query.all_keys() == [[]]
    add(table, 1)
    query.start()
    assert query.all_keys() == [[1]]


def test_a_first_batch_that_is_not_kept_any_more_is_an_error(cluster: InProcessCluster, table: Table) -> None:
    add(table, 1)
    add(table, 2)
    table.optimize(final=True)
    query = Query(table)
    query.plan()
    add(table, 3)
    table.optimize(final=True)
    cluster.wait_alike()
    wait_for(lambda: all(node.get("status")["old_parts"] == 3 for node in cluster.nodes), "the merged part is deleted")
    with pytest.raises(SnapshotExpired, match="begin with a new checkpoint"):
        query.read()


# --- what it reads --------------------------------------------------------------------------------------------------------


def test_merges_make_no_batch_and_are_passed(
    cluster: InProcessCluster, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(table, 1)
    query = Query(table)
    assert query.keys() == [1]
    add(table, 2)
    assert query.keys() == [2]
    position = query.position
    table.optimize(final=True)
    cluster.wait_alike()
    assert query.keys() is None
    # The position must not fall behind what the feed keeps, so an empty batch goes past the merge now and then.
    monkeypatch.setattr(stream_read, "MOVE_S", 0.0)
    assert query.keys() == []
    assert query.position["i"] > position["i"]
    add(table, 3)
    assert query.all_keys() == [[3]]


def test_a_backlog_is_asked_for_once(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, ask = list[int](), Table.feed_page

    def feed_page(self: Table, start: int, end: int, **options: Any) -> FeedPage:
        asked.append(start)
        return ask(self, start, end, **options)

    monkeypatch.setattr(Table, "feed_page", feed_page)
    for key in range(4):
        add(table, key)
    query = Query(table, startingVersion="earliest", maxEntriesPerTrigger=1)
    assert query.all_keys() == [[0], [1], [2], [3]]
    assert asked == [0]
    add(table, 4)
    assert query.all_keys() == [[4]]
    assert asked == [0, 4]


def test_open_inserts_come_when_they_are_settled(cluster: InProcessCluster, table: Table) -> None:
    query = Query(table, startingVersion="earliest")
    table.insert({"k": [1], "s": ["a"]}, quorum=2)
    add(table, 2)
    assert [key for keys in query.all_keys() for key in keys] == [1, 2]


@pytest.mark.parametrize(
    ("change", "passes"),
    [
        (lambda table: table.delete("k = 2"), {"skipChangeCommits", "ignoreDeletes"}),
        (lambda table: table.truncate(), {"skipChangeCommits", "ignoreDeletes"}),
        (lambda table: table.update({"s": "'x'"}, "k = 2"), {"skipChangeCommits"}),
        (lambda table: table.insert({"k": [7], "s": ["a"]}, overwrite="all"), {"skipChangeCommits"}),
    ],
)
def test_a_stream_of_appended_rows_stops_before_a_change(
    table: Table, change: Callable[[Table], Any], passes: set[str]
) -> None:
    add(table, 1, 2)
    index = change(table).index
    add(table, 3)
    query = Query(table, startingVersion=0)
    assert query.keys() == [1, 2]
    for _ in range(2):
        with pytest.raises(NotAppendOnly, match=f"entry {index} of table t .* skipChangeCommits=true") as caught:
            query.plan()
        assert caught.value.index == index
        assert ("ignoreDeletes=true" in str(caught.value)) is ("ignoreDeletes" in passes)
    for option in ("ignoreDeletes", "skipChangeCommits"):
        query.start(**{option: True})
        if option in passes:
            assert query.all_keys() == [[3]]
            return
        with pytest.raises(NotAppendOnly):
            query.plan()


def test_a_mutation_that_matches_no_row_changes_nothing(table: Table) -> None:
    add(table, 1)
    table.delete("k = 9")
    add(table, 2)
    assert Query(table, startingVersion=0).all_keys() == [[1, 2]]


def test_the_feed_has_all_changes_and_the_snapshot_before_them(table: Table) -> None:
    add(table, 1, 2)
    query = Query(table, readChangeFeed=True)
    first = query.batch()
    assert first is not None
    add(table, 3)
    table.update({"s": "'x'"}, "k = 1")
    table.delete("k = 2")
    then = query.batch()
    assert then is not None
    with table.changes(1) as changes:
        assert sorted(then.to_pylist(), key=str) == sorted(changes.to_arrow().to_pylist(), key=str)
    assert first.column_names == ["k", "s", *FEED] == then.column_names
    assert set(first["_change_type"].to_pylist()) == {"insert"}
    assert set(first["_commit_version"].to_pylist()) == {0}
    # Spark drops rows of a later batch that are not younger than those of an earlier one.
    assert max(first["_commit_timestamp"].to_pylist()) < min(then["_commit_timestamp"].to_pylist())


def test_a_condition_and_columns_are_pushed_into_the_tasks(table: Table) -> None:
    add(table, 1, 2)
    query = Query(table, where="k <> 2 and k <> 4")
    assert query.keys() == [1]
    add(table, 3, 4)
    assert query.keys() == [3]


# --- how much a batch has -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", ["maxPartsPerTrigger", "maxFilesPerTrigger", "maxEntriesPerTrigger"])
def test_entries_are_never_split_and_limits_are_kept(table: Table, limit: str) -> None:
    for key in range(5):
        add(table, key)
    query = Query(table, startingVersion=0, **{limit: 2})
    assert query.all_keys() == [[0, 1], [2, 3], [4]]


def test_rows_and_bytes_are_limits_and_a_larger_entry_comes_alone(table: Table) -> None:
    for first, count in ((0, 1), (10, 4), (20, 2), (30, 1)):
        add(table, *range(first, first + count))
    expected = [[0], [10, 11, 12, 13], [20, 21, 30]]
    assert Query(table, startingVersion=0, maxRowsPerTrigger=3).all_keys() == expected
    assert Query(table, startingVersion=0, maxBytesPerTrigger="1b").all_keys() == [
        [0],
        [10, 11, 12, 13],
        [20, 21],
        [30],
    ]
    query = Query(table, startingVersion=0, maxRowsPerTrigger=3)
    assert query.reader.latestOffset(query.position, ReadAllAvailable())["i"] == 4


def test_a_query_with_available_now_ends_on_a_busy_table(table: Table) -> None:
    for key in range(3):
        add(table, key)
    query = Query(table, startingVersion=0, maxEntriesPerTrigger=1)
    query.start(available_now=True)
    seen = list[list[int]]()
    while (keys := query.keys()) is not None:
        seen.append(keys)
        add(table, 10 + len(seen))
    assert seen == [[0], [1], [2]]
    query.start(available_now=True)
    assert query.all_keys() == [[11], [12], [13]]


def test_a_query_with_available_now_passes_merges_once_and_ends(cluster: InProcessCluster, table: Table) -> None:
    add(table, 0)
    add(table, 1)
    query = Query(table)
    query.start(available_now=True)
    assert query.all_keys() == [[0, 1]]
    table.optimize(final=True)
    cluster.wait_alike()
    query.start(available_now=True)
    assert query.all_keys() == [[]]
    query.start(available_now=True)
    assert query.all_keys() == []


# --- what is wrong --------------------------------------------------------------------------------------------------------


def test_a_table_of_the_same_name_is_refused(cluster: InProcessCluster, connect: Any, table: Table) -> None:
    add(table, 1)
    planned, done = Query(table), Query(table)
    planned.plan()
    done.keys()
    connection = connect(None)
    connection.drop_table("t")
    wait_for(lambda: not any(cluster.is_active(node) for node in cluster.nodes), "the table is gone")
    other = create(connect)
    for key in range(5):
        add(other, key)
    planned.start()
    with pytest.raises(TableReplaced, match="Begin with a new checkpoint"):
        planned.read()
    for available_now in (False, True):
        done.start(available_now=available_now)
        with pytest.raises(TableReplaced, match="the checkpoint belongs to another table"):
            done.plan()


def test_offsets_that_go_backwards_are_refused(table: Table) -> None:
    for key in range(3):
        add(table, key)
    query = Query(table)
    query.keys()
    end = query.position
    ahead, behind = end | {"i": 9}, end | {"i": 1}
    with pytest.raises(BadInput, match=r"the checkpoint goes backwards: its batch begins at 3 .* and ends at 1"):
        query.reader.partitions(end, behind)
    for available_now in (False, True):
        query.start(available_now=available_now)
        with pytest.raises(BadInput, match="the stream stands at 9, and the log of table t ends at 3"):
            query.reader.latestOffset(ahead, query.reader.getDefaultReadLimit())
    with pytest.raises(BadInput, match="not one of this version"):
        query.reader.latestOffset({"v": 2, "i": 1}, query.reader.getDefaultReadLimit())


def test_a_pause_longer_than_the_feed_is_an_error_or_is_jumped_over(cluster: InProcessCluster, table: Table) -> None:
    add(table, 1)
    # Tasks leave their leases to run out.
    query = Query(table, lease=1)
    query.keys()
    add(table, 2)
    add(table, 3)
    planned = Query(table, startingVersion=1)
    planned.plan()
    table.set_feed(None)
    table.optimize(final=True)
    cluster.wait_alike()
    wait_for(lambda: all(node.get("status")["old_parts"] == 0 for node in cluster.nodes), "old parts are deleted")
    with pytest.raises(FeedOff, match="set_feed"):
        query.plan()
    table.set_feed("1 day")
    add(table, 4)
    query.start()
    with pytest.raises(OffsetExpired, match=r"the stream stands at 1 .* Start anew with a new checkpoint") as caught:
        query.plan()
    assert caught.value.index > 1
    planned.start()
    with pytest.raises(OffsetExpired, match="failOnDataLoss=false"):
        planned.read()
    query.start(failOnDataLoss=False)
    assert query.plan()
    # The place is in the end of the batch, so that a repetition begins there, too.
    assert query.log[-1]["f"] == caught.value.index
    query.start(failOnDataLoss=True)
    assert query.run()["k"].to_pylist() == [4]
    planned.start(failOnDataLoss=False)
    assert planned.run().num_rows == 0


def test_columns_that_come_are_shown_after_a_start_and_those_that_go_end_the_query(table: Table) -> None:
    add(table, 1)
    query = Query(table)
    query.keys()
    table.alter("ADD COLUMN w int DEFAULT 7")
    table.insert({"k": [2], "s": ["a"], "w": [8]})
    found = query.batch()
    assert found is not None
    assert found.to_pylist() == [{"k": 2, "s": "a"}]
    query.start()
    table.insert({"k": [3], "s": ["a"], "w": [9]})
    table.alter("DROP COLUMN s")
    assert query.plan()
    with pytest.raises(SchemaChanged, match="Start the query again with the same checkpoint"):
        query.run()
    query.start()
    assert query.run().to_pylist() == [{"k": 3, "w": 9}]


def test_an_idle_stream_asks_a_replica_and_not_coordination(table: Table) -> None:
    add(table, 1)
    query = Query(table)
    query.keys()
    limit = query.reader.getDefaultReadLimit()
    query.reader.latestOffset(query.position, limit)
    Counted.asked.clear()
    for _ in range(5):
        assert query.reader.latestOffset(query.position, limit) == query.position
    assert Counted.asked == []
