"""Rows get the buckets that Spark's ``xxhash64`` gives them, whatever their types and however they lie in memory."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from replitree.errors import BadInput
from replitree.protocol.sharded.shard_map import Shard, first_map
from replitree.storage.schema.bounds import bound_of
from replitree.storage.schema.columns import arrow_scalar
from replitree.storage.schema.definition import TableDefinition, define_table
from replitree.storage.schema.row_buckets import (
    BLOCK_ROWS,
    GROUP_BYTES_MAX,
    GROUP_ROWS_MIN,
    check_key_kept,
    keeps_buckets,
    row_buckets,
    shard_key,
    split_by_shard,
    xxhash64,
)
from replitree.storage.schema.types import parse_type
from replitree.storage.sql.alter_parser import parse_alter
from replitree.storage.sql.evolve import apply_alter

GOLDEN = Path(__file__).parents[1] / "formats/storage/xxhash64.json"
"""Values of every type, with the hashes that Spark 4.3.0 computed; `tests/storage/test_spark.py` asks Spark again."""

TYPES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    **{f"int{bits}": st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (8, 16, 32, 64)},
    "date": st.integers(-(1 << 31), (1 << 31) - 1),
    "timestamp[us,UTC]": st.integers(-(1 << 63), (1 << 63) - 1),
    "timestamp[us]": st.integers(-(1 << 63), (1 << 63) - 1),
    "decimal(18,4)": st.integers(-(10**18) + 1, 10**18 - 1).map(lambda number: Decimal(number).scaleb(-4)),
    "decimal(9,0)": st.integers(-(10**9) + 1, 10**9 - 1).map(Decimal),
    "string": st.text(max_size=100),
    "binary": st.binary(max_size=100),
}


def bytes_of(kind: str, value: Any) -> bytes:
    """Give what XXH64 is computed of, as the table in the module says."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    if isinstance(value, Decimal):
        return struct.pack("<q", int(value.scaleb(int(kind.partition(",")[2][:-1]))))
    return struct.pack("<q" if kind == "int64" or kind.startswith("timestamp") else "<i", value)


def expected(kinds: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[int]:
    """Hash rows value by value, with the package."""
    found = []
    for row in rows:
        state = 42
        for kind, value in zip(kinds, row, strict=True):
            state = state if value is None else xxhash.xxh64_intdigest(bytes_of(kind, value), state)
        found.append(state - (1 << 64) if state >> 63 else state)
    return found


def array_of(kind: str, values: Sequence[Any]) -> pa.Array:
    arrow = parse_type(kind)
    scalars = [pa.scalar(None, arrow) if value is None else arrow_scalar(arrow, value) for value in values]
    return pa.array(scalars, arrow)


# --- the hash ---------------------------------------------------------------------------------------------------------


def golden() -> tuple[dict[str, list[Any]], dict[str, list[int]]]:
    """Give the frozen columns, by type, and the hashes of some of them together."""
    frozen = json.loads(GOLDEN.read_text(encoding="utf-8"))
    columns = {kind: [bound_of(kind, value) for value in values] for kind, values in frozen["columns"].items()}
    return columns, frozen["hashes"]


def test_hashes_are_those_that_spark_computed() -> None:
    columns, hashes = golden()
    assert set(TYPES) <= set(columns)
    for key, wanted in hashes.items():
        kinds = key.split(" ")
        assert xxhash64([array_of(kind, columns[kind]) for kind in kinds]).tolist() == wanted, key
        assert expected(kinds, list(zip(*(columns[kind] for kind in kinds), strict=True))) == wanted, key


@given(st.data())
def test_every_type_and_every_chain_is_hashed_as_value_by_value(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=4))
    rows = data.draw(st.lists(st.tuples(*(st.none() | TYPES[kind] for kind in kinds)), min_size=1, max_size=8))
    # so often that numpy hashes values of a length, too, and moved, so that each array has an offset
    times = data.draw(st.sampled_from([1, GROUP_ROWS_MIN]))
    columns = [array_of(kind, [row[at] for row in rows]) for at, kind in enumerate(kinds)]
    repeated = [pa.concat_arrays([column] * times) for column in columns]
    assert xxhash64([column.slice(1) for column in repeated]).tolist() == (expected(kinds, rows) * times)[1:]


@pytest.mark.parametrize("kind", ["string", "binary"])
def test_texts_of_every_length_are_hashed_as_one_by_one(kind: str) -> None:
    random = np.random.default_rng(3)
    lengths = random.permutation(np.repeat(np.arange(GROUP_BYTES_MAX + 10), GROUP_ROWS_MIN + 1))
    octets = random.integers(32, 127, lengths.sum(), np.uint8).tobytes()
    ends = np.cumsum(lengths).tolist()
    values = [octets[end - length : end] for end, length in zip(ends, lengths.tolist(), strict=True)]
    numbers = random.integers(-(1 << 63), (1 << 63) - 1, len(values))
    found = xxhash64([pa.array(numbers), pa.array(values).cast(parse_type(kind))])
    assert found.tolist() == expected(["int64", "binary"], list(zip(numbers.tolist(), values, strict=True)))


def test_what_lies_under_a_null_is_not_hashed() -> None:
    validity, offsets, data = pa.array(["a", "bcd", "e"]).buffers()
    assert validity is None
    hidden = pa.Array.from_buffers(pa.string(), 3, [pa.py_buffer(b"\x05"), offsets, data])
    assert xxhash64([hidden]).tolist() == expected(["string"], [["a"], [None], ["e"]])


@pytest.mark.parametrize("kind", TYPES)
def test_no_rows_have_no_hashes(kind: str) -> None:
    assert xxhash64([pa.array([], parse_type(kind))]).tolist() == []


# --- buckets and shards -----------------------------------------------------------------------------------------------


def table_of(columns: str) -> TableDefinition:
    return define_table("t", columns)


TABLE = table_of("id bigint not null, name string not null, v double")


def rows_of(count: int) -> pa.Table:
    numbers = np.arange(count)
    names = pa.array([f"n{number % 7}" for number in range(count)])
    return pa.table([numbers, names, numbers / 3], TABLE.arrow_schema)


@pytest.mark.parametrize("buckets", [1, 2, 256, 65_536])
def test_a_bucket_is_the_positive_remainder_of_the_hash(buckets: int) -> None:
    rows, shard_map = rows_of(2_000), first_map(["name", "id"], {Shard(0): 1}, buckets)
    hashes = xxhash64([rows["name"].chunk(0), rows["id"].chunk(0)]).tolist()
    assert min(hashes) < 0 < max(hashes)
    assert row_buckets(rows, TABLE, shard_map).tolist() == [found % buckets for found in hashes]


def test_rows_are_in_the_same_buckets_however_they_are_cut() -> None:
    rows, shard_map = rows_of(2 * BLOCK_ROWS + 100), first_map(["id", "name"], {Shard(0): 1})
    whole = row_buckets(rows, TABLE, shard_map)
    cut = pa.concat_tables(
        [rows.slice(0, 5), rows.slice(5, 0), rows.slice(5, BLOCK_ROWS + 1), rows.slice(BLOCK_ROWS + 6)]
    )
    assert (row_buckets(cut, TABLE, shard_map) == whole).all()
    assert len(row_buckets(rows.slice(0, 0), TABLE, shard_map)) == 0


@given(
    st.integers(0, 300), st.sampled_from([1, 4, 256]), st.lists(st.integers(0, 3), min_size=1, max_size=6).filter(any)
)
def test_every_row_goes_to_the_owner_of_its_bucket_in_its_order(count: int, buckets: int, weights: list[int]) -> None:
    rows = rows_of(count)
    shard_map = first_map(["id"], {Shard(3 * number): weight for number, weight in enumerate(weights)}, buckets)
    found = split_by_shard(rows, TABLE, shard_map)
    owners = [shard_map.owners[bucket] for bucket in row_buckets(rows, TABLE, shard_map).tolist()]
    assert [shard for shard, _ in found] == sorted(set(owners))
    for shard, piece in found:
        assert piece.equals(rows.filter(pa.array([owner == shard for owner in owners], pa.bool_())))


def test_rows_of_one_shard_are_not_copied() -> None:
    rows = rows_of(10)
    ((shard, piece),) = split_by_shard(rows, TABLE, first_map(["id"], {Shard(4): 1}))
    assert shard == 4
    assert piece is rows


# --- keys -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TYPES)
def test_a_key_may_have_a_column_of_this_type(kind: str) -> None:
    (column,) = shard_key(table_of(f"k {kind} not null"), ["k"])
    assert column.type == kind


@pytest.mark.parametrize(
    "column",
    [
        "float not null",
        "double not null",
        "decimal(19,2) not null",
        "list<int> not null",
        "struct<a: int> not null",
        "int",
    ],
)
def test_a_key_may_not_have_a_column_of_another_type_or_with_nulls(column: str) -> None:
    with pytest.raises(
        BadInput, match=r"by 'k', .*: a key column is not null, and an integer, string, .* at most 18 digits"
    ):
        shard_key(table_of(f"k {column}"), ["k"])


def test_a_key_may_not_have_a_column_that_is_not_there() -> None:
    with pytest.raises(BadInput, match="no column 'ids'; did you mean 'id'"):
        split_by_shard(rows_of(1), TABLE, first_map(["ids"], {Shard(0): 1}))


def test_a_key_column_that_is_renamed_stays_the_key() -> None:
    once = apply_alter(TABLE, parse_alter("rename column id to number", TABLE))
    twice = apply_alter(once, parse_alter("rename column v to id", once))
    assert [column.name for column in shard_key(twice, ["id", "name"])] == ["number", "name"]
    rows, shard_map = rows_of(100), first_map(["id"], {Shard(0): 1})
    renamed = rows.rename_columns(["number", "name", "id"])
    assert (row_buckets(renamed, twice, shard_map) == row_buckets(rows, TABLE, shard_map)).all()


@pytest.mark.parametrize(
    ("found", "target", "keeps"),
    [
        ("int8", "int32", True),
        ("int32", "int64", False),
        ("decimal(9,2)", "decimal(18,2)", True),
        ("decimal(9,2)", "decimal(19,2)", False),
        ("decimal(9,2)", "decimal(10,3)", False),
        ("int32", "decimal(10,0)", False),
        ("int32", "double", False),
    ],
)
def test_a_key_column_that_is_widened_keeps_its_buckets_if_its_bytes_stay(found: str, target: str, keeps: bool) -> None:
    one, other = parse_type(found), parse_type(target)
    assert keeps_buckets(one, other) is keeps
    if keeps:
        array = pa.array([Decimal(-3), Decimal(100)] if "decimal" in found else [-3, 100], one)
        assert (xxhash64([array]) == xxhash64([array.cast(other)])).all()


@pytest.mark.parametrize(
    ("sql", "is_kept"),
    [
        ("RENAME COLUMN id TO key", True),
        ("ALTER COLUMN id TYPE int", True),
        ("ALTER COLUMN id TYPE bigint", False),
        ("ALTER COLUMN id DROP NOT NULL", False),
        ("DROP COLUMN id", False),
        ("DROP COLUMN v", True),
        ("ADD COLUMN w int", True),
    ],
)
def test_a_key_column_stays_when_the_columns_change(sql: str, is_kept: bool) -> None:
    table = define_table("t", "k bigint, id smallint not null, v double", order_by="k")
    changed = apply_alter(table, parse_alter(sql, table))
    if is_kept:
        check_key_kept(table, changed, ["id"])
    else:
        with pytest.raises(BadInput, match="of the shard key"):
            check_key_kept(table, changed, ["id"])
