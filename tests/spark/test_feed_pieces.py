"""Large entries of the change feed are cut into pieces, each read by a task of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructType

from replitree.client.connection import Connection
from replitree.client.table import Table
from replitree.client.transport.access import Access
from replitree.coordination.memory import MemoryCoordination
from replitree.spark.read import feed_read
from replitree.spark.read.feed_read import FEED_FIELDS, FeedPlan, feed_partitions, read_feed
from tests.replica.inprocess import TOKEN, InProcessCluster

KEYS = 1_000


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Table]:
    monkeypatch.setattr(feed_read, "PIECE_ROWS_MIN", 250)
    cluster = InProcessCluster(tmp_path)
    shared = cluster.admin.shared
    with Connection(Access("zk://nowhere:1/replitree", TOKEN), lambda: MemoryCoordination(shared)) as connection:
        settings = {"row_group_rows": 100}
        yield connection.create_table("t", "k bigint not null", order_by="k", settings=settings, feed="1 day")
    cluster.close()


def read(table: Table, tasks: int) -> list[list[tuple[int, int]]]:
    """Read the feed by so many tasks at most; return the key and the entry of each row, by task."""
    schema = StructType([*StructType().add("k", LongType()).fields, *FEED_FIELDS.fields])
    with table.changes(0) as changes:
        units = [page.body.units for page in changes.pages]
        made = feed_partitions(FeedPlan({"table": "t"}, schema, ("k",)), changes, units, tasks)
    found = [pa.Table.from_batches(read_feed(each)) for each in made]
    return [list(zip(rows["k"].to_pylist(), rows["_commit_version"].to_pylist(), strict=True)) for rows in found]


@pytest.mark.parametrize(
    ("tasks", "sizes"), [(1, [1_001]), (3, [1, 1_000]), (4, [1, 500, 500]), (20, [1, 200, 200, 300, 300])]
)
def test_a_large_entry_is_read_by_the_tasks_that_would_have_nothing_to_do(
    table: Table, tasks: int, sizes: list[int]
) -> None:
    table.insert({"k": list(range(KEYS))})
    table.insert({"k": [KEYS]})
    found = read(table, tasks)
    assert sorted(map(len, found)) == sizes
    assert sorted(row for rows in found for row in rows) == [(k, k // KEYS) for k in range(KEYS + 1)]


def test_parts_that_are_compared_are_not_cut(table: Table) -> None:
    table.insert({"k": list(range(KEYS))})
    table.delete("k % 2 = 0")
    found = read(table, 8)
    assert len(found) == 5
    assert sorted(map(len, found)) == [200, 200, 300, 300, 500]
