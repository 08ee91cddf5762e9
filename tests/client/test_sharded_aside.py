"""What is kept aside of a sharded table, with real replicas in this process: frozen snapshots, and detached parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from replitree.client.change.command import Commander
from replitree.client.connection import Connection
from replitree.client.sharded.moving import resharding
from replitree.client.sharded.moving.moves import MoveCarrier
from replitree.client.sharded.sharded_table import ShardedTable
from replitree.errors import BadInput, InvalidName, ReplicaUnavailable
from replitree.protocol.sharded.moves.carry import MoverEnd
from tests.replica.fixtures import cluster_and_connection
from tests.replica.inprocess import SCHEMA, InProcessCluster, rows
from tests.waiting import wait_for

NAMES = ("d~0", "d~1")

cluster, connection = cluster_and_connection()


@pytest.fixture
def table(connection: Connection) -> ShardedTable:
    """A table of two shards with the keys 0 to 39."""
    made = connection.create_table("d", SCHEMA, order_by="k", shard_by="k", buckets=16)
    assert isinstance(made, ShardedTable)
    made.insert(rows(0, 40))
    return made


def test_a_table_is_frozen_at_one_cut_of_all_shards(table: ShardedTable) -> None:
    made = table.freeze("before", "nightly")
    assert (made.rows, made.note, tuple(each.shard for each in made.shards)) == (40, "nightly", NAMES)
    assert table.to_arrow(as_of=made.cut).num_rows == 40
    table.insert(rows(100, 20))
    table.truncate()
    for each in made.shards:
        assert (Path(each.path) / "frozen.json").is_file()
        assert len(list(Path(each.path).glob("*/*.parquet"))) >= each.parts > 0
    found, silent = table.frozen_everywhere()
    assert (found, silent) == (table.frozen(), {})
    assert sorted(found, key=lambda each: each.shard) == list(made.shards)


def test_a_name_stands_for_one_snapshot_until_it_is_removed(table: ShardedTable) -> None:
    table.freeze("before")
    with pytest.raises(BadInput, match="there is a frozen snapshot 'before' of d already"):
        table.freeze("before")
    table.remove_frozen("before")
    assert table.frozen() == ()
    with pytest.raises(BadInput, match="there is no frozen snapshot 'before' of d"):
        table.remove_frozen("before")
    assert table.freeze("before").rows == 40
    with pytest.raises(InvalidName):
        table.freeze("no/name")
    assert {each.name for each in table.frozen()} == {"before"}


def test_what_a_shard_has_frozen_is_removed_when_another_one_fails(
    table: ShardedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    once, asked = Commander.once, list[int]()

    def fails_the_second_time(self: Commander, *args: Any, **named: Any) -> Any:
        asked.append(1)
        if len(asked) == 2:
            raise ReplicaUnavailable("no answer")
        return once(self, *args, **named)

    monkeypatch.setattr(Commander, "once", fails_the_second_time)
    with pytest.raises(ReplicaUnavailable, match="no answer"):
        table.freeze("before")
    assert (len(asked), table.frozen()) == (2, ())


# --- detached parts -----------------------------------------------------------------------------------------------------------


def keys(table: ShardedTable) -> list[int]:
    found: list[int] = table.to_arrow(["k"], level="linearizable")["k"].to_pylist()
    return sorted(found)


def detach(table: ShardedTable, cluster: InProcessCluster) -> list[str]:
    """Detach everything on both replicas of each shard; return what `attach` takes."""
    for name in NAMES:
        wait_for(lambda name=name: all(cluster.is_active(node, name) for node in cluster.nodes), f"{name} is hosted")  # type: ignore[misc]
    for name in NAMES:
        # A replica that has not fetched the rows before the drop does not keep them.
        cluster.wait_alike(name)
    done = table.detach_partition("all")
    assert ([name for name, _ in done.shards], done.finished, done.removed) == (list(NAMES), True, 2)
    for name in NAMES:
        cluster.wait_alike(name)
    wait_for(lambda: len(table.detached()) == 4, "both replicas of both shards keep the parts")
    assert keys(table) == []
    return sorted({each.name for each in table.detached()})


def test_a_partition_is_detached_in_all_shards_and_attached_part_by_part(
    table: ShardedTable, cluster: InProcessCluster
) -> None:
    first, second = detach(table, cluster)
    assert (first.partition("/")[0], second.partition("/")[0]) == NAMES
    half = table.attach(first)
    assert (half.outcome, keys(table) == sorted(keys(table)), 0 < half.rows < 40) == ("inserted", True, True)
    assert {each.name for each in table.detached()} == {second}, "it lies on no replica any more"
    assert table.attach(second).rows == 40 - half.rows
    assert (keys(table), table.detached()) == (list(range(40)), ())
    with pytest.raises(
        BadInput, match="no detached part 'd~0/gone' of d lies on a replica that can be asked: there are none"
    ):
        table.attach("d~0/gone")


def test_rows_of_a_detached_part_come_to_the_shards_that_own_their_buckets_now(
    connection: Connection, table: ShardedTable, cluster: InProcessCluster
) -> None:
    names = detach(table, cluster)
    resharding.begin_buckets(connection.catalog, "d", range(8), 1)
    assert MoveCarrier(connection.catalog, table.http, "d").run() is MoverEnd.DONE
    assert sum(table.attach(name).rows for name in names) == 40
    assert keys(table) == list(range(40))
    # A read of one key asks the owner of its bucket only.
    assert [table.scan(where=f"k = {key}", level="linearizable").count() for key in range(40)] == [1] * 40


def test_a_part_whose_attach_was_cut_off_is_not_inserted_twice(
    table: ShardedTable, cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = detach(table, cluster)
    with monkeypatch.context() as patched:
        patched.setattr(ShardedTable, "_remove_part", lambda *_: None)
        assert table.attach(first).outcome == "inserted"
    assert table.attach(first).outcome == "duplicate"
    table.remove_detached(second)
    assert table.detached() == ()
    assert 0 < len(keys(table)) < 40


def test_nothing_is_detached_while_buckets_move(connection: Connection, table: ShardedTable) -> None:
    resharding.begin_buckets(connection.catalog, "d", range(8), 1)
    with pytest.raises(BadInput, match="detach the partition when the moves have ended"):
        table.detach_partition("all", command_id="aside")
    assert keys(table) == list(range(40))
    assert MoveCarrier(connection.catalog, table.http, "d").run() is MoverEnd.DONE
    done = table.detach_partition("all", command_id="aside")
    resharding.begin_buckets(connection.catalog, "d", range(4), 0)
    assert table.detach_partition("all", command_id="aside").shards == done.shards, "it is in the logs already"
    assert MoveCarrier(connection.catalog, table.http, "d").run() is MoverEnd.DONE


def test_views_do_not_see_attached_rows(connection: Connection) -> None:
    table = connection.create_table("d", SCHEMA, order_by="k", partition_by="k", shard_by="k", buckets=16)
    sums = connection.create_table("sums", "k bigint not null, n bigint", order_by="k", shard_by="k", shards=1)
    table.create_view("v", "sums", {"k": "k % 2", "n": "count(*)"}, group_by="k")
    table.insert(rows(0, 4))
    wait_for(lambda: table.to_arrow().num_rows == 4, "all replicas have the rows")
    table.detach_partition("2")
    (aside,) = {each.name for each in table.detached()}
    assert table.attach(aside).rows == 1
    assert table.scan(level="linearizable").count() == 4
    assert sorted(row["n"] for row in sums.to_arrow(level="linearizable").to_pylist()) == [2, 2]
