from __future__ import annotations

import datetime as dt
import tracemalloc
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from replitree.errors import BadInput
from replitree.storage.parts.manifest import is_partition_id
from replitree.storage.schema import partition
from replitree.storage.schema.definition import Transform, TransformKind, define_table, parse_transform
from replitree.storage.schema.partition import partition_id, split_by_partition
from replitree.storage.schema.transforms import apply_transform, bucket_hash
from tests.formats.reference_hash import unscaled
from tests.storage.support import PLAIN_TYPES, arrays, bench_table, chunked

WITHOUT_SIGN = 0x7FFF_FFFF

# The values of Iceberg's specification, appendix B.
ICEBERG_HASHES = [
    (pa.int32(), 34, 2017239379),
    (pa.int64(), 34, 2017239379),
    (pa.decimal128(9, 2), Decimal("14.20"), -500754589),
    (pa.date32(), dt.date(2017, 11, 16), -653330422),
    (pa.timestamp("us"), dt.datetime.fromisoformat("2017-11-16 22:31:08"), -2047944441),
    (pa.timestamp("us"), dt.datetime.fromisoformat("2017-11-16 22:31:08.000001"), -1207196810),
    (pa.timestamp("us", "UTC"), dt.datetime(2017, 11, 16, 22, 31, 8, tzinfo=dt.UTC), -2047944441),
    (pa.string(), "iceberg", 1210000089),
    (pa.binary(), uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7").bytes, 1488055340),
    (pa.binary(), bytes([0, 1, 2, 3]), -188683207),
]


@pytest.mark.parametrize(("arrow", "value", "expected"), ICEBERG_HASHES)
def test_bucket_hashes_are_those_of_icebergs_specification(arrow: pa.DataType, value: Any, expected: int) -> None:
    assert bucket_hash(pa.array([value], arrow))[0] == expected & WITHOUT_SIGN
    assert bucket_hash(pa.array([None, value, value], arrow).slice(1))[1] == expected & WITHOUT_SIGN


def _murmur3(data: bytes) -> int:
    """Murmur3_x86_32 as its author wrote it, one value at a time."""
    state, mask = 0, 0xFFFFFFFF
    for at in range(0, len(data) - len(data) % 4, 4):
        state ^= _scrambled(int.from_bytes(data[at : at + 4], "little"))
        state = ((state << 13 | state >> 19) & mask) * 5 + 0xE6546B64 & mask
    tail = data[len(data) - len(data) % 4 :]
    state ^= _scrambled(int.from_bytes(tail, "little")) if tail else 0
    state ^= len(data)
    state = (state ^ state >> 16) * 0x85EBCA6B & mask
    state = (state ^ state >> 13) * 0xC2B2AE35 & mask
    return (state ^ state >> 16) & WITHOUT_SIGN


def _scrambled(block: int) -> int:
    block = block * 0xCC9E2D51 & 0xFFFFFFFF
    return (block << 15 | block >> 17) * 0x1B873593 & 0xFFFFFFFF


@given(st.lists(st.binary(max_size=200), max_size=60))
def test_hashes_of_many_lengths_at_once_are_those_of_each_alone(values: list[bytes]) -> None:
    assert bucket_hash(pa.array(values, pa.binary())).tolist() == [_murmur3(value) for value in values]


def test_hash_of_a_very_long_value_takes_no_time_per_row() -> None:
    values = [b"x" * 1_000_001, *[b"abcde"] * 1000]
    assert bucket_hash(pa.array(values)).tolist() == [_murmur3(value) for value in values]


@given(arrays(pa.decimal128(38, 5)))
def test_decimals_are_hashed_as_javas_biginteger_writes_them(array: pa.Array) -> None:
    found = bucket_hash(array.fill_null(0)).tolist()
    expected = []
    for value in array.fill_null(0).to_pylist():
        number = unscaled(value)
        length = (number if number >= 0 else ~number).bit_length() // 8 + 1
        expected.append(_murmur3(number.to_bytes(length, "big", signed=True)))
    assert found == expected


@pytest.mark.parametrize(
    ("transform", "arrow", "value", "expected"),
    [
        ("year(c)", pa.date32(), dt.date(1969, 12, 31), -1),
        ("year(c)", pa.timestamp("us"), dt.datetime.fromisoformat("2018-01-01"), 48),
        ("month(c)", pa.date32(), dt.date(2017, 12, 1), 575),
        ("month(c)", pa.date32(), dt.date(1969, 12, 1), -1),
        ("month(c)", pa.timestamp("us", "UTC"), dt.datetime(1970, 2, 1, tzinfo=dt.UTC), 1),
        ("day(c)", pa.date32(), dt.date(2017, 12, 1), 17501),
        ("day(c)", pa.timestamp("us"), dt.datetime.fromisoformat("1969-12-31 23:00:00"), -1),
        ("hour(c)", pa.timestamp("us"), dt.datetime.fromisoformat("2017-12-01 10:59:00"), 420034),
        ("hour(c)", pa.timestamp("us"), dt.datetime.fromisoformat("1969-12-31 23:59:00"), -1),
        ("truncate(10,c)", pa.int32(), 1, 0),
        ("truncate(10,c)", pa.int64(), -1, -10),
        ("truncate(50,c)", pa.decimal128(9, 2), Decimal("10.65"), Decimal("10.50")),
        ("truncate(10,c)", pa.decimal128(38, 0), Decimal(-(10**37) - 1), Decimal(-(10**37) - 10)),
        ("truncate(3,c)", pa.string(), "iceberg", "ice"),
        ("truncate(3,c)", pa.string(), "äöüß", "äöü"),
        ("truncate(2,c)", pa.binary(), b"\x00\x01\x02", b"\x00\x01"),
        ("bucket(16,c)", pa.string(), "iceberg", 1210000089 % 16),
        ("c", pa.string(), "x", "x"),
    ],
)
def test_transforms_are_those_of_icebergs_specification(
    transform: str, arrow: pa.DataType, value: Any, expected: Any
) -> None:
    found = apply_transform(parse_transform(transform), pa.array([None, value], arrow))
    assert found.to_pylist() == [None, expected]


@given(arrays(pa.decimal128(30, 3)), st.integers(1, 999_999_999))
def test_decimals_are_truncated_as_whole_numbers_are(array: pa.Array, width: int) -> None:
    found = apply_transform(Transform(TransformKind.TRUNCATE, "c", width), array).to_pylist()
    before = [None if v is None else unscaled(v) for v in array.to_pylist()]
    after = [None if v is None else unscaled(v) for v in found]
    assert after == [None if n is None else n - n % width for n in before]


TRANSFORMS = {
    "year({})": ("date32", "timestamp"),
    "month({})": ("date32", "timestamp"),
    "hour({})": ("timestamp",),
    "bucket(3,{})": ("int", "decimal", "string", "binary", "date32", "timestamp"),
    "truncate(2,{})": ("int", "decimal", "string", "binary"),
    "{}": ("bool", "int", "decimal", "string", "binary", "date32", "timestamp"),
}
CASES = [(t, a) for t, kinds in TRANSFORMS.items() for a in PLAIN_TYPES if str(a).startswith(kinds)]


@given(st.data(), st.sampled_from(CASES), st.sampled_from(CASES), st.lists(st.integers(0, 12), max_size=2))
def test_every_row_goes_to_the_partition_of_its_values_in_its_order(
    data: st.DataObject, one: tuple[str, pa.DataType], other: tuple[str, pa.DataType], cuts: list[int]
) -> None:
    first, second = data.draw(arrays(one[1])), data.draw(arrays(other[1]))
    rows = min(len(first), len(second))
    schema = pa.schema([("a", one[1]), ("b", other[1]), ("row", pa.int64())])
    definition = define_table("t", schema, partition_by=[one[0].format("a"), other[0].format("b")])
    columns = [chunked(column.slice(0, rows), cuts, 1) for column in (first, second, pa.array(range(rows), pa.int64()))]
    table = pa.Table.from_arrays(columns, schema=definition.arrow_schema)
    expected: dict[tuple[str, ...], list[int]] = {}
    keys = [apply_transform(t, table.column(t.column).combine_chunks()) for t in definition.partition_by]
    for row in range(rows):
        expected.setdefault(tuple(repr(key[row].as_py()) for key in keys), []).append(row)
    parts = split_by_partition(table, definition)
    assert sorted(part.rows.column("row").to_pylist() for part in parts) == sorted(expected.values())
    assert [part.partition for part in parts] == sorted({part.partition for part in parts})
    assert all(is_partition_id(part.partition) for part in parts)


def test_an_unpartitioned_table_has_the_partition_all() -> None:
    definition = bench_table(partition_by=())
    table = definition.arrow_schema.empty_table()
    assert split_by_partition(table, definition) == []
    one = pa.table({"d": [None], "k": [1], "v": [None], "s": [None]}).cast(definition.arrow_schema)
    assert [part[:2] for part in split_by_partition(one, definition)] == [("all", ())]


@pytest.mark.parametrize(
    ("partition_by", "values", "expected"),
    [
        (["month(d)"], (576,), "2018-01"),
        (["year(d)", "month(d)"], (48, 576), "2018-2018-01"),
        (["day(d)"], (0,), "1970-01-01"),
        (["d"], (-1,), "1969-12-31"),
        (["hour(t)"], (420034,), "2017-12-01-10"),
        (["t"], (1,), "1970-01-01T000000.000001"),
        (["k"], (17,), "17"),
        (["k"], (-17,), "~m17"),
        (["k", "s"], (None, "eu-west"), "~null-eu-west"),
        (["b"], (True,), "true"),
        (["m"], (Decimal("-1.50"),), "~m1.50"),
        (["s"], ("A.b=+9",), "A.b=+9"),
        (["bucket(16,k)"], (3,), "3"),
    ],
)
def test_partitions_have_names_that_people_can_read(partition_by: list[str], values: Any, expected: str) -> None:
    definition = define_table(
        "t", "d date, t timestamp, k bigint, s string, b boolean, m decimal(5,2)", partition_by=partition_by
    )
    assert partition_id(values, definition) == expected


@pytest.mark.parametrize("text", ["", ".", "..", "a/b", "a_b", "~null", "ä", "a" * 41, "-x", "../x", "a\x00", "all "])
def test_strings_that_are_no_safe_names_are_hashed(text: str) -> None:
    definition = define_table("t", "s string", partition_by="s")
    found = partition_id((text,), definition)
    assert found.startswith("~h")
    assert is_partition_id(found)


def test_a_name_of_many_values_is_hashed_as_a_whole() -> None:
    definition = define_table("t", "a string, b string, c string", partition_by=["a", "b", "c"])
    found = partition_id(("x" * 40, "y" * 40, "z"), definition)
    assert found.startswith("~w")
    assert len(found) == 34


@given(
    st.tuples(*[st.none() | st.text("ab-~.h", max_size=5)] * 3),
    st.tuples(*[st.none() | st.text("ab-~.h", max_size=5)] * 3),
)
def test_different_values_have_different_names(one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    assume(one != other)
    definition = define_table("t", "a string, b string, c string", partition_by=["a", "b", "c"])
    assert partition_id(one, definition) != partition_id(other, definition)


def test_dates_far_away_have_names_too() -> None:
    definition = define_table("t", "d date, t timestamp", partition_by=["year(d)", "t"])
    for year in (-300_000, 0 - 1970, 8030, 5_000_000):
        assert is_partition_id(partition_id((year, 2**62), definition))
        assert partition_id((year, 0), definition).startswith("~h")
    assert partition_id((1 - 1970, 0), definition).startswith("0001-")


def test_too_many_partitions_in_one_insert_are_refused() -> None:
    definition = bench_table(partition_by="k")
    table = pa.table({"k": np.arange(1001)})
    padded = pa.table({"d": pa.nulls(1001), "k": table["k"], "v": pa.nulls(1001), "s": pa.nulls(1001)})
    with pytest.raises(BadInput, match="1001 partitions by identity"):
        split_by_partition(padded.cast(definition.arrow_schema), definition)


def test_many_combinations_are_numbered_as_few_are(monkeypatch: pytest.MonkeyPatch) -> None:
    definition = bench_table(partition_by=["bucket(5,k)", "truncate(1,s)"])
    table = pa.table(
        {"d": pa.nulls(200), "k": np.arange(200), "v": pa.nulls(200), "s": [f"{i % 7}" for i in range(200)]}
    )
    table = table.cast(definition.arrow_schema)
    few = split_by_partition(table, definition)
    monkeypatch.setattr(partition, "CODES_COUNTED_MAX", 1)
    assert split_by_partition(table, definition) == few
    assert len(few) == 35


def test_rows_that_lie_together_are_not_copied() -> None:
    definition = bench_table(partition_by="k")
    k = pa.array(np.repeat([5, 3, 9], 1000))
    table = pa.table({"d": pa.nulls(3000), "k": k, "v": pa.nulls(3000), "s": pa.nulls(3000)}).cast(
        definition.arrow_schema
    )
    parts = split_by_partition(table, definition)
    assert [part.partition for part in parts] == ["3", "5", "9"]
    address = table.column("k").chunk(0).buffers()[1].address
    assert all(part.rows.column("k").chunk(0).buffers()[1].address == address for part in parts)


def test_long_values_of_a_partition_are_not_kept_in_memory() -> None:
    table = define_table("t", "s string", partition_by="s")
    values = [f"{number:06}" * 10_000 for number in range(20)]
    partition_id((values[0],), table)
    tracemalloc.start()
    for value in values:
        assert partition_id((value,), table).startswith("~h")
    del values
    assert tracemalloc.get_traced_memory()[0] < 1_000_000
    tracemalloc.stop()
