"""Inserts that take the place of rows in a sharded table, with real replicas in this process."""

from __future__ import annotations

import time
from typing import Any

import pytest

from replitree.client.connection import Connection
from replitree.client.sharded.insert.joint import JointInsertResult
from replitree.client.sharded.moving import resharding
from replitree.client.sharded.moving.moves import MoveCarrier
from replitree.client.sharded.sharded_table import ShardedTable
from replitree.errors import BadInput
from replitree.protocol.sharded.moves.carry import MoverEnd
from tests.client.lost_answers import EVERY, lose_answers, until_unknown
from tests.replica.fixtures import cluster_and_connection
from tests.replica.inprocess import SCHEMA, InProcessCluster, rows

cluster, connection = cluster_and_connection()


def create(connection: Connection, **options: Any) -> ShardedTable:
    """A table of two shards with the keys 0 to 39."""
    made = connection.create_table("d", SCHEMA, order_by="k", **{"shard_by": "k", "buckets": 16, **options})
    assert isinstance(made, ShardedTable)
    made.insert(rows(0, 40))
    return made


def keys(table: Any, **options: Any) -> list[int]:
    found: list[int] = table.to_arrow(["k"], **options)["k"].to_pylist()
    return sorted(found)


def counted(table: ShardedTable) -> list[int]:
    """How many rows each shard has."""
    with table.snapshot() as snapshot:
        return [each.rows for each in snapshot.shards]


# --- what goes and what comes -------------------------------------------------------------------------------------------------


def test_a_shard_that_gets_no_rows_loses_its_own_in_the_same_transaction(connection: Connection) -> None:
    table = create(connection)
    before = table.snapshot().cut
    assert all(counted(table))
    done = table.insert(rows(7, 1), overwrite="all")
    assert isinstance(done, JointInsertResult)
    assert (done.outcome, [name for name, _ in sorted(done.shards)]) == ("inserted", ["d~0", "d~1"])
    assert keys(table) == [7]
    assert 0 in counted(table)
    # One transaction in both logs: a cut shows all of the old rows, or the new one.
    first, *_ = table.history()
    assert (len(first.shards), first.rows) == (2, 1)
    assert keys(table, as_of=before) == list(range(40))
    assert keys(table, as_of=first.cut) == [7]
    assert keys(connection.table("d"), level="linearizable", where="k < 40") == [7]


def test_partitions_that_get_rows_are_replaced_in_all_shards(connection: Connection) -> None:
    table = create(connection, partition_by="truncate(20, k)")
    assert [(each.partition, each.rows) for each in table.partitions()] == [("0", 20), ("20", 20)]
    assert table.insert(rows(25, 1), overwrite="partitions").outcome == "inserted"
    assert keys(table) == [*range(20), 25]
    assert table.insert(rows(15, 10), overwrite="partitions").outcome == "inserted"
    assert keys(table) == list(range(15, 25))
    nothing = table.insert(rows(0, 0), overwrite="partitions")
    assert (nothing.outcome, keys(table)) == ("empty", list(range(15, 25)))


def test_an_overwrite_without_rows_empties_all_shards(connection: Connection) -> None:
    table = create(connection)
    done = table.insert(rows(0, 0), token="none", overwrite="all")
    assert isinstance(done, JointInsertResult)
    assert (done.outcome, len(done.shards), keys(table)) == ("empty", 2, [])
    table.insert(rows(0, 5))
    again = table.insert(rows(0, 0), token="none", overwrite="all")
    assert isinstance(again, JointInsertResult)
    assert again.shards == done.shards
    assert keys(table) == list(range(5)), "it was done before"


def test_large_overwrites_go_as_uploads(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create(connection)
    monkeypatch.setattr("replitree.client.sharded.insert.joint.REQUEST_ROWS_MAX", 10)
    assert table.insert(rows(100, 100), overwrite="all").outcome == "inserted"
    assert keys(table) == list(range(100, 200))


def test_a_token_makes_an_overwrite_happen_once(connection: Connection) -> None:
    table = create(connection)
    assert table.insert(rows(100, 10), "load", overwrite="all").outcome == "inserted"
    table.insert(rows(200, 10))
    assert table.insert(rows(100, 10), "load", overwrite="all").outcome == "duplicate"
    assert keys(table) == [*range(100, 110), *range(200, 210)]
    # Without a token the same rows are meant to be the only ones again.
    for _ in range(2):
        assert table.insert(rows(100, 10), overwrite="all").outcome == "inserted"
    assert keys(table) == list(range(100, 110))


def test_rows_that_were_overwritten_come_in_again(connection: Connection) -> None:
    table = create(connection)
    assert table.insert(rows(50, 30), "load").outcome == "inserted"
    assert table.insert(rows(0, 1), overwrite="all").outcome == "inserted"
    assert table.insert(rows(50, 30), "load").outcome == "inserted"
    assert table.insert(rows(50, 30), "load").outcome == "duplicate"
    # The token of an overwrite is free again, too, although one of its shards got no rows.
    assert table.insert(rows(3, 1), "one", overwrite="all").outcome == "inserted"
    assert table.insert(rows(4, 1), overwrite="all").outcome == "inserted"
    assert table.insert(rows(3, 1), "one", overwrite="all").outcome == "inserted"
    assert keys(table) == [3]


def test_batches_of_a_stream_replace_everything_once_each(connection: Connection) -> None:
    table = create(connection)
    for number, first in ((0, 100), (1, 200), (1, 200), (0, 100)):
        table.insert(rows(first, 10), txn_app_id="s", txn_version=number, overwrite="all")
    assert keys(table) == list(range(200, 210))


# --- what is refused, and answers that are lost -------------------------------------------------------------------------------


def test_what_an_overwrite_can_not_be_is_refused(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create(connection)
    with pytest.raises(BadInput, match="can't have a quorum"):
        table.insert(rows(0, 5), overwrite="all", quorum=2)
    with pytest.raises(BadInput, match='overwrite is "all" or "partitions"'):
        table.insert(rows(0, 5), overwrite="some")  # type: ignore[arg-type]
    # A replica of each shard has registered its part when this was read.
    assert keys(table) == list(range(40))
    # Of any shard, also of one that only loses rows.
    monkeypatch.setattr("replitree.replica.perform.commit_size.REQUEST_BYTES_MAX", 4_100)
    with pytest.raises(BadInput, match="replace 1 part"):
        table.insert(rows(7, 1), overwrite="all")
    assert keys(table) == list(range(40))


def test_an_overwrite_whose_answer_is_lost_is_settled_by_its_token(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(connection)
    with monkeypatch.context() as patched:
        lose_answers(patched, "/joint/overwrite?")
        assert table.insert(rows(100, 20), overwrite="all").outcome == "duplicate", "of the first try"
    assert keys(table) == list(range(100, 120))
    with monkeypatch.context() as patched:
        lost = lose_answers(patched, "/joint/overwrite?", EVERY)
        unknown = until_unknown(lambda: table.insert(rows(200, 20), "mine", overwrite="all", timeout_s=0.5), lost)
    assert unknown.token == "mine"
    assert table.insert(rows(200, 20), "mine", overwrite="all").outcome == "duplicate"
    assert keys(table) == list(range(200, 220))


# --- beside moves -------------------------------------------------------------------------------------------------------------


def test_an_overwrite_after_any_step_of_a_move_leaves_its_own_rows(connection: Connection) -> None:
    table = create(connection)
    steps, ended, back = 0, False, 0
    while not ended:
        steps += 1
        table.insert(rows(0, 40))
        resharding.begin_buckets(connection.catalog, "d", range(8), 1 - back)
        carrier = MoveCarrier(connection.catalog, table.http, "d")
        moves = carrier.steps()
        ended = sum(1 for _ in zip(range(steps), moves, strict=False)) < steps
        # Rows that are read, prepared, laid or shown at their target just now go, too.
        assert table.insert(rows(1_000 * steps, 20), overwrite="all").outcome == "inserted"
        for _ in moves:
            assert keys(table) == list(range(1_000 * steps, 1_000 * steps + 20))
        assert MoveCarrier(connection.catalog, table.http, "d").run() is MoverEnd.DONE
        back = 1 - back
        assert keys(table) == list(range(1_000 * steps, 1_000 * steps + 20))
    assert steps > 5


# --- earlier states, the change feed ------------------------------------------------------------------------------------------


def test_the_table_becomes_what_it_was_at_a_cut_a_tag_or_a_time(
    connection: Connection, cluster: InProcessCluster
) -> None:
    table = create(connection)
    cut = table.snapshot().cut
    table.tag("forty")
    table.delete("k < 30")
    table.insert(rows(100, 5))
    now = keys(table)
    assert cut is not None
    assert table.restore_to(cut).outcome == "inserted"
    assert keys(table) == list(range(40))
    # Restoring can be taken back: the state before it is a cut, too.
    before = next(each for each in table.history() if each.rows == 5).cut
    assert table.restore_to(before).outcome == "inserted"
    assert keys(table) == now
    assert table.restore_to("forty", token="back").outcome == "inserted"
    assert table.restore_to("forty", token="back").outcome == "duplicate"
    assert keys(table) == list(range(40))


def test_a_cut_before_a_move_is_restored_by_the_map_of_now(connection: Connection) -> None:
    table = create(connection)
    cut = table.snapshot().cut
    assert cut is not None
    resharding.begin_buckets(connection.catalog, "d", range(8), 1)
    assert MoveCarrier(connection.catalog, table.http, "d").run() is MoverEnd.DONE
    table.delete("k >= 10")
    assert table.restore_to(cut).outcome == "inserted"
    assert (keys(table), counted(table)) == (list(range(40)), [0, 40])


def test_the_feed_has_what_goes_and_what_comes_under_one_version(tmp_path: Any) -> None:
    made = InProcessCluster(tmp_path, old_parts_lifetime_s=0.0)
    made.shared.now_ms = int(1_000 * time.time())
    try:
        with made.connect() as connection:
            table = create(connection, feed="24h")
            start = table.snapshot().cut
            assert start is not None
            table.insert(rows(7, 1), overwrite="all")
            with table.changes(start) as changes:
                found = changes.to_arrow().to_pylist()
        assert len({row["_commit_version"] for row in found}) == 1
        kinds = sorted((row["_change_type"], row["k"]) for row in found)
        assert kinds == [*(("delete", k) for k in range(40)), ("insert", 7)]
    finally:
        made.close()
