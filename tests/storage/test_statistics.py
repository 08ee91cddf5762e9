from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replitree.storage.parts.manifest import ColumnStats, decode_manifest
from replitree.storage.parts.statistics import (
    StatisticsCollector,
    column_statistics,
    lower_bound,
    table_statistics,
    upper_bound,
)
from tests.storage.support import PLAIN_TYPES, arrays, bench_table
from tests.storage.test_manifest import manifest


def _comparable(array: pa.Array) -> list[Any]:
    present = array.drop_null()
    return [v.value if pa.types.is_temporal(array.type) else v.as_py() for v in present]


@given(st.sampled_from(PLAIN_TYPES).flatmap(arrays))
def test_bounds_hold_for_every_value_also_after_json(array: pa.Array) -> None:
    stats = column_statistics(pa.chunked_array([array]))
    again = decode_manifest(manifest(columns={"c": stats}).encode()).columns["c"]
    assert again == stats
    assert stats.nulls == array.null_count
    for value in _comparable(array):
        if not (isinstance(value, float) and math.isnan(value)):
            assert again.low is None or again.low <= value
            assert again.high is None or again.high >= value


@given(st.lists(st.text(max_size=80), min_size=1))
def test_bounds_of_long_strings_hold(values: list[str]) -> None:
    low, high = lower_bound(min(values)), upper_bound(max(values))
    assert isinstance(low, str)
    assert len(low) <= 64
    assert low <= min(values)
    assert high is None or (isinstance(high, str) and len(high) <= 64 and high >= max(values))


@pytest.mark.parametrize(
    ("value", "bound"),
    [
        ("b" * 65, "b" * 63 + "c"),
        ("a" * 63 + "\U0010ffff" + "z", "a" * 62 + "b"),
        ("\U0010ffff" * 65, None),
        ("a" * 63 + "\ud7ff" + "z", "a" * 63 + "\ue000"),
        (b"\x01" * 63 + b"\xff\xff", (b"\x01" * 62 + b"\x02").hex()),
        (b"\xff" * 65, None),
        (b"\xff" * 64, (b"\xff" * 64).hex()),
        (Decimal("1E+2"), "100"),
    ],
)
def test_upper_bounds_of_long_values_are_the_next_higher_short_ones(value: Any, bound: str | None) -> None:
    assert upper_bound(value) == bound


def test_not_a_number_and_infinity_leave_the_bound_open() -> None:
    nan = column_statistics(pa.chunked_array([[1.0, float("nan")]]))
    assert (nan.min, nan.max) == (None, None)
    infinite = column_statistics(pa.chunked_array([[float("-inf"), 1.0]]))
    assert (infinite.min, infinite.max) == (None, 1.0)


def test_a_column_of_nulls_has_no_bounds() -> None:
    assert column_statistics(pa.chunked_array([pa.nulls(3, pa.int32())])) == ColumnStats("int32", nulls=3)


def test_statistics_of_pieces_are_those_of_the_whole() -> None:
    values = pa.chunked_array([["b", None], [], ["a"], [None]], pa.string())
    collector = StatisticsCollector()
    for chunk in values.chunks:
        collector.update(pa.chunked_array([chunk]))
    assert collector.stats(pa.string()) == column_statistics(values) == ColumnStats("string", "a", "b", 2)


def test_statistics_are_kept_of_key_and_partition_columns() -> None:
    definition = bench_table()
    table = pa.table({"d": [None], "k": [7], "v": [1.0], "s": ["x"]}).cast(definition.arrow_schema)
    assert table_statistics(table, definition) == {"k": ColumnStats("int64", 7, 7), "d": ColumnStats("date", nulls=1)}
