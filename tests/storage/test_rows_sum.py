"""The sum of rows tells sets of rows apart, and does not see their order."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from replitree.storage.rewrite.rows_sum import RowsSummer

TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "b": (pa.bool_(), [True, False, None]),
    "i": (pa.int32(), [1, -7, None]),
    "l": (pa.int64(), [1 << 40, -1, None]),
    "f": (pa.float32(), [0.0, -0.0, None]),
    "d": (pa.float64(), [1.5, float("inf"), None]),
    "t": (pa.string(), ["", "größe", None]),
    "x": (pa.binary(), [b"", b"\0", None]),
    "day": (pa.date32(), [date(1970, 1, 1), date(2026, 11, 30), None]),
    "at": (pa.timestamp("us", "UTC"), [datetime(2026, 11, 30, tzinfo=UTC), datetime(1960, 1, 1, tzinfo=UTC), None]),
    "short": (pa.decimal128(9, 2), [Decimal("1.20"), Decimal("-3.00"), None]),
    "long": (pa.decimal128(30, 2), [Decimal("12345678901234567890.12"), Decimal("-3.00"), None]),
    "list": (pa.list_(pa.int32()), [[1, 2], [], [None], None]),
    "struct": (pa.struct([("a", pa.int32()), ("s", pa.string())]), [{"a": 1, "s": None}, {"a": None, "s": "1"}, None]),
    "map": (pa.map_(pa.string(), pa.list_(pa.float64())), [[("a", [1.0])], [("a", None)], [], None]),
}


def table(rows: int, seed: int = 0) -> pa.Table:
    chance = random.Random(seed)
    schema = pa.schema([(name, arrow) for name, (arrow, _) in TYPES.items()])
    columns = [pa.array([chance.choice(values) for _ in range(rows)], arrow) for arrow, values in TYPES.values()]
    return pa.Table.from_arrays(columns, schema=schema)


def summed(rows: pa.Table, chunk: int = 1 << 20) -> tuple[int, str]:
    summer = RowsSummer()
    for batch in rows.to_batches(chunk):
        summer.update(batch)
    return summer.rows, summer.hexdigest()


def test_the_order_of_rows_and_how_they_are_cut_do_not_count() -> None:
    rows = table(300)
    shuffled = rows.take(random.Random(1).sample(range(300), 300))
    assert summed(rows) == summed(shuffled) == summed(rows, 7)
    assert summed(pa.concat_tables([rows.slice(100), rows.slice(0, 100)])) == summed(rows)


@pytest.mark.parametrize("name", TYPES)
def test_a_value_that_changes_is_seen(name: str) -> None:
    arrow, values = TYPES[name]
    sums = {summed(pa.table({name: pa.array([value], arrow)})) for value in values}
    assert len(sums) == len(values)


def test_rows_that_are_lost_doubled_or_swapped_between_columns_are_seen() -> None:
    rows = table(100)
    assert summed(rows.slice(1)) != summed(rows)
    # The number of rows is the same.
    assert summed(pa.concat_tables([rows.slice(2), rows.slice(2, 1), rows.slice(2, 1)]))[1] != summed(rows)[1]
    two = pa.table({"a": [1, 2], "b": [3, 4]})
    assert summed(two) != summed(pa.table({"a": [1, 2], "b": [4, 3]}))
    assert summed(two) != summed(two.select(["b", "a"]))
    # Two rows that are there twice are not cancelled out by two others.
    assert summed(pa.table({"a": [1, 1, 2]}))[1] != summed(pa.table({"a": [1, 2, 2]}))[1]


@pytest.mark.parametrize("other", [[[1], [2, 3]], [[1, 2], [3]], [[3, 2, 1], []], [[1, 2, 3], [], []]])
def test_elements_stay_in_their_lists(other: list[list[int]]) -> None:
    arrow: Any = pa.list_(pa.int32())
    assert summed(pa.table({"a": pa.array(other, arrow)})) != summed(pa.table({"a": pa.array([[1, 2, 3], []], arrow)}))


def test_what_lies_under_a_null_does_not_count() -> None:
    validity = pa.py_buffer(b"\x01")
    one, other = (
        pa.Array.from_buffers(pa.int32(), 2, [validity, pa.array([1, hidden], pa.int32()).buffers()[1]])
        for hidden in (5, 6)
    )
    assert summed(pa.table({"a": one})) == summed(pa.table({"a": other}))


def test_no_rows_have_a_sum() -> None:
    assert summed(table(0)) == (0, "0" * 32)
