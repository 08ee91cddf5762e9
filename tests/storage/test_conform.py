from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replitree.errors import BadInput, SchemaMismatch
from replitree.storage.parts.conform import conform
from replitree.storage.schema.definition import TableDefinition, define_table
from replitree.storage.schema.types import format_type, storable_type
from tests.storage.support import arrays, bench_table, chunked


def _table(schema: str) -> TableDefinition:
    return define_table("t", schema)


def test_columns_come_in_any_order_and_missing_ones_are_null() -> None:
    definition = bench_table()
    found = conform(pa.table({"s": ["a"], "k": pa.array([1], pa.int8())}), definition)
    assert found.schema.equals(definition.arrow_schema)
    assert found.to_pylist() == [{"d": None, "k": 1, "v": None, "s": "a"}]


def test_every_kind_of_input_gives_the_same_table() -> None:
    definition = bench_table()
    columns = {"d": [dt.date(2018, 1, 1), None], "k": [1, 2], "v": [0.5, 1], "s": ["a", None]}
    table = pa.table(columns)
    expected = table.cast(definition.arrow_schema)
    batch = table.to_batches()[0]
    inputs: list[Any] = [
        table,
        batch,
        pa.RecordBatchReader.from_batches(table.schema, [batch]),
        columns,
        table.to_pylist(),
        {**columns, "k": np.array([1, 2])},
        {**columns, "k": pa.chunked_array([[1], [2]])},
        _Exporter(table),
    ]
    for given_ in inputs:
        assert conform(given_, definition).equals(expected), type(given_)


class _Exporter:
    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def _encodings(array: pa.Array) -> list[pa.Array]:
    found = [array]
    kinds = pa.types
    if kinds.is_string(array.type) or kinds.is_binary(array.type):
        large = pa.large_string() if kinds.is_string(array.type) else pa.large_binary()
        found += [array.dictionary_encode(), array.cast(large), array.dictionary_encode().slice(0)]
    if kinds.is_timestamp(array.type) and not array.null_count:
        found.append(array.cast(pa.timestamp("us", "Europe/Berlin" if array.type.tz else None)))
    if kinds.is_list(array.type):
        found.append(array.cast(pa.large_list(pa.field("item", array.type.value_type))))
    return found


@given(arrays(), st.lists(st.integers(0, 12), max_size=3), st.integers(0, 3))
def test_values_of_every_type_come_through_whatever_their_layout(
    array: pa.Array, cuts: list[int], padding: int
) -> None:
    definition = define_table("t", pa.schema([("c", array.type)]))
    for encoded in _encodings(array):
        found = conform(pa.table({"c": chunked(encoded, cuts, padding)}), definition)
        found.validate(full=True)
        assert found.schema.equals(definition.arrow_schema)
        assert _same(found.column("c").to_pylist(), array.to_pylist())


def _same(a: object, b: object) -> bool:
    return _written(a) == _written(b)


def _written(value: object) -> str:
    """NaN is itself here, and UTC is UTC whoever says it."""
    return repr(value).replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc")


@pytest.mark.parametrize(
    ("column", "data", "expected"),
    [
        ("int", pa.array([1, None], pa.uint64()), [1, None]),
        ("int", pa.array([2.0]), [2]),
        ("int", pa.array([Decimal("2.00")]), [2]),
        ("double", pa.array([1, 2], pa.int64()), [1.0, 2.0]),
        ("double", pa.array([1.5, float("nan")], pa.float32()), [1.5, float("nan")]),
        ("float", pa.array([1.5, float("inf"), float("nan")]), [1.5, float("inf"), float("nan")]),
        ("decimal(5,2)", pa.array([1, -999]), [Decimal("1.00"), Decimal("-999.00")]),
        ("decimal(20,0)", pa.array([2**64 - 1], pa.uint64()), [Decimal(2**64 - 1)]),
        ("decimal(5,2)", pa.array([Decimal("1.500")]), [Decimal("1.50")]),
        ("string", pa.array([b"abc"]), ["abc"]),
        ("binary", pa.array(["abc"]), [b"abc"]),
        ("binary", pa.array([b"ab"], pa.binary(2)), [b"ab"]),
        ("date", pa.array([dt.date(2018, 1, 1)], pa.date64()), [dt.date(2018, 1, 1)]),
        (
            "timestamp_ntz",
            pa.array([1_000], pa.timestamp("ns")),
            [dt.datetime.fromisoformat("1970-01-01 00:00:00.000001")],
        ),
        (
            "timestamp",
            pa.array([1], pa.timestamp("s", "Asia/Tokyo")),
            [dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)],
        ),
        ("array<int>", pa.array([[1], None, []], pa.list_(pa.uint8())), [[1], None, []]),
        ("array<int>", pa.array([[1, 2], None], pa.list_(pa.int64(), 2)), [[1, 2], None]),
        ("array<string>", pa.nulls(2), [None, None]),
        ("struct<a:int,b:string>", pa.array([{"b": "x"}, None]), [{"a": None, "b": "x"}, None]),
        ("struct<a:int,b:string>", pa.array([{"b": "x", "a": 1}]), [{"a": 1, "b": "x"}]),
        ("map<string,int>", pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int8())), [[("a", 1)], None, []]),
    ],
)
def test_values_that_fit_exactly_are_taken(column: str, data: pa.Array, expected: list[Any]) -> None:
    found = conform(pa.table({"c": data}), _table(f"c {column}"))
    assert _same(found.column("c").to_pylist(), expected)


@pytest.mark.parametrize(
    ("column", "data", "found"),
    [
        ("int", pa.array([2**31]), "int64"),
        ("int", pa.array([1.5]), "double"),
        ("int", pa.array(["1"]), "string"),
        ("int", pa.array([True]), "bool"),
        ("boolean", pa.array([1]), "int64"),
        ("string", pa.array([1]), "int64"),
        ("string", pa.array([b"\xff"]), "binary"),
        ("double", pa.array([2**60 + 1]), "int64"),
        ("float", pa.array([0.1]), "double"),
        ("float", pa.array([1e300]), "double"),
        ("decimal(5,2)", pa.array([1000]), "int64"),
        ("decimal(5,2)", pa.array([1.5]), "double"),
        ("decimal(5,2)", pa.array([Decimal("0.001")]), "decimal128"),
        ("date", pa.array([dt.datetime.fromisoformat("2018-01-01")]), "timestamp"),
        ("date", pa.array(["2018-01-01"]), "string"),
        ("timestamp_ntz", pa.array([1], pa.timestamp("us", "UTC")), "time zone"),
        ("timestamp_ntz", pa.array([1], pa.timestamp("ns")), "would lose data"),
        ("array<int>", pa.array([1]), "int64"),
        ("array<int>", pa.array([["a"]]), "c.element"),
        ("struct<a:int>", pa.array([{"z": 1}]), "'z' is unknown"),
        ("struct<a:struct<b:int>>", pa.array([{"a": {"b": "x"}}]), "c.a.b"),
        ("map<string,int>", pa.array([{"a": 1}]), "struct"),
        ("map<string,int>", pa.array([[("a", "x")]], pa.map_(pa.string(), pa.string())), "c.value"),
    ],
)
def test_values_that_do_not_fit_are_refused_and_the_error_names_them(column: str, data: pa.Array, found: str) -> None:
    with pytest.raises(SchemaMismatch) as caught:
        conform(pa.table({"c": data}), _table(f"c {column}"))
    message = str(caught.value)
    assert "column 'c" in message
    assert found in message
    assert "expected" in message


def test_python_floats_are_rounded_to_float_columns_only_when_they_come_from_python() -> None:
    definition = _table("c float, l array<float>")
    found = conform([{"c": 0.1, "l": [0.1]}], definition)
    assert found.column("c")[0].as_py() == pytest.approx(0.1, rel=1e-6)
    with pytest.raises(SchemaMismatch, match="does not fit"):
        conform({"c": [1e300]}, definition)


def test_dicts_become_maps_where_the_column_is_one() -> None:
    found = conform([{"c": {"a": 1}}, {"c": [("b", 2)]}], _table("c map<string,int>"))
    assert found.column("c").to_pylist() == [[("a", 1)], [("b", 2)]]


def test_unknown_column_is_refused_with_a_suggestion() -> None:
    with pytest.raises(SchemaMismatch, match="no column 'V'; did you mean 'v'"):
        conform({"k": [1], "V": [1.0]}, bench_table())
    with pytest.raises(SchemaMismatch, match="its columns are d, k, v, s"):
        conform([{"something": 1}], bench_table())


def test_missing_column_that_may_not_be_null_is_refused() -> None:
    with pytest.raises(SchemaMismatch, match="'k' is missing: expected int64"):
        conform({"s": ["a"]}, _table("k bigint not null, s string"))


def test_null_in_a_column_that_may_not_be_null_is_refused_and_the_row_is_named() -> None:
    with pytest.raises(SchemaMismatch, match=r"column 'k'.*row 2 \(1 in all\)"):
        conform(pa.table({"k": [1, 2, None]}), _table("k bigint not null"))


@pytest.mark.parametrize(
    ("data", "error", "hint"),
    [
        ([1, 2], BadInput, "row 0 is a int"),
        ("text", BadInput, "can't insert a str"),
        (17, BadInput, "can't insert a int"),
        ({"k": [1, 2], "v": [1.0]}, SchemaMismatch, "different numbers of rows"),
        ({"k": [1, "a"]}, SchemaMismatch, "do not fit together"),
        ({"k": "abc"}, SchemaMismatch, "a column is a sequence"),
        ({"k": 5}, SchemaMismatch, "a column is a sequence"),
        ({"k": [2**70]}, SchemaMismatch, "column 'k'"),
        (pa.table([[1], [2]], names=["k", "k"]), SchemaMismatch, "given twice"),
    ],
)
def test_what_is_no_table_is_refused(data: Any, error: type[Exception], hint: str) -> None:
    with pytest.raises(error, match=hint):
        conform(data, bench_table())


def test_rows_of_another_machine_with_damaged_buffers_are_refused() -> None:
    offsets = pa.py_buffer(np.array([0, 3, 1, 3], np.int32).tobytes())
    broken = pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b"abc")])
    with pytest.raises(SchemaMismatch, match="damaged"):
        conform(pa.table({"s": broken}), bench_table())


def test_no_rows_are_rows_too() -> None:
    definition = bench_table()
    inputs: list[Any] = [[], {}, [{}, {}], definition.arrow_schema.empty_table()]
    for data in inputs:
        found = conform(data, definition)
        assert found.schema.equals(definition.arrow_schema)
        assert found.num_rows == (2 if data == [{}, {}] else 0)


def test_columns_of_any_storable_type_can_be_inserted_where_they_define_the_table() -> None:
    array = pa.array([1, 2], pa.uint16()).dictionary_encode()
    definition = define_table("t", pa.schema([("c", array.type)]))
    assert format_type(storable_type(array.type)) == "int32"
    assert conform(pa.table({"c": array}), definition).column("c").to_pylist() == [1, 2]
