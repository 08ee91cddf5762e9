from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replitree.storage.parts.order import sort_rows
from replitree.storage.rewrite.merge_reduce import reducer_of
from replitree.storage.schema.definition import TableDefinition, define_table
from tests.storage.merging import final_rows

INT64 = 2**63

keys = st.one_of(st.none(), st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf]))


def _reduced(rows: pa.Table, definition: TableDefinition, cuts: list[int]) -> pa.Table:
    """Apply the policy to sorted rows that come in pieces."""
    reducer = reducer_of(definition)
    assert reducer is not None
    ends = [*sorted(min(cut, rows.num_rows) for cut in cuts), rows.num_rows]
    starts = [0, *ends[:-1]]
    pieces = [reducer.reduce(rows.slice(start, end - start)) for start, end in zip(starts, ends, strict=True)]
    return pa.concat_tables([*pieces, reducer.finish()])


def _key(value: float | None) -> Any:
    return "nan" if value is not None and math.isnan(value) else value


def _groups(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    groups: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(_key(row["k"]), []).append(row)
    return list(groups.values())


# --- replacing --------------------------------------------------------------------------------------------------------------

replaced = st.lists(
    st.fixed_dictionaries(
        {"k": keys, "v": st.one_of(st.none(), st.integers(-2, 2), st.sampled_from([-INT64, INT64 - 1]))}
    ),
    max_size=20,
)


@given(replaced, st.lists(st.integers(0, 20), max_size=4))
def test_replacing_keeps_the_highest_version_and_of_equal_ones_the_last(rows: list[Any], cuts: list[int]) -> None:
    definition = define_table("t", "k double, v bigint, n bigint", order_by="k", policy="replacing(v)")
    numbered = [{**row, "n": number} for number, row in enumerate(rows)]
    table = sort_rows(pa.Table.from_pylist(numbered, definition.arrow_schema), ["k"])
    expected = [
        max(group, key=lambda row: (row["v"] is not None, row["v"] or 0, row["n"]))["n"]
        for group in _groups(table.to_pylist())
    ]
    found = _reduced(table, definition, cuts)
    assert found.column("n").to_pylist() == expected
    assert found.schema.equals(definition.arrow_schema)


@given(replaced, st.lists(st.integers(0, 20), max_size=4))
def test_replacing_without_version_keeps_the_last_inserted(rows: list[Any], cuts: list[int]) -> None:
    definition = define_table("t", "k double, v bigint, n bigint", order_by="k", policy="replacing")
    numbered = [{**row, "n": number} for number, row in enumerate(rows)]
    table = sort_rows(pa.Table.from_pylist(numbered, definition.arrow_schema), ["k"])
    expected = [group[-1]["n"] for group in _groups(table.to_pylist())]
    assert _reduced(table, definition, cuts).column("n").to_pylist() == expected


@pytest.mark.parametrize("kind", ["tinyint", "int", "bigint", "date", "timestamp", "timestamp_ntz"])
def test_a_version_may_be_a_whole_number_a_date_or_a_timestamp(kind: str) -> None:
    definition = define_table("t", f"k int, v {kind}, n int", order_by="k", policy="replacing(v)")
    arrow = definition.column("v").arrow_type
    versions = pa.array([3, None, 7, 7, -5], pa.int32()).cast(pa.int64())
    plain = pa.int32() if pa.types.is_date(arrow) else pa.int64()
    version = versions.cast(plain).cast(arrow)
    rows = pa.table({"k": [1] * 5, "v": version, "n": range(5)}).cast(definition.arrow_schema)
    assert final_rows([rows], definition).column("n").to_pylist() == [3]


# --- summing ----------------------------------------------------------------------------------------------------------------

SUMMING = define_table(
    "t",
    "k double, i tinyint, x double, f float, m decimal(4,2), o bigint not null, n bigint",
    order_by="k",
    policy="summing(i, x, f, m, o)",
)

summed = st.lists(
    st.fixed_dictionaries(
        {
            "k": keys,
            "i": st.one_of(st.none(), st.integers(-128, 127)),
            "x": st.one_of(st.none(), st.floats()),
            "f": st.one_of(st.none(), st.floats(width=32)),
            "m": st.one_of(st.none(), st.integers(-9999, 9999).map(lambda n: Decimal(n).scaleb(-2))),
            "o": st.one_of(st.integers(-3, 3), st.integers(-INT64, INT64 - 1)),
        }
    ),
    max_size=20,
)


def _rows(rows: list[Any]) -> pa.Table:
    numbered = [{**row, "n": number} for number, row in enumerate(rows)]
    return sort_rows(pa.Table.from_pylist(numbered, SUMMING.arrow_schema), ["k"])


@given(summed, st.lists(st.integers(0, 20), max_size=4))
def test_sums_do_not_depend_on_where_a_window_ends(rows: list[Any], cuts: list[int]) -> None:
    table = _rows(rows)
    whole = _reduced(table, SUMMING, [])
    assert repr(_reduced(table, SUMMING, cuts).to_pylist()) == repr(whole.to_pylist())
    assert whole.schema.equals(SUMMING.arrow_schema)


@given(summed)
def test_rows_of_a_key_become_one_for_as_long_as_their_sums_fit(rows: list[Any]) -> None:
    table = _rows(rows)
    expected = [total for group in _groups(table.to_pylist()) for total in _totals(group)]
    found = [{name: row[name] for name in ("i", "m", "o", "n")} for row in _reduced(table, SUMMING, []).to_pylist()]
    kept = [total for total in expected if total["n"] in {row["n"] for row in found}]
    assert found == kept
    dropped = [total for total in expected if total not in kept]
    assert all(not (total["i"] or total["m"] or total["o"]) for total in dropped)


def _totals(group: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same in plain Python, with numbers that never overflow; floating point is left to the other tests."""
    limits = {"i": (-128, 127), "m": (Decimal("-99.99"), Decimal("99.99")), "o": (-INT64, INT64 - 1)}
    totals: list[dict[str, Any]] = []
    for row in group:
        added = {name: _plus(totals[-1][name], row[name]) for name in limits} if totals else {}
        if totals and all(added[name] is None or low <= added[name] <= high for name, (low, high) in limits.items()):
            totals[-1] |= added
        else:
            totals.append({name: row[name] for name in (*limits, "n")})
    return totals


def _plus(a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else a + b


def test_numbers_are_added_and_nulls_are_not() -> None:
    rows = [
        {"k": 1.0, "i": 1, "x": 0.5, "f": 0.25, "m": Decimal("1.10"), "o": 1},
        {"k": 1.0, "i": None, "x": 0.25, "f": None, "m": Decimal("2.05"), "o": 2},
        {"k": 2.0, "i": None, "x": None, "f": None, "m": None, "o": 5},
    ]
    assert _reduced(_rows(rows), SUMMING, []).to_pylist() == [
        {"k": 1.0, "i": 1, "x": 0.75, "f": 0.25, "m": Decimal("3.15"), "o": 3, "n": 0},
        {"k": 2.0, "i": None, "x": None, "f": None, "m": None, "o": 5, "n": 2},
    ]


def test_a_row_that_adds_nothing_is_left_out() -> None:
    definition = define_table("t", "k int, v int, x double", order_by="k", policy="summing")
    rows = [(1, 5, 1.0), (1, -5, -1.0), (2, 0, 0.0), (3, None, None), (4, 0, math.nan), (5, 0, -0.0), (6, 1, 0.0)]
    table = pa.Table.from_pylist([dict(zip("kvx", row, strict=True)) for row in rows], definition.arrow_schema)
    assert final_rows([table], definition).column("k").to_pylist() == [4, 6]


def test_float_columns_are_rounded_once() -> None:
    definition = define_table("t", "k int, f float", order_by="k", policy="summing")
    tiny = 2.0**-29
    values = [1.0, *[tiny] * 64]
    table = pa.table({"k": [1] * 65, "f": values}).cast(definition.arrow_schema)
    assert final_rows([table], definition).column("f").to_pylist() == [1.0 + 64 * tiny]
    assert _reduced(table, definition, list(range(65))).column("f").to_pylist() == [1.0 + 64 * tiny]


def test_a_sum_that_does_not_fit_stays_several_rows() -> None:
    definition = define_table("t", "k int, v bigint, s string", order_by="k", policy="summing")
    big = INT64 - 2
    table = pa.table({"k": [1] * 4, "v": [big, 1, 1, 1], "s": ["a", "b", "c", "d"]}).cast(definition.arrow_schema)
    assert final_rows([table], definition).to_pylist() == [
        {"k": 1, "v": INT64 - 1, "s": "a"},
        {"k": 1, "v": 2, "s": "c"},
    ]


def test_the_widest_decimals_are_added_exactly() -> None:
    definition = define_table("t", "k int, m decimal(38,0)", order_by="k", policy="summing")
    most = 10**38 - 1
    table = pa.table({"k": [1, 1, 2, 2], "m": pa.array([Decimal(most), Decimal(1), Decimal(most - 1), Decimal(1)])})
    found = final_rows([table.cast(definition.arrow_schema)], definition)
    assert [int(value) for value in found.column("m").to_pylist()] == [most, 1, most]


# --- both -------------------------------------------------------------------------------------------------------------------


def test_a_final_read_of_a_plain_table_is_sorted() -> None:
    definition = define_table("t", "k int, s string", order_by="k")
    tables = [pa.table({"k": [2, 3], "s": ["a", "b"]}), pa.table({"k": [1, 2], "s": ["c", "d"]})]
    found = final_rows([table.cast(definition.arrow_schema) for table in tables], definition)
    assert found.column("s").to_pylist() == ["c", "a", "d", "b"]
    assert final_rows([], definition).equals(definition.arrow_schema.empty_table())
