"""The change feed of a sharded table on real replicas in this process, whose old parts go at once but for what the feed needs.

The invariant D8: between any two cuts the feed is the difference of what a read shows, also while buckets move.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from replitree.client.connection import Connection
from replitree.client.sharded.insert.joint import JointInsertResult
from replitree.client.sharded.moving import resharding
from replitree.client.sharded.moving.moves import MoveCarrier
from replitree.client.sharded.sharded_table import ShardedTable
from replitree.errors import BadInput, SnapshotExpired
from replitree.protocol.sharded.cut import parse_cut
from replitree.protocol.sharded.moves.carry import MoverEnd
from replitree.wire.feed_errors import FeedGap, FeedOff, OffsetExpired, SchemaChanged, TableReplaced
from tests.client.lost_entries import lose_second_entry
from tests.replica.fixtures import cluster_with_clock, hosted_everywhere
from tests.replica.inprocess import InProcessCluster, wait_for

DAY = "1 day"
FEED_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[InProcessCluster]:
    made = cluster_with_clock(tmp_path, old_parts_lifetime_s=0.0)
    yield made
    made.close()


@pytest.fixture
def connection(cluster: InProcessCluster) -> Iterator[Connection]:
    with cluster.connect() as made:
        yield made


def create(connection: Connection, **options: Any) -> ShardedTable:
    columns = "k bigint not null, v double, s string"
    wanted = {"order_by": "k", "shard_by": "k", "shards": 2, "buckets": 8, "feed": DAY, **options}
    made = connection.create_table("d", columns, **wanted)
    assert isinstance(made, ShardedTable)
    return made


def rows(first: int, count: int = 12, s: str | None = "a") -> dict[str, list[Any]]:
    keys = list(range(first, first + count))
    return {"k": keys, "v": [key / 4 for key in keys], "s": [s] * count}


def counted(table: pa.Table) -> Counter[str]:
    return Counter(repr(row) for row in table.to_pylist())


def applied(before: Counter[str], changes: pa.Table) -> Counter[str]:
    """The rows after changes, which none of them may take below 0."""
    found = Counter(before)
    for row in changes.to_pylist():
        kind, *_ = (row.pop(name) for name in FEED_COLUMNS)
        found[repr(row)] += 1 if kind in {"insert", "update_postimage"} else -1
    assert min(found.values(), default=0) >= 0
    return +found


def read(table: ShardedTable, start: Any, end: Any = None, **options: Any) -> pa.Table:
    with table.changes(start, end, **options) as changes:
        return changes.to_arrow()


class Followed:
    """A table, and its rows at the cut after each step."""

    def __init__(self, table: ShardedTable) -> None:
        self.table = table
        self.known: list[tuple[str, Counter[str]]] = []
        self.note()

    def note(self) -> None:
        with self.table.snapshot(level="linearizable") as snapshot:
            assert snapshot.cut is not None
            self.known.append((snapshot.cut, counted(snapshot.to_arrow())))

    def check(self, others: Iterable[tuple[int, int]] = ()) -> None:
        """F1 from each cut to the next one, from the first one to the last one, and between others."""
        count = len(self.known)
        pairs = (*((each, each + 1) for each in range(count - 1)), (0, count - 1), *others)
        for first, last in pairs:
            (start, before), (end, after) = self.known[first], self.known[last]
            changes = read(self.table, start, end)
            assert applied(before, changes) == after, (first, last)
            versions = changes["_commit_version"].to_pylist()
            assert versions == sorted(versions)
            assert all(parse_cut(start).zxid < version <= parse_cut(end).zxid for version in versions)


def mover(connection: Connection) -> MoveCarrier:
    return MoveCarrier(connection.catalog, connection.table("d").http, "d")


def test_rows_at_a_later_cut_are_those_before_and_the_changes(
    connection: Connection, cluster: InProcessCluster
) -> None:
    table = create(connection, partition_by="bucket(2,k)")
    hosted_everywhere(cluster, *table.info.names)
    followed = Followed(table)
    table.insert(rows(0))
    followed.note()
    table.insert(rows(20), quorum=2)
    followed.note()
    table.update({"s": "concat(s, 'x')"}, "k % 3 = 0")
    followed.note()
    table.optimize(final=True)
    followed.note()
    table.delete("k in (1, 2, 21)")
    followed.note()
    table.drop_partition(table.partitions()[0].partition)
    followed.note()
    table.truncate()
    followed.note()
    followed.check()
    everything = read(table, 0)
    assert applied(Counter(), everything) == Counter()
    assert everything.schema.names[-3:] == list(FEED_COLUMNS)


def test_what_one_commit_has_done_in_all_shards_is_one_version(connection: Connection) -> None:
    table = create(connection)
    start = table.snapshot(level="linearizable").cut
    done = table.insert(rows(0, 40))
    assert isinstance(done, JointInsertResult)
    assert len(done.shards) == 2
    table.delete("k < 20")
    found = read(table, start)
    versions, kinds, times = (found[name].to_pylist() for name in ("_commit_version", "_change_type", FEED_COLUMNS[2]))
    assert Counter(zip(versions, kinds, strict=True)) == {
        (min(versions), "insert"): 40,
        (max(versions), "delete"): 20,
    }
    assert len(set(zip(versions, times, strict=True))) == 2
    assert times == sorted(times)


@pytest.mark.parametrize("seed", range(2))
def test_the_feed_between_any_cuts_is_the_difference_of_what_they_show(
    connection: Connection, cluster: InProcessCluster, seed: int
) -> None:
    random, table = Random(seed), create(connection, partition_by="bucket(2,k)")
    hosted_everywhere(cluster, *table.info.names)
    followed, at = Followed(table), 0
    resharding.begin_buckets(connection.catalog, "d", range(4), 1)
    steps = mover(connection).steps()
    done = object()
    while len(followed.known) < 16:
        match random.choice(("insert", "insert", "quorum", "update", "delete", "merge", *("move",) * 8)):
            case "insert":
                table.insert(rows(at, random.randint(1, 20)))
                at += 20
            case "quorum":
                table.insert(rows(at, 12, None), quorum=2)
                at += 20
            case "update":
                table.update({"s": "concat(s, 'x')"}, f"k % 5 = {random.randrange(5)}")
            case "delete":
                table.delete(f"k % 7 = {random.randrange(7)}")
            case "merge":
                # It does not wait for a batch of the move, which is open as long as the mover does not go on.
                table.optimize(final=True, timeout_s=0.2)
                continue
            case "move":
                ended = [None for _ in range(random.randint(1, 6)) if next(steps, done) is done]
                if ended:
                    back = random.randrange(2)
                    owned = resharding.status_of(connection.catalog, "d")
                    assert owned.moves == ()
                    resharding.begin_buckets(connection.catalog, "d", range(8) if back else range(4, 8), 1 - back)
                    steps = mover(connection).steps()
        followed.note()
    count = len(followed.known)
    ends = [random.randrange(count) for _ in range(12)]
    followed.check((min(pair), max(pair)) for pair in zip(ends[::2], ends[1::2], strict=True))


def test_rows_that_only_move_are_no_changes(connection: Connection) -> None:
    table = create(connection)
    table.insert(rows(0, 60))
    start = table.snapshot(level="linearizable").cut
    resharding.add_shard(connection.catalog, "d", weight=2)
    assert mover(connection).run() is MoverEnd.DONE
    table.refresh()
    end = table.snapshot(level="linearizable").cut
    with table.changes(start, end) as changes:
        assert len(changes.positions) == 3
        # The log of the new shard has entries, and those of the others, too.
        assert any(last > first for first, last in changes.positions.values())
        assert changes.to_arrow().num_rows == 0
    assert read(table, 0, end).num_rows == 60
    with pytest.raises(BadInput, match="does not begin with 'move-'"):
        table.delete("k = 1", command_id="move-1")


def test_a_feed_is_turned_on_and_off_for_all_shards(connection: Connection) -> None:
    table = create(connection, feed=None)
    table.insert(rows(0))
    start = table.snapshot(level="linearizable").cut
    with pytest.raises(FeedOff):
        table.changes(start)
    assert len(table.set_feed(DAY).shards) == 2
    table.insert(rows(20))
    assert table.refresh().feed == "1d"
    # What came before the feed has no known place among the entries of other shards.
    with pytest.raises(OffsetExpired, match="it starts at") as expired:
        table.changes(0)
    assert read(table, start).num_rows == 12
    first = str(expired.value).split("it starts at ")[1].split(" ")[0]
    assert parse_cut(first).zxid == expired.value.index
    assert read(table, first).num_rows == 12
    table.set_feed(None)
    wait_for(lambda: not table.refresh().feed, "the settings are there")
    with pytest.raises(FeedOff):
        table.changes(first)


def test_changes_of_the_columns_are_told_by_their_transactions(connection: Connection) -> None:
    table = create(connection)
    start = table.snapshot(level="linearizable").cut
    table.insert(rows(0))
    table.add_column("w", "bigint", default="7")
    table.insert({**rows(20), "w": [1] * 12})
    with table.changes(start) as changes:
        ((zxid, version),) = changes.altered
        assert Counter(changes.to_arrow()["w"].to_pylist()) == {7: 12, 1: 12}
    with pytest.raises(SchemaChanged, match="read up to") as changed:
        table.changes(start, schema_version=version - 1)
    assert changed.value.index == zxid - 1
    before = f"{parse_cut(str(start)).ensemble}@{zxid - 1}"
    assert read(table, start, before, schema_version=version - 1).num_rows == 12
    assert read(table, before, schema_version=version).num_rows == 12


def test_cuts_are_known_when_coordination_has_no_entries_any_more(
    connection: Connection, cluster: InProcessCluster
) -> None:
    table = create(connection)
    followed = Followed(table)
    for first in (0, 20, 40):
        table.insert(rows(first))
        followed.note()
    for name in table.info.names:
        cluster.wait_alike(name)
        cluster.clean(3, name)
    followed.check()
    # A shard without a later entry, and one that is younger than the cut.
    resharding.add_shard(connection.catalog, "d", weight=1)
    followed.note()
    followed.check()
    assert read(table, 0).num_rows == 36


def test_a_range_that_can_not_be_read_is_refused(connection: Connection) -> None:
    table = create(connection)
    start = str(table.snapshot(level="linearizable").cut)
    table.insert(rows(0))
    end = table.snapshot(level="linearizable").cut
    with pytest.raises(BadInput, match="up to a later one"):
        table.changes(end, start)
    with pytest.raises(BadInput, match="begin at a cut"):
        table.changes()
    with pytest.raises(BadInput, match="an index"):
        table.changes(3)
    with pytest.raises(BadInput, match="no column 'z'"):
        table.changes(start, columns=["z"])
    with pytest.raises(SnapshotExpired, match="ensemble"):
        table.changes(f"other@{parse_cut(start).zxid}")
    with table.changes(start) as changes:
        origin = changes.origin
    assert read(table, end, of=origin).num_rows == 0
    connection.drop_table("d")
    again = create(connection)
    with pytest.raises(TableReplaced):
        again.changes(start, of=origin)


def test_a_condition_on_the_shard_key_asks_only_the_shards_that_can_have_matching_rows(connection: Connection) -> None:
    table = create(connection)
    start = table.cut_now("linearizable")
    table.insert(rows(0))
    middle = table.cut_now("linearizable")
    table.update({"s": "'x'"}, "k = 3")
    for where in ("k = 3", "k in (3)", "k = 3 and v < 9"):
        with table.changes(start, where=where) as changes:
            assert len(changes.positions) == 1
            assert changes.to_arrow()["_change_type"].to_pylist() == ["insert", "update_preimage", "update_postimage"]
    with table.changes(start, where="k > 3") as changes:
        assert len(changes.positions) == 2
    with table.changes(start, where="k = 3 and k = 4") as changes:
        assert changes.to_arrow().num_rows == 0
    # Buckets that have moved since the first cut were in another shard then.
    resharding.begin_buckets(connection.catalog, "d", range(8), 1)
    for at in (start, middle, table.cut_now("linearizable")):
        with table.changes(at, where="k = 3") as changes:
            assert len(changes.positions) == 2
    assert mover(connection).run() is MoverEnd.DONE
    moved = table.cut_now("linearizable")
    table.delete("k = 3")
    with table.changes(moved, where="k = 3") as changes:
        assert list(changes.positions) == ["d~1"]
        assert changes.to_arrow()["_change_type"].to_pylist() == ["delete"]
    found = read(table, start, where="k = 3")
    assert found["_change_type"].to_pylist() == ["insert", "update_preimage", "update_postimage", "delete"]


def test_a_time_is_known_as_long_as_the_feed_when_the_logs_have_forgotten_it(
    connection: Connection, cluster: InProcessCluster
) -> None:
    table = create(connection)
    table.insert(rows(0))
    for name in table.info.names:
        cluster.wait_alike(name)
    cluster.shared.now_ms += 1_000
    at = datetime.fromtimestamp(cluster.shared.now_ms / 1_000, UTC)
    cluster.shared.now_ms += 1_000
    table.update({"s": "'x'"}, "k = 3")
    known = table.cut_at(at)
    for name in table.info.names:
        cluster.wait_alike(name)
        cluster.clean(cluster.nodes[0].table(name).progress.index, name)
    assert table.cut_at(at) == known
    assert read(table, at)["_change_type"].to_pylist() == ["update_preimage", "update_postimage"]


def test_a_gap_is_told_with_the_transaction_whose_rows_are_lost(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(connection)
    start = table.cut_now("linearizable")
    table.insert(rows(0))
    table.insert(rows(20))
    table.insert(rows(40))
    table.cut_now("linearizable")
    lose_second_entry(monkeypatch)
    with pytest.raises(FeedGap, match=r"shard d~. has lost rows of transaction") as told:
        read(table, start)
    ensemble, _, _ = start.partition("@")
    assert sorted(read(table, start, f"{ensemble}@{told.value.index - 1}")["k"].to_pylist()) == list(range(12))
    assert sorted(read(table, f"{ensemble}@{told.value.index}")["k"].to_pylist()) == list(range(40, 52))
