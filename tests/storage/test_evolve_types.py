"""Widening loses no value, keeps the order, and moves no row to another partition; mergeSchema widens no more than it must."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replitree.errors import BadInput, SchemaMismatch
from replitree.storage.parts.conform import conform
from replitree.storage.parts.order import is_sorted, sort_rows
from replitree.storage.schema.definition import TableDefinition, define_table
from replitree.storage.schema.partition import split_by_partition
from replitree.storage.schema.types import format_type, parse_type
from replitree.storage.schema.widen import can_widen, common_type, keeps_partitions
from replitree.storage.sql.evolve import AddColumn, Alter, WidenColumn, apply_alter
from replitree.storage.sql.schema_union import union_by_name
from tests.examples import examples
from tests.storage.evolving import EXAMPLES
from tests.storage.support import PLAIN_TYPES, types, values

ALL_TYPES = [
    *PLAIN_TYPES,
    *map(parse_type, ("decimal(3,0)", "decimal(10,0)", "decimal(19,0)", "decimal(14,4)", "decimal(38,10)")),
]
WIDENED = [(a, b) for a, b in itertools.product(ALL_TYPES, repeat=2) if can_widen(a, b)]
TRANSFORMS = ("identity(c)", "bucket(7,c)", "truncate(10,c)")


def _ends(arrow: pa.DataType) -> list[Any]:
    if pa.types.is_integer(arrow):
        limit = 2 ** (arrow.bit_width - 1)
        return [-limit, limit - 1]
    if pa.types.is_decimal(arrow):
        nines = "9" * arrow.precision
        text = f"{nines[: arrow.precision - arrow.scale]}.{nines[arrow.precision - arrow.scale :]}"
        return [pa.scalar(sign + text.rstrip(".")).cast(arrow).as_py() for sign in ("-", "")]
    return [-math.inf, math.inf, math.nan, -3.4028234663852886e38, 1e-45, -0.0]


def test_the_table_of_widenings() -> None:
    names = {(format_type(a), format_type(b)) for a, b in WIDENED}
    assert {
        ("int8", "int16"),
        ("int32", "int64"),
        ("int32", "double"),
        ("float", "double"),
        ("int64", "decimal(38,0)"),
    } <= names
    assert ("decimal(12,2)", "decimal(14,4)") in names
    for refused in [
        ("int64", "double"),
        ("int64", "int32"),
        ("double", "float"),
        ("int32", "float"),
        ("int64", "decimal(10,0)"),
        ("decimal(12,2)", "decimal(38,0)"),
        ("decimal(14,4)", "decimal(12,2)"),
        ("date", "timestamp[us]"),
        ("string", "binary"),
        ("boolean", "int8"),
        ("timestamp[us]", "timestamp[us,UTC]"),
    ]:
        assert refused not in names
    assert not any(can_widen(arrow, arrow) for arrow in ALL_TYPES)


@pytest.mark.parametrize(("found", "target"), WIDENED, ids=format_type)
def test_widening_keeps_every_value_and_the_order(found: pa.DataType, target: pa.DataType) -> None:
    @settings(max_examples=examples(6))
    @given(st.lists(values(found), max_size=10))
    def check(drawn: list[Any]) -> None:
        narrow = pa.array([*drawn, *_ends(found)], found)
        wide = narrow.cast(target)
        for before, after in zip(narrow.to_pylist(), wide.to_pylist(), strict=True):
            assert before == after or (math.isnan(before) and math.isnan(after))
        rows = pa.table({"narrow": narrow, "wide": wide})
        assert is_sorted(sort_rows(rows, ["narrow"]), ["wide"])

    check()


@pytest.mark.parametrize(("found", "target"), [(a, b) for a, b in WIDENED if keeps_partitions(a, b)], ids=format_type)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_widened_column_keeps_its_partitions(transform: str, found: pa.DataType, target: pa.DataType) -> None:
    one = define_table("t", pa.schema([("c", found)]), partition_by=transform)
    two = apply_alter(one, Alter((WidenColumn("c", format_type(target)),)))

    @settings(max_examples=examples(5))
    @given(st.lists(values(found), max_size=6))
    def check(drawn: list[Any]) -> None:
        rows = pa.table({"c": pa.array([*drawn, *_ends(found)[1:]], found)})
        before = [(part.partition, part.values) for part in split_by_partition(rows, one)]
        after = [(part.partition, part.values) for part in split_by_partition(rows.cast(two.arrow_schema), two)]
        assert before == after

    check()


@settings(max_examples=EXAMPLES)
@given(st.sampled_from(ALL_TYPES), st.sampled_from(ALL_TYPES))
def test_common_type_holds_both_and_does_not_depend_on_their_order(one: pa.DataType, other: pa.DataType) -> None:
    found = common_type(one, other)
    assert found == common_type(other, one)
    if found is not None:
        assert found == one or can_widen(one, found)
        assert found == other or can_widen(other, found)


# --- mergeSchema ----------------------------------------------------------------------------------------------------------


def _target() -> TableDefinition:
    return define_table("t", "k bigint not null, i int, f float, m decimal(6,2), s string", order_by="k")


def test_alter_adds_and_widens_what_the_rows_need() -> None:
    rows = pa.schema(
        [
            ("k", pa.int8()),
            ("i", pa.int64()),
            ("f", pa.float64()),
            ("m", pa.decimal128(8, 1)),
            ("n", pa.list_(pa.uint8())),
        ]
    )
    alter = union_by_name(rows, _target())
    assert alter == Alter(
        (
            WidenColumn("i", "int64"),
            WidenColumn("f", "double"),
            WidenColumn("m", "decimal(9,2)"),
            AddColumn("n", "list<int16>"),
        )
    )
    altered = apply_alter(_target(), alter)
    assert union_by_name(rows, altered) is None
    data = pa.table([[1], [2**40], [0.1], [None], [[255]]], schema=rows)
    assert conform(data, altered).to_pylist() == [{"k": 1, "i": 2**40, "f": 0.1, "m": None, "s": None, "n": [255]}]


@pytest.mark.parametrize(
    "field",
    [
        ("i", pa.int8()),
        ("i", pa.uint64()),
        ("i", pa.null()),
        ("f", pa.float16()),
        ("s", pa.large_binary()),
        ("I", pa.int32()),
    ],
    ids=str,
)
def test_rows_that_fit_as_they_are_need_no_alter(field: tuple[str, pa.DataType]) -> None:
    schema = pa.schema([("k", pa.int64()), field])
    assert union_by_name(schema, _target()) is None
    if field[0] != "I":
        rows = pa.table([[1, 2], pa.array([None, None], field[1])], schema=schema)
        assert conform(rows, _target()).num_rows == 2


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ([("k", pa.string())], "expected int64, found string"),
        ([("i", pa.int64())], "'k' is missing"),
        ([("k", pa.int64()), ("z", pa.null())], "a column of nulls only"),
        ([("k", pa.int64()), ("z", pa.uint64())], "no unsigned 64-bit"),
        ([("k", pa.int64()), ("z", pa.int8()), ("Z", pa.int8())], "a column 'Z' already"),
        ([("k", pa.int64()), ("s", pa.list_(pa.string()))], "expected string, found list"),
        ([("k", pa.int64()), ("f", pa.decimal128(4, 1))], "expected float, found decimal"),
    ],
)
def test_rows_that_no_alter_makes_fit_are_refused(fields: list[tuple[str, pa.DataType]], problem: str) -> None:
    with pytest.raises(SchemaMismatch, match=problem):
        union_by_name(pa.schema(fields), _target())


def test_partition_column_is_not_widened_by_rows() -> None:
    definition = define_table("t", "m decimal(6,2)", partition_by="m")
    with pytest.raises(SchemaMismatch, match="other partitions"):
        union_by_name(pa.schema([("m", pa.decimal128(8, 3))]), definition)


@settings(max_examples=EXAMPLES)
@given(types(), types())
def test_alter_for_any_rows_makes_them_fit_or_is_refused(found: pa.DataType, stored: pa.DataType) -> None:
    definition = define_table("t", pa.schema([("c", stored)]))
    schema = pa.schema([("c", found), ("d", found)])
    try:
        alter = union_by_name(schema, definition)
    except SchemaMismatch:
        return
    assert alter is not None
    altered = apply_alter(definition, alter)
    assert union_by_name(schema, altered) is None
    try:
        assert conform(schema.empty_table(), altered).num_rows == 0
    except BadInput as error:
        pytest.fail(str(error))
