"""What a materialised view makes of rows, and what it refuses before a table has it."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pytest

from replitree.errors import BadInput, UnsupportedFormat
from replitree.storage.parts.conform import conform
from replitree.storage.schema.definition import TableDefinition, define_table
from replitree.storage.sql.alter_parser import parse_alter
from replitree.storage.sql.evolve import apply_alter
from replitree.storage.sql.view import ViewFailed, broken_by, decode_view, new_view, unwritable_after

SOURCE = define_table("events", "d date, k bigint not null, v int, x double, s string")
SUMS = define_table("sums", "d date, n bigint, v bigint", order_by="d", policy="summing(n, v)")
PLAIN = define_table("rows", "k bigint, t string, least int, most int")
LATEST = define_table("latest", "k bigint, v int, version bigint", order_by="k", policy="replacing(version)")
SELECT = {"d": "d", "n": "count(*)", "v": "sum(v)"}


def rows(count: int) -> pa.Table:
    data = [
        {"d": date(2024, 1, 1 + key % 2), "k": key, "v": key if key % 5 else None, "x": key / 2, "s": f"s{key % 3}"}
        for key in range(count)
    ]
    return conform(data, SOURCE)


def by_day(table: pa.Table) -> dict[int, tuple[int, int | None]]:
    return {row["d"].day: (row["n"], row["v"]) for row in table.to_pylist()}


def test_rows_are_grouped_and_the_groups_of_batches_are_those_of_all_rows() -> None:
    view = new_view(SELECT, "k < 8", ["d"], SOURCE, SUMS)
    whole = view.rows(rows(10))
    assert by_day(whole) == {1: (4, 12), 2: (4, 11)}
    pieces = [view.rows(rows(10).slice(first, 3)) for first in range(0, 10, 3)]
    assert by_day(view.regrouped(pa.concat_tables(pieces))) == by_day(whole)
    assert view.rows(SOURCE.arrow_schema.empty_table()).num_rows == 0
    assert whole.schema == SUMS.arrow_schema


def test_rows_stay_rows_without_groups() -> None:
    view = new_view({"k": "k", "t": "upper(s)", "most": "v"}, "x > 1.5", (), SOURCE, PLAIN)
    assert view.rows(rows(6)).to_pylist() == [
        {"k": 4, "t": "S1", "least": None, "most": 4},
        {"k": 5, "t": "S2", "least": None, "most": None},
    ]
    assert view.columns == {"k", "s", "v", "x"}


def test_counts_of_values_leave_nulls_out_and_a_plain_target_has_extremes() -> None:
    target = define_table("g", "s string, n bigint, least int, most int")
    view = new_view({"s": "s", "n": "count(v)", "least": "min(v)", "most": "max(v)"}, "", "s", SOURCE, target)
    assert sorted(tuple(row.values()) for row in view.rows(rows(7)).to_pylist()) == [
        ("s0", 2, 3, 6),
        ("s1", 2, 1, 4),
        ("s2", 1, 2, 2),
    ]


def test_a_list_of_names_takes_columns_as_they_are() -> None:
    view = new_view(["k"], "", (), SOURCE, PLAIN)
    assert view.command.select == (("k", "k"),)
    assert decode_view(view.command.encode()) == view.command
    with pytest.raises(UnsupportedFormat):
        decode_view('{"format":2,"select":[["k","k"]]}')


@pytest.mark.parametrize(
    ("select", "where", "group_by", "target", "problem"),
    [
        ({"nope": "k"}, "", (), PLAIN, "has no column 'nope'"),
        ({"k": "nope"}, "", (), PLAIN, "has no column 'nope'"),
        ({"k": "k"}, "nope > 1", (), PLAIN, "nope"),
        ({}, "", (), PLAIN, "at least one column"),
        ({"k": "max(k)"}, "", (), PLAIN, "say what to group by"),
        ({"k": "k", "most": "v"}, "", ["k"], PLAIN, "use sum, count, min or max"),
        ({"k": "k"}, "", ["least"], PLAIN, "which is no selected column"),
        ({"k": "k", "t": "uuid()"}, "", (), PLAIN, "is not the same on every replica"),
        ({"k": "s"}, "", (), PLAIN, "use cast"),
        ({"k": "k", "v": "max(v)"}, "", ["k"], LATEST, "would replace the aggregates"),
        ({"d": "d", "v": "max(v)"}, "", ["d"], SUMS, "gets a min or a max"),
        ({"d": "d", "n": "n"}, "", (), SUMS, "has no column 'n'"),
        ({"t": "s"}, "", (), define_table("strict", "k bigint not null, t string"), "may not be null"),
    ],
)
def test_what_a_view_can_not_be_is_refused(
    select: dict[str, str], where: str, group_by: list[str], target: TableDefinition, problem: str
) -> None:
    with pytest.raises(BadInput, match=problem):
        new_view(select, where, group_by, SOURCE, target)


def test_a_row_without_a_value_fails_the_view() -> None:
    view = new_view({"k": "100 / k"}, "", (), SOURCE, define_table("q", "k double"))
    with pytest.raises(ViewFailed, match="into q has no value for a row"):
        view.rows(rows(3))
    narrow = define_table("narrow", "d date, v tinyint", order_by="d")
    total = new_view({"d": "d", "v": "sum(cast(v as tinyint))"}, "", "d", SOURCE, narrow)
    assert total.rows(rows(4)).num_rows == 2
    with pytest.raises(ViewFailed, match="can't group its rows"):
        total.rows(conform([{"d": None, "k": key, "v": 100} for key in range(2)], SOURCE))


def test_a_view_is_broken_by_what_takes_or_renames_its_columns() -> None:
    text = new_view(SELECT, "k < 8", ["d"], SOURCE, SUMS).command.encode()

    def after(sql: str, definition: TableDefinition = SOURCE) -> TableDefinition:
        return apply_alter(definition, parse_alter(sql, definition))

    assert broken_by(text, SOURCE, after("add column more string"), SUMS) == ""
    assert broken_by(text, SOURCE, after("drop column s"), SUMS) == ""
    assert "reads column 'v'" in broken_by(text, SOURCE, after("drop column v"), SUMS)
    assert "reads column 'k'" in broken_by(text, SOURCE, after("rename column k to key"), SUMS)
    assert "writes column 'n'" in unwritable_after(text, SUMS, after("rename column n to count", SUMS))
    assert unwritable_after(text, SUMS, after("add column more string", SUMS)) == ""
