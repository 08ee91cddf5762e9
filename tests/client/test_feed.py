"""The change feed of a table on real replicas in this process, whose old parts go at once but for what the feed needs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from replitree.client.connection import Connection
from replitree.client.table import Table
from replitree.errors import BadInput, ReplicaBehind, SnapshotExpired
from replitree.replica.kit import feed_journal, old_parts, packed_parts
from replitree.replica.table import feeds
from replitree.wire.feed_errors import FeedGap, FeedOff, OffsetExpired, SchemaChanged, TableReplaced
from tests.project.source import ROOT as ROOT_FOLDER
from tests.replica.fixtures import cluster_with_clock
from tests.replica.inprocess import InProcessCluster, wait_for
from tests.replica.test_lost_parts import break_part

DAY = "1 day"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[InProcessCluster]:
    made = cluster_with_clock(tmp_path, old_parts_lifetime_s=0.0, lost_part_after_s=0.0)
    yield made
    made.close()


@pytest.fixture
def connection(cluster: InProcessCluster) -> Iterator[Connection]:
    with cluster.connect() as made:
        yield made


def made(connection: Connection, **options: Any) -> Table:
    columns = "k bigint not null, v double, s string, l array<int>"
    return connection.create_table("t", columns, **{"order_by": "k", "feed": DAY, "wait_replicas": 2, **options})


def rows(first: int, count: int = 3, s: str | None = "a") -> dict[str, list[Any]]:
    keys = list(range(first, first + count))
    return {"k": keys, "v": [key / 4 for key in keys], "s": [s] * count, "l": [[key, None] for key in keys]}


def counted(table: pa.Table) -> Counter[str]:
    return Counter(repr(row) for row in table.to_pylist())


def applied(before: Counter[str], changes: pa.Table) -> Counter[str]:
    """The rows after changes, which none of them may take below 0."""
    found = Counter(before)
    for row in changes.to_pylist():
        kind, _, _ = (row.pop(name) for name in ("_change_type", "_commit_version", "_commit_timestamp"))
        found[repr(row)] += 1 if kind in {"insert", "update_postimage"} else -1
    assert min(found.values(), default=0) >= 0
    return +found


def read(table: Table, start: int, end: int | None = None, **options: Any) -> pa.Table:
    with table.changes(start, end, **options) as changes:
        return changes.to_arrow()


def merged_and_alone(cluster: InProcessCluster, table: Table) -> None:
    """Merge everything, and wait until replicas have deleted what the feed does not need."""
    table.optimize(final=True)
    cluster.wait_alike()


class Followed:
    """A table, and its rows after each command."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.known: dict[int, Counter[str]] = {0: Counter()}

    def note(self) -> None:
        snapshot = self.table.snapshot(level="linearizable")
        self.known[snapshot.index] = counted(snapshot.to_arrow())

    def check(self) -> None:
        """F1 between any two indexes."""
        ends = sorted(self.known)
        for place, start in enumerate(ends):
            for end in ends[place:]:
                changes = read(self.table, start, end)
                assert applied(self.known[start], changes) == self.known[end], (start, end)
                versions = changes["_commit_version"].to_pylist()
                assert versions == sorted(versions)
                assert all(start <= version < end for version in versions)


def test_rows_at_a_later_index_are_those_before_and_the_changes(
    cluster: InProcessCluster, connection: Connection
) -> None:
    table = made(connection, partition_by="bucket(2,k)")
    followed = Followed(table)
    for first in (0, 10, 20):
        table.insert(rows(first))
        followed.note()
    merged_and_alone(cluster, table)
    table.delete("k in (1, 11)")
    followed.note()
    table.update({"s": "concat(s, 'x')", "v": "0.0 - v"}, "k >= 20")
    followed.note()
    merged_and_alone(cluster, table)
    table.insert(rows(0, 8, None), overwrite="partitions")
    followed.note()
    table.insert(rows(2), quorum=2)
    followed.note()
    merged_and_alone(cluster, table)
    table.drop_partition(table.partitions()[0].partition)
    followed.note()
    table.truncate()
    followed.note()
    wait_for(lambda: all(node.get("status")["queue"] == 0 for node in cluster.nodes), "everything is executed")
    followed.check()
    # Each replica gives the same rows, in its own order of parts.
    alone = [read(table.replica(node.name), 0, max(followed.known)) for node in cluster.nodes]
    assert counted(alone[0]) == counted(alone[1])
    kinds = Counter(alone[0]["_change_type"].to_pylist())
    assert set(kinds) == {"insert", "delete", "update_preimage", "update_postimage"}
    assert kinds["update_preimage"] == kinds["update_postimage"] == 3


def test_a_table_in_an_object_store_has_a_feed(
    cluster: InProcessCluster, connection: Connection, tmp_path: Path
) -> None:
    table = made(connection, storage=f"file://{tmp_path}/store")
    followed = Followed(table)
    for first in (0, 10):
        table.insert(rows(first))
        followed.note()
    merged_and_alone(cluster, table)
    table.update({"v": "v + 1"}, "k > 10")
    followed.note()
    table.delete("k = 1")
    followed.note()
    merged_and_alone(cluster, table)
    followed.check()


def test_timestamps_are_those_of_the_log(cluster: InProcessCluster, connection: Connection) -> None:
    table = made(connection)
    for first in range(4):
        table.insert(rows(first, 1))
    found = read(table, 0)
    times = found["_commit_timestamp"].to_pylist()
    assert times == sorted(set(times))
    noted = {entry.index: entry.time for entry in table.history()}
    for version, written in zip(found["_commit_version"].to_pylist(), times, strict=True):
        assert 0 <= (written - noted[version]).total_seconds() < 1


def test_columns_and_a_condition_are_of_each_image(cluster: InProcessCluster, connection: Connection) -> None:
    table = made(connection)
    table.insert(rows(0))
    table.update({"v": "v + 10"}, "k = 1")
    found = read(table, 0, columns=["k"], where="v < 5 and k > 0").to_pylist()
    assert [(row["k"], row["_change_type"]) for row in found] == [(1, "insert"), (2, "insert"), (1, "update_preimage")]
    with pytest.raises(BadInput, match="no column 'z'"):
        table.changes(0, columns=["z"])


def test_rows_without_the_columns_of_the_feed_are_the_same(cluster: InProcessCluster, connection: Connection) -> None:
    table = made(connection)
    table.insert(rows(0))
    table.insert(rows(3, s=None))
    table.update({"s": "'b'"}, "k > 1")
    with table.changes(0, where="k > 0") as changes:
        marked, alone = changes.to_arrow(), replace(changes, is_marked=False).to_arrow()
    assert alone.schema.names == ["k", "v", "s", "l"]
    assert alone.equals(marked.select(alone.schema.names))


def test_an_image_stands_right_after_the_one_before_it(cluster: InProcessCluster, connection: Connection) -> None:
    table = made(connection)
    table.insert(rows(0, 20))
    table.update({"v": "v + 10"}, "k % 3 = 0")
    found = read(table, 1).to_pylist()
    pairs = list(zip(found[::2], found[1::2], strict=True))
    assert [(old["k"], new["k"], new["v"] - old["v"]) for old, new in pairs] == [(k, k, 10.0) for k in range(0, 20, 3)]
    assert {(old["_change_type"], new["_change_type"]) for old, new in pairs} == {
        ("update_preimage", "update_postimage")
    }


def test_the_feed_goes_on_after_all_processes_begin_anew(cluster: InProcessCluster, connection: Connection) -> None:
    table = made(connection)
    table.insert(rows(0))
    table.insert(rows(3))
    merged_and_alone(cluster, table)
    before = read(table, 0)
    for node in cluster.nodes:
        node.restart()
    wait_for(lambda: all(map(cluster.is_active, cluster.nodes)), "active again")
    again = cluster.connect()
    table = again.table("t")
    table.insert(rows(6))
    assert counted(read(table, 0)) == counted(before) + counted(
        read(table, before["_commit_version"].to_pylist()[-1] + 1)
    )
    again.close()


def test_a_table_without_a_feed_says_how_to_turn_it_on(cluster: InProcessCluster, connection: Connection) -> None:
    table = made(connection, feed=None)
    table.insert(rows(0))
    with pytest.raises(FeedOff, match="set_feed"):
        table.changes(0)
    table.set_feed("24h")
    assert read(table, 0).num_rows == 3
    assert [entry.command for entry in table.history(limit=1)] == ["keeps old parts by default, the change feed 24h"]
    assert connection.table("t").definition.feed == "24h"
    with pytest.raises(BadInput, match="feed is 'off', or a number with a unit"):
        table.set_feed("often")


def test_what_went_while_the_feed_was_off_is_refused(cluster: InProcessCluster, connection: Connection) -> None:
    table = made(connection, feed=None)
    for first in (0, 3):
        table.insert(rows(first))
    merged_and_alone(cluster, table)
    wait_for(lambda: all(node.get("status")["old_parts"] == 0 for node in cluster.nodes), "old parts are deleted")
    table.set_feed(DAY)
    with pytest.raises(OffsetExpired, match="kept for 1d") as caught:
        table.changes(0)
    earliest = caught.value.index
    table.insert(rows(6))
    assert read(table, earliest)["k"].to_pylist() == [6, 7, 8]
    # An error of the feed is one that an older client knows.
    assert isinstance(caught.value, SnapshotExpired)


def test_parts_stay_for_as_long_as_the_feed_is_on(cluster: InProcessCluster, connection: Connection) -> None:
    table = made(connection)
    for first in (0, 3):
        table.insert(rows(first))
    merged_and_alone(cluster, table)
    table.insert(rows(9))
    merged_and_alone(cluster, table)
    # The part of the first merge is none of the feed's, and is deleted; the parts of the inserts stay.
    wait_for(lambda: all(node.get("status")["old_parts"] == 3 for node in cluster.nodes), "parts of inserts stay alone")
    assert [node.get("status")["feed_parts"] for node in cluster.nodes] == [3] * len(cluster.nodes)
    status = cluster.nodes[0].get("status")
    assert status["feed_bytes"] == status["old_bytes"] > 0
    assert status["feed_missing"] == 0
    table.set_feed(None)
    wait_for(lambda: all(node.get("status")["old_parts"] == 0 for node in cluster.nodes), "all old parts are deleted")


def test_another_replica_answers_where_one_has_lost_parts(
    cluster: InProcessCluster, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No entry is so recent that a part of it may still be on its way.
    monkeypatch.setattr(feed_journal, "RECENT_S", 0.0)
    table = made(connection)
    for key in (0, 3):
        table.insert(rows(key))
    merged_and_alone(cluster, table)
    first = cluster.nodes[0].table()
    (part,) = [name for name in first.old_parts.names() if name.startswith("all_0_")]
    first.old_parts.revive([part])
    first.store.remove_parts([part])
    assert [each.name for each in first.maintenance.feed_parts.missing()] == [part]
    with pytest.raises(OffsetExpired, match=f"has no part {part}") as caught:
        table.replica(first.replica.name).changes(0)
    assert caught.value.index == 1
    assert read(table, 0).num_rows == 6


def test_a_replica_fetches_what_its_feed_lacks(cluster: InProcessCluster, connection: Connection) -> None:
    table = made(connection)
    for first in (0, 3):
        table.insert(rows(first))
    cluster.wait_alike()
    merged_and_alone(cluster, table)
    # A replica that joins may have pulled these entries before it noted what they changed: its feed begins behind them.
    joined = cluster.add("r3")
    wait_for(lambda: cluster.is_active(joined), "r3 is active")
    index = table.insert(rows(6)).index
    cluster.wait_alike()
    merged_and_alone(cluster, table)
    # As if it had fetched the merged part in place of that of the insert.
    replica, part = joined.table(), f"all_{index}_{index}_0"
    wait_for(lambda: replica.old_parts.is_old(part), "the part of the insert has left the table")
    replica.old_parts.revive([part])
    replica.store.remove_parts([part])
    wait_for(lambda: replica.old_parts.is_old(part), "it was fetched again")
    assert index is not None
    assert read(table.replica("r3"), index)["k"].to_pylist() == [6, 7, 8]


def test_the_example_of_the_page_works(cluster: InProcessCluster, connection: Connection) -> None:
    page = (ROOT_FOLDER / "docs" / "change-feed.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {"connection": connection}
    exec(example, names)
    kinds = names["rows"]["_change_type"].to_pylist()
    assert kinds == ["insert", "insert", "update_preimage", "update_postimage"]
    assert connection.table("prices").definition.feed == "24h"


def test_another_table_of_the_same_name_is_refused(cluster: InProcessCluster, connection: Connection) -> None:
    table = made(connection)
    table.insert(rows(0))
    with table.changes(0) as changes:
        origin, end = changes.origin, changes.end
    with table.changes(end, of=origin) as changes:
        assert changes.to_arrow().num_rows == 0
    connection.drop_table("t")
    wait_for(lambda: not any(cluster.is_active(node) for node in cluster.nodes), "the table is gone")
    other = made(connection)
    other.insert(rows(0))
    for handle, of in ((table, None), (other, origin)):
        with pytest.raises(TableReplaced, match="Start anew"):
            handle.changes(0, of=of)


def test_a_start_above_the_end_of_the_log_is_refused(cluster: InProcessCluster, connection: Connection) -> None:
    table = made(connection)
    table.insert(rows(0))
    with pytest.raises(BadInput, match="the log ends at 1"):
        table.changes(7)
    with pytest.raises(ReplicaBehind, match="up to 9"):
        table.changes(0, 9, timeout_s=0.2)
    with pytest.raises(BadInput, match="not from 3 to 2"):
        table.changes(3, 2)
    assert read(table, 1).num_rows == 0


def test_columns_that_change_are_refused_where_a_version_is_wanted(
    cluster: InProcessCluster, connection: Connection
) -> None:
    table = made(connection)
    table.insert(rows(0, 1))
    version = table.definition.schema_version
    table.alter("ADD COLUMN w int DEFAULT 7")
    table.insert({**rows(1, 1), "w": [8]})
    with pytest.raises(SchemaChanged, match="go on from 1 with schema_version=2") as caught:
        table.changes(0, schema_version=version)
    assert caught.value.index == 1
    assert read(table, 0, 1, schema_version=version).num_rows == 1
    # Otherwise all rows have the columns of now, as in earlier versions of the table.
    with table.changes(0) as changes:
        assert changes.to_arrow()["w"].to_pylist() == [7, 8]
        assert changes.altered == ((1, 2),)


def test_a_long_range_is_read_in_pages(
    cluster: InProcessCluster, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "FEED_PARTS_MAX", 2)
    table = made(connection, partition_by="bucket(4,k)")
    for first in range(5):
        table.insert(rows(10 * first, 8))
    with table.changes(0) as changes:
        assert len(changes.pages) == 5
        assert changes.to_arrow().num_rows == 40
    assert all(node.get("status")["leases"] == 0 for node in cluster.nodes)


def test_a_lost_part_is_a_gap(cluster: InProcessCluster, connection: Connection) -> None:
    table = made(connection)
    table.insert(rows(0))
    table.insert(rows(3))
    cluster.wait_alike()
    for node in cluster.nodes:
        break_part(node, "all_0_0_0")
    wait_for(lambda: any(entry.kind == "lost" for entry in table.history()), "the part is declared lost", 60.0)
    (lost,) = [entry.index for entry in table.history() if entry.kind == "lost"]
    wait_for(lambda: all(node.get("status")["queue"] == 0 for node in cluster.nodes), "it is made empty")
    for start, end, index in ((0, 1, 0), (0, lost + 1, 0), (lost, lost + 1, lost)):
        with pytest.raises(FeedGap, match="was lost") as caught:
            table.changes(start, end)
        assert caught.value.index == index
    assert read(table, 1, lost)["k"].to_pylist() == [3, 4, 5]


def test_packed_parts_are_read_by_the_feed_by_tags_and_by_other_replicas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(old_parts, "PACK_PARTS_MIN", 2)
    cluster = cluster_with_clock(tmp_path, old_parts_lifetime_s=0.0, pack_old_parts_after_s=0.0)
    with closing(cluster), cluster.connect() as connection:
        table = made(connection)
        for first in (0, 3, 6):
            table.insert(rows(first))
        cluster.wait_alike()
        version = table.snapshot(level="linearizable").index
        table.tag("v1", version)
        merged_and_alone(cluster, table)
        stores = [node.table().store for node in cluster.nodes]
        wait_for(
            lambda: all(
                node.get("status")["packed_parts"] == 3 and len(node.table().store.parts()) == 1
                for node in cluster.nodes
            ),
            "the parts of the inserts are packed",
        )
        monkeypatch.setattr(feeds, "FEED_UNPACKED_MAX", 1)
        for node in cluster.nodes:
            assert read(table.replica(node.name), 0)["k"].to_pylist() == list(range(9))
            assert table.replica(node.name).to_arrow(as_of=version).num_rows == 9
            assert (
                node.get("status")["old_bytes"] == node.get("status")["feed_bytes"] + node.get("status")["tagged_bytes"]
            )
        # One replica loses its packs: it sees no fewer rows, but an error, and fetches the parts from the packs of the other.
        monkeypatch.setattr(packed_parts, "COPY_S", 0.0)
        monkeypatch.setattr(feed_journal, "RECENT_S", 0.0)
        broken = cluster.nodes[0].table()
        wait_for(lambda: all(len(store.parts()) == 1 for store in stores), "the copies for readers are removed")
        for pack in stores[0].packs.names():
            stores[0].packs.path(pack).write_bytes(b"")
        with pytest.raises(OffsetExpired, match="has no part"):
            table.replica(broken.replica.name).changes(0)
        assert read(table, 0).num_rows == 9
        wait_for(
            lambda: all(broken.old_parts.is_old(f"all_{index}_{index}_0") for index in range(3)), "they were fetched"
        )
        assert read(table.replica(broken.replica.name), 0)["k"].to_pylist() == list(range(9))
