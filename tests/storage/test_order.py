from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replitree.storage.parts import order
from replitree.storage.parts.order import is_sorted, sort_rows
from tests.storage.support import PLAIN_TYPES, arrays, chunked


def _key(value: Any) -> tuple[Any, ...]:
    """Nulls first, NaN last, strings by their bytes."""
    if value is None:
        return (0,)
    if isinstance(value, float) and math.isnan(value):
        return (2,)
    return (1, value.encode() if isinstance(value, str) else value)


@given(
    st.data(), st.lists(st.sampled_from(PLAIN_TYPES), min_size=1, max_size=3), st.lists(st.integers(0, 12), max_size=2)
)
def test_rows_are_sorted_as_spark_does_and_stably(
    data: st.DataObject, kinds: list[pa.DataType], cuts: list[int]
) -> None:
    columns = [_narrow(data, kind) for kind in kinds]
    rows = min(len(column) for column in columns)
    names = [f"c{i}" for i in range(len(kinds))]
    table = pa.table([chunked(c.slice(0, rows), cuts, 1) for c in columns], names=names)
    table = table.append_column("row", pa.array(range(rows), pa.int64()))
    keys = [tuple(_key(row[name]) for name in names) for row in table.to_pylist()]
    expected = sorted(range(rows), key=lambda row: keys[row])
    found = sort_rows(table, names)
    assert found.column("row").to_pylist() == expected
    assert is_sorted(table, names) == (expected == list(range(rows)))
    assert is_sorted(found, names)


def _narrow(data: st.DataObject, kind: pa.DataType) -> pa.Array:
    """Few different values, so that keys tie."""
    pool = data.draw(arrays(kind, max_size=3))
    picks = data.draw(st.lists(st.integers(0, len(pool)), min_size=2, max_size=12))
    padded = pa.concat_arrays([pool, pa.nulls(1, kind)])
    return padded.take(pa.array(picks))


@pytest.mark.parametrize("different", [1, 2, 50, 100_000])
def test_halves_that_are_sorted_in_parallel_are_the_sorted_whole(
    monkeypatch: pytest.MonkeyPatch, different: int
) -> None:
    monkeypatch.setattr(order, "PARALLEL_ROWS_MIN", 10)
    keys = np.random.default_rng(different).integers(0, different, 5000)
    table = pa.table({"k": pa.array(keys, mask=keys % 7 == 3), "v": keys / 2, "row": np.arange(5000)})
    with ThreadPoolExecutor(2) as pool:
        for names in (["k"], ["k", "v"], ["v", "k"]):
            assert sort_rows(table, names, pool).equals(sort_rows(table, names))


def test_a_sorted_table_comes_back_as_it_is() -> None:
    table = pa.table({"k": [None, 1, 1, 2]})
    assert sort_rows(table, ["k"]) is table
    assert sort_rows(table, []) is table


@pytest.mark.parametrize(
    "values",
    [
        [None, None],
        [None, float("-inf"), -0.0, 0.0, 1.5, float("inf"), float("nan"), float("nan")],
        [Decimal(-1), Decimal(1)],
    ],
)
def test_sorted_values_are_seen_as_sorted(values: list[Any]) -> None:
    assert is_sorted(pa.table({"k": values if values[0] or values[-1] else pa.nulls(2, pa.int64())}), ["k"])
