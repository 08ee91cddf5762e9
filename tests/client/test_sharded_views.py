"""Materialised views of a sharded table, with real replicas in this process: both tables have an insert, or none."""

from __future__ import annotations

from typing import Any

import pytest

from replitree.client.admin.doctor import examine
from replitree.client.connection import Connection
from replitree.client.sharded.insert import held_rows, joint
from replitree.client.sharded.insert.joint import JointInserter, JointInsertResult
from replitree.client.sharded.moving import resharding
from replitree.client.sharded.moving.moves import MoveCarrier
from replitree.client.sharded.sharded_table import ShardedTable
from replitree.coordination.memory import MemoryCoordination
from replitree.errors import BadInput, OutcomeUnknown, TableNotFound, UnsupportedFormat
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.sharded.moves.carry import MoverEnd
from replitree.protocol.sharded.shard_map import decode_map
from replitree.protocol.sharded.views import ViewBeginning, read_beginning
from replitree.storage.rewrite import slices
from tests.replica.fixtures import cluster_and_connection
from tests.replica.inprocess import ROOT, SCHEMA, InProcessCluster, rows
from tests.waiting import wait_for

cluster, connection = cluster_and_connection(old_parts_lifetime_s=0.0, lost_part_after_s=0.0)

SUMS = {"g": "k % 5", "n": "count(*)", "s": "sum(k)"}


@pytest.fixture
def table(connection: Connection) -> ShardedTable:
    """A source of two shards, with the keys 0 to 39."""
    made = connection.create_table("d", SCHEMA, order_by="k", shard_by="k", buckets=16)
    assert isinstance(made, ShardedTable)
    made.insert(rows(0, 40))
    return made


@pytest.fixture
def target(connection: Connection) -> ShardedTable:
    """A target of three shards by another key, which adds up."""
    made = connection.create_table(
        "t",
        "g bigint not null, n bigint, s bigint",
        order_by="g",
        shard_by="g",
        shards=3,
        buckets=8,
        policy="summing(n, s)",
    )
    assert isinstance(made, ShardedTable)
    return made


def sums(table: Any, **options: Any) -> dict[int, tuple[int, int]]:
    """What the target has: count and sum by group, whatever was merged."""
    found: dict[int, tuple[int, int]] = {}
    for row in table.to_arrow(**options).to_pylist():
        n, s = found.get(row["g"], (0, 0))
        found[row["g"]] = n + row["n"], s + row["s"]
    return found


def sums_of(source: Any, **options: Any) -> dict[int, tuple[int, int]]:
    """What the view makes of all that the source has."""
    keys = source.to_arrow(["k"], **options)["k"].to_pylist()
    return {g: (len(its), sum(its)) for g in range(5) if (its := [k for k in keys if k % 5 == g])}


def assert_alike(source: ShardedTable, target: ShardedTable) -> None:
    assert sums(target, level="linearizable") == sums_of(source, level="linearizable")


def test_an_insert_is_in_the_source_and_in_the_target_at_every_cut(table: ShardedTable, target: ShardedTable) -> None:
    made = table.create_view("v", "t", SUMS, group_by="g")
    assert (made.applied, made.finished) == (True, True)
    assert_alike(table, target)
    cut = None
    for first in (100, 200):
        done = table.insert(rows(first, 30), token=f"at-{first}")
        assert isinstance(done, JointInsertResult)
        assert (done.outcome, done.rows) == ("inserted", 30)
        # The index in each shard is one of the source's.
        assert {name.partition("~")[0] for name, _ in done.shards} == {"d"}
        cut = table.snapshot(level="linearizable").cut
        assert sums(target, as_of=cut) == sums_of(table, as_of=cut)
    assert sums(target, as_of=cut) == sums_of(table, as_of=cut)


def test_a_duplicate_changes_neither_table_also_after_a_drop(table: ShardedTable, target: ShardedTable) -> None:
    table.create_view("v", "t", SUMS, group_by="g")
    table.insert(rows(100, 10), token="x")
    before = sums(target, level="linearizable")
    assert table.insert(rows(100, 10), token="x").outcome == "duplicate"
    table.drop_view("v")
    assert table.insert(rows(100, 10), token="x").outcome == "duplicate"
    assert sums(target, level="linearizable") == before
    table.insert(rows(200, 10))
    assert sums(target, level="linearizable") == before


def test_views_are_listed_and_dropped(table: ShardedTable, target: ShardedTable) -> None:
    made = table.create_view("v", "t", SUMS, where="k >= 10", group_by="g", backfill=False, command_id="one")
    assert made.id == "one"
    (view,) = table.views()
    assert (view.name, view.source, view.target, view.where, view.group_by) == ("v", "d", "t", "k >= 10", ("g",))
    assert view.is_filled
    assert table.create_view("v", "t", SUMS, where="k >= 10", group_by="g", backfill=False, command_id="one") == made
    assert sums(target) == {}
    assert table.backfill_view("v").outcome == "duplicate"
    table.drop_view("v", command_id="two")
    assert table.views() == ()
    assert table.drop_view("v", command_id="two").finished
    with pytest.raises(BadInput, match="no materialised view 'v'; it has none"):
        table.drop_view("v")
    # Nothing tells the map from one that never had views.
    assert table.refresh() is not None
    assert table.info.map.format == 1


def test_an_insert_that_was_split_before_a_view_came_is_split_again(
    table: ShardedTable, target: ShardedTable, connection: Connection
) -> None:
    other = connection.table("d")
    other.insert(rows(50, 10))
    table.create_view("v", "t", SUMS, group_by="g")
    assert other.insert(rows(100, 20)).outcome == "inserted"
    assert_alike(table, target)
    table.drop_view("v")
    assert other.insert(rows(200, 20)).outcome == "inserted"
    assert sums(target, level="linearizable") != sums_of(table, level="linearizable")


@pytest.mark.parametrize("of", ["d", "t"])
def test_buckets_move_and_no_view_sees_it(
    of: str, table: ShardedTable, target: ShardedTable, connection: Connection
) -> None:
    table.create_view("v", "t", SUMS, group_by="g")
    resharding.begin_buckets(connection.catalog, of, range(4), 1)
    table.insert(rows(100, 20))
    assert MoveCarrier(connection.catalog, table.http, of).run() is MoverEnd.DONE
    table.insert(rows(200, 20))
    wait_for(lambda: sums(target) == sums_of(table) and len(sums(target)) == 5, "the removals are executed")
    assert_alike(table, target)
    assert len(table.views()) == 1


def test_two_views_write_to_one_table(table: ShardedTable, target: ShardedTable) -> None:
    table.create_view("low", "t", SUMS, where="k < 120", group_by="g")
    table.create_view("high", "t", SUMS, where="k >= 120", group_by="g")
    table.insert(rows(100, 40))
    assert_alike(table, target)


def test_what_is_not_possible_is_refused(table: ShardedTable, target: ShardedTable, connection: Connection) -> None:
    connection.create_table("plain", "g bigint not null, n bigint, s bigint", order_by="g")
    chain = connection.create_table("chain", "g bigint not null, n bigint", order_by="g", shard_by="g")
    with pytest.raises(BadInput, match="table 'plain' is not sharded"):
        table.create_view("v", "plain", SUMS, group_by="g")
    with pytest.raises(TableNotFound):
        table.create_view("v", "nothing", SUMS, group_by="g")
    with pytest.raises(BadInput, match="its own source"):
        table.create_view("v", "d", {"k": "k"})
    with pytest.raises(BadInput, match="has no column 'x'"):
        table.create_view("v", "t", {"x": "k"})
    table.create_view("v", "t", SUMS, group_by="g")
    with pytest.raises(BadInput, match="has a materialised view 'v' already"):
        table.create_view("v", "t", SUMS, group_by="g")
    with pytest.raises(BadInput, match="t is the target of a materialised view"):
        target.create_view("next", "chain", {"g": "g", "n": "n"})
    with pytest.raises(BadInput, match="d has materialised views itself"):
        chain.create_view("next", "d", {"k": "g"})
    with pytest.raises(BadInput, match="can't wait for a quorum"):
        table.insert(rows(100, 10), quorum=2)
    for name in ("d", "t"):
        with pytest.raises(BadInput, match="replitree view drop"):
            connection.drop_table(name)
    assert_alike(table, target)


def test_an_insert_that_a_view_can_not_compute_changes_nothing(table: ShardedTable, target: ShardedTable) -> None:
    table.create_view("v", "t", {"g": "k % (k - 7000)", "n": "count(*)"}, group_by="g", backfill=False)
    with pytest.raises(BadInput, match="no value for a row"):
        table.insert(rows(6995, 10))
    assert sums(target, level="linearizable") == {}
    assert table.scan(level="linearizable").count() == 40


def test_columns_that_a_view_needs_can_not_go(table: ShardedTable, connection: Connection) -> None:
    copy = connection.create_table("c", "k bigint not null, w bigint, x bigint", order_by="k", shard_by="k", shards=1)
    table.alter("add column more bigint")
    table.create_view("v", "c", {"k": "k", "w": "more"}, backfill=False)
    with pytest.raises(BadInput, match="materialised view v into c would break"):
        table.alter("drop column more")
    with pytest.raises(BadInput, match="a materialised view of d would break"):
        copy.alter("drop column w")
    table.alter("add column other bigint")
    copy.alter("drop column x")
    table.insert(rows(100, 10))
    assert copy.scan(level="linearizable").count() == 10
    table.drop_view("v")
    table.alter("drop column more")
    copy.alter("drop column w")


def test_a_batch_of_a_stream_goes_through_the_view_once(table: ShardedTable, target: ShardedTable) -> None:
    table.create_view("v", "t", SUMS, group_by="g")
    for _ in range(2):
        table.insert(rows(100, 10), txn_app_id="s", txn_version=1)
    assert_alike(table, target)
    assert table.scan(level="linearizable").count() == 50


def test_large_inserts_go_through_the_view_as_uploads(
    table: ShardedTable, target: ShardedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.create_view("v", "t", SUMS, group_by="g")
    monkeypatch.setattr("replitree.client.sharded.insert.joint.REQUEST_ROWS_MAX", 4)
    table.insert(rows(100, 200))
    assert_alike(table, target)


# --- the rows from before ---------------------------------------------------------------------------------------------------


def test_a_backfill_that_was_cut_off_goes_on_and_is_inserted_once(
    table: ShardedTable, target: ShardedTable, cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(JointInserter, "fill", die)
        with pytest.raises(KeyboardInterrupt):
            table.create_view("v", "t", SUMS, group_by="g")
    assert not table.views()[0].is_filled
    # What comes meanwhile is seen by the view, and the backfill has what was there before.
    table.insert(rows(100, 10))
    table.truncate()
    for name in table.info.names:
        cluster.wait_alike(name)
    assert sums(target, level="linearizable") == {g: (2, 200 + 2 * g + 5) for g in range(5)}
    assert table.backfill_view("v").outcome == "inserted"
    assert table.backfill_view("v").outcome == "duplicate"
    expected = {g: (10, sum(range(g, 40, 5)) + 200 + 2 * g + 5) for g in range(5)}
    assert sums(target, level="linearizable") == expected
    assert table.views()[0].is_filled
    assert table.tags() == ()


def test_a_backfill_of_an_empty_source_is_marked(connection: Connection, target: ShardedTable) -> None:
    empty = connection.create_table("e", SCHEMA, order_by="k", shard_by="k", buckets=16)
    empty.create_view("v", "t", SUMS, group_by="g")
    assert empty.views()[0].is_filled
    assert empty.backfill_view("v").outcome == "duplicate"


def test_a_backfill_that_comes_late_inserts_nothing(
    table: ShardedTable, target: ShardedTable, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.create_view("v", "t", SUMS, group_by="g", backfill=False)
    view, place = table.views()[0], layout.sharded(ROOT, "d")
    beginning = connection.catalog.run(read_beginning(place, fx.EntryId(view.id)))
    assert beginning is not None
    # As if another client had filled the view after this one has looked.
    late = ViewBeginning(beginning.at, is_open=True)
    monkeypatch.setattr(ShardedTable, "_beginning", lambda *_: late)
    with pytest.raises(BadInput, match="filled or dropped meanwhile"):
        table.backfill_view("v")
    monkeypatch.undo()
    assert sums(target, level="linearizable") == {}
    assert table.backfill_view("v").outcome == "duplicate"


# --- others -----------------------------------------------------------------------------------------------------------------


def test_a_lost_answer_of_a_creation_is_settled_by_its_id(
    table: ShardedTable, target: ShardedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    perform, lost = MemoryCoordination.perform, list[bool]()

    def answer(self: MemoryCoordination, effect: Any) -> Any:
        outcome = perform(self, effect)
        is_it = isinstance(effect, fx.Commit) and any(each.path.endswith("/views") for each in effect.operations)
        if is_it and not lost:
            lost.append(True)
            return fx.Unknown()
        return outcome

    monkeypatch.setattr(MemoryCoordination, "perform", answer)
    table.create_view("v", "t", SUMS, group_by="g")
    assert lost
    assert len(table.views()) == 1
    lost.clear()
    table.drop_view("v")
    assert lost
    assert table.views() == ()


def test_a_client_that_does_not_know_views_reads_no_map(
    table: ShardedTable, target: ShardedTable, cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.create_view("v", "t", SUMS, group_by="g")
    path = layout.shard_map(layout.sharded(ROOT, "d"))
    node = cluster.admin.perform(fx.Get(path))
    assert node is not None
    assert decode_map(node.value, path).format == 3
    monkeypatch.setattr("replitree.protocol.sharded.shard_map.MAP_FORMAT", 2)
    with pytest.raises(UnsupportedFormat, match="has format 3"):
        decode_map(node.value, path)


def test_doctor_tells_of_a_backfill_that_is_open(
    table: ShardedTable, target: ShardedTable, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OutcomeUnknown("lost", "v")

    monkeypatch.setattr(JointInserter, "fill", fail)
    with pytest.raises(OutcomeUnknown):
        table.create_view("v", "t", SUMS, group_by="g")
    monkeypatch.undo()
    found = [each for each in examine(connection.look_over()) if each.code == "backfill-open"]
    assert [each.table for each in found] == ["d~0"]
    assert "replitree view backfill d v" in found[0].advice
    table.backfill_view("v")
    assert "backfill-open" not in {each.code for each in examine(connection.look_over())}


def test_rows_that_go_through_files_are_seen_once(
    table: ShardedTable, target: ShardedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.create_view("v", "t", SUMS, group_by="g")
    monkeypatch.setattr(slices, "SLICE_ROWS_MAX", 50)
    monkeypatch.setattr(held_rows, "SLICE_ROWS_MAX", 50)
    monkeypatch.setattr(joint, "REQUEST_ROWS_MAX", 20)
    for outcome in ("inserted", "duplicate"):
        assert table.insert(rows(40, 400), token="large").outcome == outcome
    assert table.scan(level="linearizable").count() == 440
    assert sums(target, level="linearizable") == sums_of(table, level="linearizable")
    # One insert has one row for each group, however many slices it had.
    assert target.history(1)[0].rows == 5
    unnamed = [table.insert(rows(1_000, 100)).outcome for _ in range(2)]
    assert unnamed == ["inserted", "duplicate"]


def test_what_replaces_rows_is_refused_beside_a_view(table: ShardedTable, target: ShardedTable) -> None:
    at = table.cut_now("linearizable")
    table.create_view("v", "t", SUMS, group_by="g")
    with pytest.raises(BadInput, match="has materialised views"):
        table.insert(rows(0, 5), overwrite="all")
    with pytest.raises(BadInput, match="has materialised views"):
        table.restore_to(at)
    assert table.scan(level="linearizable").count() == 40
    assert sums(target, level="linearizable") == sums_of(table, level="linearizable")
