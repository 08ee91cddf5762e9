"""Changes of tables against real replica processes and a real ZooKeeper: both replicas show the same afterwards."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pytest

from replitree.client.change import delete_final
from replitree.client.change.delete_final import final_delete
from replitree.client.cluster import LocalCluster
from replitree.client.table import Table
from replitree.errors import BadInput, LeaseLost, SchemaMismatch

pytestmark = pytest.mark.system

MONTHS = ("2024-01", "2024-02")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("cluster"), 2, durable=False) as cluster:
        yield cluster


@pytest.fixture
def table(running: LocalCluster, request: pytest.FixtureRequest) -> Iterator[Table]:
    name = "t_" + "".join(c if c.isalnum() else "_" for c in request.node.name)[:50]
    schema = "d date, k bigint not null, v int, s string"
    yield running.create_table(name, schema, order_by="k", partition_by="month(d)", policy="replacing(v)")
    running.drop_table(name)


def rows(start: int, count: int, v: int = 0) -> dict[str, list[Any]]:
    """Even keys in January, odd ones in February."""
    keys = range(start, start + count)
    days = [dt.date(2024, 1 + k % 2, 3) for k in keys]
    return {"d": days, "k": list(keys), "v": [v] * count, "s": [f"s{k}" for k in keys]}


def both(table: Table, columns: tuple[str, ...] = ("k", "v"), *, final: bool = False) -> list[tuple[Any, ...]]:
    """Read at each replica everything that is in the log; they must agree."""
    tail = table.status().log_tail - 1
    found = [
        sorted(
            tuple(row.values()) for row in table.replica(name).to_arrow(columns, None, tail, final=final).to_pylist()
        )
        for name in ("r1", "r2")
    ]
    assert found[0] == found[1]
    return found[0]


def test_mutations_change_what_was_there(table: Table) -> None:
    table.insert(rows(0, 10))
    assert table.delete("k = 3").applied
    result = table.update({"v": "v + 1", "s": "upper(s)"}, "k >= 8", MONTHS[0])
    assert (result.applied, result.finished) == (True, True)
    table.insert(rows(3, 1))
    assert both(table) == [(k, int(k == 8)) for k in range(10)]
    assert table.mutate(f"DELETE FROM {table.name} WHERE k > 5").finished
    assert both(table) == [(k, 0) for k in range(6)]
    first, *_ = table.mutations()
    assert (first.finished, first.parts_left) == (True, 0)
    assert table.kill_mutation(first.index).killed == 0
    with pytest.raises(BadInput):
        table.delete("nope = 1")
    with pytest.raises(BadInput):
        table.update({"k": "1"}, "k = 1")


def test_command_with_the_same_id_is_done_once(table: Table) -> None:
    table.insert(rows(0, 4))
    once, again = (table.update({"v": "v + 1"}, "true", command_id="load 7") for _ in range(2))
    assert once.index == again.index
    assert both(table) == [(k, 1) for k in range(4)]


def test_optimize_merges_and_final_reads_show_what_it_will_leave(table: Table) -> None:
    for v in range(3):
        table.insert(rows(0, 4, v))
    final = both(table, final=True)
    assert final == [(k, 2) for k in range(4)]
    result = table.optimize(final=True)
    assert result.finished
    merged = table.to_arrow(
        ["k", "v"]
    ).to_pylist()  # at the replica that was asked; the other one may merge a moment later
    assert sorted(tuple(row.values()) for row in merged) == final
    assert both(table, final=True) == final
    assert [(p.partition, p.parts, p.level > 0) for p in table.partitions()] == [(m, 1, True) for m in MONTHS]
    assert table.optimize(MONTHS[0], final=True).finished


def test_snapshot_with_a_lease_and_as_of_survive_what_comes_later(table: Table) -> None:
    table.insert(rows(0, 6))
    with table.snapshot(lease_s=5) as snapshot:
        table.insert(rows(0, 6, 1))
        table.optimize(final=True)
        table.truncate()
        assert both(table) == []
        assert sorted(snapshot.to_arrow()["k"].to_pylist()) == list(range(6))
        assert table.to_arrow(as_of=snapshot.index).num_rows == 6
        assert snapshot.lease is not None
        snapshot.lease.handle.release(table.http)
        with pytest.raises(LeaseLost):
            snapshot.lease.handle.renew(table.http)


def test_overwrite_is_one_entry(table: Table) -> None:
    table.insert(rows(0, 6))
    before = table.status().log_tail
    table.insert({"d": [dt.date(2024, 1, 9)], "k": [100]}, overwrite="partitions")
    assert table.status().log_tail == before + 1
    assert both(table) == [(1, 0), (3, 0), (5, 0), (100, None)]
    table.insert(rows(0, 2), overwrite="all")
    table.insert(rows(0, 2), overwrite="all")
    assert both(table) == [(0, 0), (1, 0)]
    assert table.insert({"k": []}, overwrite="all").outcome == "empty"
    assert both(table) == []


def test_drops_detach_and_attach(table: Table) -> None:
    first, second = table.insert(rows(0, 4)), table.insert(rows(4, 4))
    assert first.index is not None
    assert second.index is not None
    assert table.drop_blocks(first.index, first.index).removed == 2
    assert [k for k, _ in both(table)] == [4, 5, 6, 7]
    assert table.drop_partition("1999-01").applied is False
    assert table.detach_partition(MONTHS[0]).removed == 1
    assert [k for k, _ in both(table)] == [5, 7]
    at = table.replica("r2")
    (part,) = at.detached()
    assert (part.rows, part.partition, part.replica) == (2, MONTHS[0], "r2")
    assert at.attach(part.name).rows == 2
    assert at.detached() == ()
    assert [k for k, _ in both(table)] == [4, 5, 6, 7]
    with pytest.raises(BadInput):
        at.attach(part.name)


def test_frozen_snapshot_stays(table: Table) -> None:
    table.insert(rows(0, 4))
    at = table.replica("r1")
    made = at.freeze("before", "for a test")
    assert (made.rows, made.parts) == (4, 2)
    assert table.freeze("before", "for a test") == made, "without a replica: where the name is"
    with pytest.raises(BadInput, match="already"):
        table.freeze("before", "another note")
    table.truncate()
    (found,) = at.frozen()
    assert (found.name, found.rows, found.note, found.replica) == ("before", 4, "for a test", "r1")
    at.remove_frozen("before")
    assert at.frozen() == ()


def test_columns_change_and_old_rows_follow(running: LocalCluster, table: Table) -> None:
    table.insert(rows(0, 2))
    other = running.table(table.name)
    assert table.add_column("x", "int", "7").schema_version == 2
    table.rename_column("s", "name")
    table.widen_column("v", "bigint")
    assert table.schema.names == ["d", "k", "v", "name", "x"]
    assert both(table, ("k", "name", "x")) == [(0, "s0", 7), (1, "s1", 7)]
    assert other.insert({"k": [5], "x": [1]}).outcome == "inserted", "a handle with old columns looks again"
    with pytest.raises(SchemaMismatch):
        other.insert({"k": [6], "s": ["gone"]})
    with pytest.raises(BadInput):
        table.drop_column("k")
    table.drop_column("x")
    assert both(table, ("k", "name")) == [(0, "s0"), (1, "s1"), (5, None)]


def test_paused_merges_go_on(table: Table) -> None:
    assert table.pause_merges() == ("r1", "r2")
    assert table.resume_merges() == ("r1", "r2")


def test_fields_inside_columns_are_altered_without_rewriting_a_part(running: LocalCluster) -> None:
    table = running.create_table(
        "t_inside", "k bigint, r struct<a: int, b: string>, l array<struct<x: int>>", order_by="k"
    )
    table.pause_merges()
    table.insert([{"k": 1, "r": {"a": 1, "b": "x"}, "l": [{"x": 1}, None]}, {"k": 2, "r": None, "l": None}])
    old = table.replica("r1").snapshot().files()
    assert table.rename_column("r.a", "n").schema_version == 2
    assert table.widen_column("r.n", "bigint").schema_version == 3
    assert table.add_column("l.element.y", "string").finished
    assert table.drop_column("r.b").finished
    assert table.add_column("r.b", "int").schema_version == 6
    assert table.replica("r1").snapshot().files() == old
    table.insert([{"k": 3, "r": {"n": 2**40, "b": 7}, "l": [{"x": 3, "y": "y"}]}])
    table.insert([{"k": 4, "r": {"n": 0, "b": 1, "c": True}}], merge_schema=True)
    expected = [
        (1, {"n": 1, "b": None, "c": None}, [{"x": 1, "y": None}, None]),
        (2, None, None),
        (3, {"n": 2**40, "b": 7, "c": None}, [{"x": 3, "y": "y"}]),
        (4, {"n": 0, "b": 1, "c": True}, None),
    ]
    columns = ("k", "r", "l")
    assert both(table, columns) == expected == both(table, columns, final=True)
    table.resume_merges()
    assert table.optimize(final=True).finished
    assert both(table, columns) == expected
    assert table.delete("r.n = 0 OR r IS NULL").finished
    assert table.update({"l": "null"}, "r.b IS NULL").finished
    assert both(table, columns) == [(1, {"n": 1, "b": None, "c": None}, None), expected[2]]
    with pytest.raises(BadInput, match="a struct has at least one field"):
        table.alter("DROP COLUMN l.element.x, DROP COLUMN l.element.y")
    with pytest.raises(BadInput, match="copy the rows into a new table"):
        table.alter("ALTER COLUMN k SET NOT NULL")
    running.drop_table("t_inside")


def versions(*given: tuple[int, int, int, str]) -> dict[str, list[Any]]:
    """Rows of month, key, version and state."""
    columns = zip(*given, strict=True)
    months, keys, numbers, states = (list(column) for column in columns)
    return {"d": [dt.date(2024, month, 3) for month in months], "k": keys, "v": numbers, "s": states}


def test_final_delete_removes_every_version_of_the_keys_whose_last_row_matches(table: Table) -> None:
    table.insert(versions((1, 1, 1, "active"), (1, 2, 1, "closed"), (2, 1, 1, "active"), (1, 3, 5, "closed")))
    table.insert(versions((1, 1, 2, "closed"), (1, 2, 2, "active"), (2, 4, 1, "closed"), (1, 3, 6, "closed")))
    result = table.delete("s = 'closed'", final=True)
    assert (result.applied, result.finished) == (True, True)
    assert both(table, ("d", "k", "v", "s")) == [
        (dt.date(2024, 1, 3), 2, 1, "closed"),
        (dt.date(2024, 1, 3), 2, 2, "active"),
        (dt.date(2024, 2, 3), 1, 1, "active"),
    ]
    nothing = table.delete("s = 'no such state'", final=True)
    assert (nothing.applied, nothing.finished) == (False, True)


def test_rows_that_are_inserted_between_the_read_and_the_command_survive_if_they_win_and_do_not_match(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = range(1, 6)
    table.insert(versions(*((1, k, 1, "active") for k in keys), *((1, k, 3, "closed") for k in keys)))

    def late(*arguments: Any) -> tuple[str, str | None]:
        found = final_delete(*arguments)
        higher = ((1, 1, 4, "active"), (1, 2, 4, "closed"))
        equal_or_lower = ((1, 3, 3, "active"), (1, 4, 3, "closed"), (1, 5, 2, "active"))
        table.insert(versions(*higher, *equal_or_lower))
        return found

    monkeypatch.setattr(delete_final, "final_delete", late)
    assert table.delete("s = 'closed'", final=True).finished
    assert both(table, ("k", "v", "s")) == [(1, 4, "active"), (2, 4, "closed"), (3, 3, "active")]


def test_key_whose_losing_row_has_the_same_version_and_does_not_match_is_named(table: Table) -> None:
    table.insert(versions((1, 7, 1, "active")))
    table.insert(versions((1, 7, 1, "closed")))
    with pytest.raises(BadInput, match=r"`k` = 7 has two rows of the version 1.*higher version"):
        table.delete("s = 'closed'", final=True)
    table.insert(versions((1, 7, 2, "closed")))
    assert table.delete("s = 'closed'", final=True).applied
    assert both(table) == []
