"""Columns of whole numbers as numpy sees them."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from replitree.storage.files.whole_numbers import whole_numbers


@pytest.mark.parametrize(
    "arrow", [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.timestamp("us"), pa.timestamp("us", "UTC")]
)
def test_values_are_shown_as_they_are(arrow: pa.DataType) -> None:
    values = pa.array([9, -5, 0, 7], pa.int64()).cast(pa.int64() if pa.types.is_timestamp(arrow) else arrow)
    values = values.cast(arrow) if not pa.types.is_timestamp(arrow) else values.view(arrow)
    shown = whole_numbers(values.slice(1, 2))
    assert shown is not None
    assert shown.tolist() == [-5, 0]


def test_dates_are_days_since_1970() -> None:
    shown = whole_numbers(pa.chunked_array([pa.array([dt.date(1970, 1, 2), dt.date(1969, 12, 31)])]))
    assert shown is not None
    assert shown.tolist() == [1, -1]


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1, None], pa.int64()),
        pa.array([1.0]),
        pa.array([True]),
        pa.array(["a"]),
        pa.array([1], pa.uint64()),
        pa.array([1]).dictionary_encode(),
        pa.chunked_array([[1], [2]]),
        pa.chunked_array([], pa.int64()),
    ],
    ids=str,
)
def test_anything_else_is_left_to_the_kernels(values: pa.Array | pa.ChunkedArray) -> None:
    assert whole_numbers(values) is None
