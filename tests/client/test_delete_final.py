"""Final deletes: whole keys go, and what is inserted between the read and the command survives exactly when it should.

Parts are files; the condition that the client sends is applied to rows as a replica does.
"""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replitree.client.change import delete_final
from replitree.client.change.delete_final import final_delete
from replitree.client.read.snapshot import Snapshot
from replitree.client.table import Table
from replitree.client.transport.catalog import this_machine
from replitree.errors import BadInput
from replitree.storage.schema.definition import TableDefinition, define_table
from replitree.storage.schema.partition import partition_id
from replitree.storage.sql.expression import where_true
from replitree.storage.sql.mutation import delete_where
from replitree.storage.sql.predicate_parser import parse_predicate
from tests.client.conftest import FakeCluster
from tests.client.test_changes import DONE
from tests.client.test_final import publish
from tests.client.test_snapshot import serve

Row = tuple[Any, ...]

SCHEMA = "p int, a bigint, b string, v int, s string"
TABLE = define_table("t", SCHEMA, order_by="a, b", partition_by="p", policy="replacing(v)")
WHERE = "s = 'x'"


def snapshot(folder: Path, definition: TableDefinition, inserts: list[list[Row]]) -> Snapshot:
    folder.mkdir(exist_ok=True)
    parts = tuple(publish(folder, definition, inserts))
    return Snapshot(definition, len(inserts), "r1", parts, this_machine(), None)  # type: ignore[arg-type]  # all files are here


def deleted(definition: TableDefinition, where: str, partition: str | None, rows: list[Row]) -> list[bool]:
    """Tell of each row whether the DELETE removes it, as a replica would; partitions are by the first column's value."""
    condition = delete_where(where, definition, partition=partition)
    batch = pa.RecordBatch.from_pylist(
        [dict(zip(definition.arrow_schema.names, row, strict=True)) for row in rows], schema=definition.arrow_schema
    )
    matched = where_true(parse_predicate(condition.where, definition), batch)
    here = [partition in (None, partition_id([row[0]], definition)) for row in rows]
    return [bool(one and two) for one, two in zip(matched, here, strict=True)]


def age(row: Row) -> int:
    return -1 if row[3] is None else int(row[3])


rows = st.tuples(
    st.sampled_from([None, 0, 1]),
    st.sampled_from([None, 1, -2]),
    st.sampled_from([None, "it's", "\\"]),
    st.sampled_from([None, 0, 1, 2]),
    st.sampled_from([None, "x", "o"]),
)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=60)
@given(
    inserts=st.lists(st.lists(rows, min_size=1, max_size=5), min_size=1, max_size=3), later=st.lists(rows, max_size=6)
)
def test_keys_go_and_rows_in_between_survive_exactly_when_they_win_and_do_not_match(
    tmp_path_factory: pytest.TempPathFactory, inserts: list[list[Row]], later: list[Row]
) -> None:
    shown = snapshot(tmp_path_factory.mktemp("parts"), TABLE, inserts)
    before = [row for insert in inserts for row in insert]
    winners: dict[Row, Row] = {}
    for row in before:
        if row[:3] not in winners or age(row) >= age(winners[row[:3]]):
            winners[row[:3]] = row
    doomed = {key: age(row) for key, row in winners.items() if row[4] == "x"}
    if any(doomed.get(row[:3]) == age(row) and row[4] != "x" for row in before):
        with pytest.raises(BadInput, match="would come back"):
            final_delete(shown, WHERE)
        return
    where, partition = final_delete(shown, WHERE)
    if before:
        assert deleted(TABLE, where, partition, before) == [row[:3] in doomed for row in before]
    if later:
        assert deleted(TABLE, where, partition, later) == [
            row[:3] in doomed and (age(row) < doomed[row[:3]] or (age(row) == doomed[row[:3]] and row[4] == "x"))
            for row in later
        ]


INSTANT = dt.datetime(2024, 2, 29, 23, 59, 59, 999_999, dt.UTC)
DAY = INSTANT.replace(tzinfo=None)
KEYS: list[tuple[str, Any]] = [
    ("bigint", -(2**63)),
    ("boolean", False),
    ("boolean", True),
    ("decimal(38,10)", Decimal("-1E+3")),
    ("date", dt.date(1, 1, 1)),
    ("timestamp_ntz", DAY),
    ("timestamp", INSTANT),
    ("binary", b""),
    ("binary", b"\x00'"),
]


@pytest.mark.parametrize(("kind", "key"), KEYS, ids=str)
def test_key_of_every_type_is_written_as_it_is(tmp_path: Path, kind: str, key: Any) -> None:
    definition = define_table("t", f"p int, k {kind}, v timestamp_ntz, s string", order_by="k", policy="replacing(v)")
    row = (None, key, DAY, "x")
    where, _ = final_delete(snapshot(tmp_path, definition, [[row], [(None, None, None, "o")]]), WHERE)
    assert deleted(definition, where, None, [row, (None, None, None, "o")]) == [True, False]


@given(key=st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=12))
def test_text_is_written_as_it_is(key: str) -> None:
    definition = define_table("t", "k string", order_by="k")
    written = delete_final._literal(pa.scalar(key))  # noqa: SLF001
    rows = pa.RecordBatch.from_pylist([{"k": key}, {"k": key + "x"}], schema=definition.arrow_schema)
    assert where_true(parse_predicate(delete_where(f"k = {written}", definition).where, definition), rows).tolist() == [
        True,
        False,
    ]


def test_partitions_that_hold_the_same_key_are_told_apart_by_their_bounds(tmp_path: Path) -> None:
    definition = define_table(
        "t", "d date, k int, v int, s string", order_by="k", partition_by="month(d)", policy="replacing(v)"
    )
    first, last, next_month, other = (dt.date(2024, *day) for day in ((1, 1), (1, 31), (2, 1), (3, 1)))
    inserts: list[list[Row]] = [
        [(first, 1, 1, "o"), (last, 1, 2, "x")],
        [(next_month, 1, 1, "o"), (other, 1, 9, "x"), (None, 1, 9, "x")],
    ]
    where, partition = final_delete(snapshot(tmp_path, definition, inserts), WHERE)
    assert partition is None
    batch = pa.RecordBatch.from_pylist(
        [{"d": day, "k": 1, "v": 1, "s": "o"} for day in (first, last, next_month, other, None)],
        schema=definition.arrow_schema,
    )
    assert where_true(parse_predicate(where, definition), batch).tolist() == [True, True, False, True, True]
    assert final_delete(snapshot(tmp_path / "2", definition, inserts), WHERE, "2024-01")[1] == "2024-01"


def test_buckets_that_hold_several_keys_are_deleted_one_by_one(tmp_path: Path) -> None:
    schema = "d int, k int, v int, s string"
    definition = define_table("t", schema, order_by="k", partition_by="bucket(4,d)", policy="replacing(v)")
    shown = snapshot(tmp_path, definition, [[(day, day, 1, "x") for day in range(20)]])
    with pytest.raises(BadInput, match="give partition="):
        final_delete(shown, WHERE)
    where, partition = final_delete(shown, WHERE, "0")
    assert partition == "0"
    assert "IN" in where
    by_key = define_table("t", schema, order_by="k", partition_by="bucket(4,k)", policy="replacing(v)")
    assert final_delete(snapshot(tmp_path / "2", by_key, [[(d, d, 1, "x") for d in range(20)]]), WHERE)[1] is None


@pytest.mark.parametrize(
    ("order_by", "policy", "why"),
    [
        ("k", "replacing", "last inserted"),
        ("k", "summing(v)", "adds"),
        ("k", "plain", "keeps every row"),
        ("f", "replacing(v)", "floating-point"),
    ],
)
def test_tables_without_a_deciding_version_refuse(tmp_path: Path, order_by: str, policy: str, why: str) -> None:
    definition = define_table("t", "p int, k int, f double, v int", order_by=order_by, policy=policy)
    with pytest.raises(BadInput, match=why):
        final_delete(snapshot(tmp_path, definition, [[(0, 1, 1.0, 1)]]), "k = 1")


@pytest.mark.parametrize("where", ["s = 'x') OR (true", "s = 'x' -- )", "nope = 1", ""])
def test_condition_is_one_condition_by_itself(tmp_path: Path, where: str) -> None:
    with pytest.raises(BadInput):
        final_delete(snapshot(tmp_path, TABLE, [[(0, 1, "b", 1, "x")]]), where)


def test_too_many_keys_are_deleted_in_smaller_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = snapshot(tmp_path, TABLE, [[(0, number, "b", number, "x") for number in range(40)]])
    assert final_delete(shown, WHERE)[1] == "0"
    monkeypatch.setattr(delete_final, "FINAL_CONDITIONS_MAX", 39)
    with pytest.raises(BadInput, match=r"40 keys need 40 conditions.*smaller steps"):
        final_delete(shown, WHERE)
    monkeypatch.setattr(delete_final, "FINAL_KEYS_MAX", 39)
    with pytest.raises(BadInput, match=r"more than 39 keys.*smaller steps"):
        final_delete(shown, WHERE)


def test_client_reads_linearizably_and_sends_one_delete(cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.create("t", SCHEMA, order_by="a, b", partition_by="p", policy="replacing(v)")
    replica = cluster.add_replica("t", "r1")
    replica.answers = {"POST mutations": DONE}
    table: Table = cluster.connect().table("t")
    parts = publish(tmp_path, table.definition, [[(0, 1, "b", 1, "o")], [(0, 1, "b", 2, "x")]])
    serve(replica, [(part.part, Path(part.path), part.manifest) for part in parts], index=2)
    replica.snapshot = {**replica.snapshot, "level": "linearizable"}
    assert table.delete(WHERE, final=True, command_id="again").finished
    assert next(seen for seen in replica.seen if seen.method == "GET").query["level"] == "linearizable"
    (sent,) = [json.loads(seen.body) for seen in replica.seen if seen.method == "POST" and seen.body]
    condition = "(`a` = 1 AND `b` = 'b' AND (`v` IS NULL OR `v` < 2 OR (`v` = 2 AND (s = 'x'))))"
    assert sent == {"id": "again", "kind": "delete", "where": condition, "assignments": [], "partition": "0"}
    assert table.delete("s = 'nothing'", final=True).finished
    assert json.loads(replica.seen[-1].body or b"{}").get("where", "false") == "false"
