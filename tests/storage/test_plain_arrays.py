"""Arrays of unknown origin: right ones keep their values in any layout, damaged ones are refused, and no kernel sees them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from replitree.errors import BadInput, SchemaMismatch
from replitree.storage.parts.conform import conform
from replitree.storage.parts.plain_arrays import Budget, is_plain, plain, slot_bytes
from replitree.storage.schema.definition import define_table


def buffer(*numbers: int, kind: str = "i") -> pa.Buffer:
    return pa.py_buffer(struct.pack(f"<{len(numbers)}{kind}", *numbers))


def view(size: int, number: int = 0, start: int = 0) -> bytes:
    return struct.pack("<i4sii", size, b"long", number, start)


def views(*pieces: bytes, valid: bytes | None = None, kind: pa.DataType | None = None) -> pa.Array:
    bits = None if valid is None else pa.py_buffer(valid)
    texts = [pa.py_buffer(b"long text of thirty-two bytes, ok")]
    return pa.Array.from_buffers(kind or pa.string_view(), len(pieces), [bits, pa.py_buffer(b"".join(pieces)), *texts])


SHORT = struct.pack("<i12s", 3, b"abc")


def dictionary(
    *indices: int, values: tuple[str, ...] = ("a", "b"), kind: str = "i", valid: bytes | None = None
) -> pa.Array:
    bits = None if valid is None else pa.py_buffer(valid)
    index = {"i": pa.int32(), "b": pa.int8(), "Q": pa.uint64()}[kind]
    found = pa.Array.from_buffers(index, len(indices), [bits, buffer(*indices, kind=kind)])
    return pa.DictionaryArray.from_arrays(found, pa.array(values), safe=False)


def runs(ends: tuple[int, ...], length: int, values: tuple[int | None, ...] = (7, 8)) -> pa.Array:
    kind = pa.run_end_encoded(pa.int32(), pa.int64())
    children = [pa.array(ends, pa.int32()), pa.array(values, pa.int64())]
    return pa.Array.from_buffers(kind, length, [None], 0, 0, children=children)


def list_views(starts: tuple[int, ...], sizes: tuple[int, ...], valid: bytes | None = None) -> pa.Array:
    bits = None if valid is None else pa.py_buffer(valid)
    kind = pa.list_view(pa.int64())
    return pa.Array.from_buffers(
        kind, len(starts), [bits, buffer(*starts), buffer(*sizes)], children=[pa.array([1, 2, 3])]
    )


def lists(offsets: tuple[int, ...], elements: pa.Array) -> pa.Array:
    kind = pa.list_(elements.type)
    return pa.Array.from_buffers(kind, len(offsets) - 1, [None, buffer(*offsets)], children=[elements])


NULL_SECOND = b"\x01"

CRASHERS: dict[str, tuple[str, Callable[[], pa.Array]]] = {
    "a view with a negative size": ("string", lambda: views(SHORT, view(-5))),
    "a view with the smallest size": ("string", lambda: views(view(-(2**31)))),
    "a view in a buffer that is not there": ("string", lambda: views(view(30, 1))),
    "a view in a negative buffer": ("string", lambda: views(view(30, -1))),
    "a view that begins before its buffer": ("string", lambda: views(view(30, 0, -1))),
    "a view that ends beyond its buffer": ("string", lambda: views(view(30, 0, 4))),
    "a view whose end is beyond 2^31": ("string", lambda: views(view(30, 0, 2**31 - 1))),
    "a binary view that ends beyond its buffer": ("binary", lambda: views(view(40), kind=pa.binary_view())),
    "a view that is not UTF-8": ("string", lambda: views(struct.pack("<i12s", 2, b"\xff\xfe"))),
    "an index beyond its dictionary": ("string", lambda: dictionary(0, 2)),
    "a negative index": ("string", lambda: dictionary(0, -1)),
    "an index beyond 2^63": ("string", lambda: dictionary(0, 2**64 - 1, kind="Q")),
    "an index into an empty dictionary": ("string", lambda: dictionary(0, values=())),
    "an index of a view that is damaged": (
        "string",
        lambda: pa.DictionaryArray.from_arrays(pa.array([0, 1]), views(SHORT, view(30, 9)), safe=False),
    ),
    "run ends that descend": ("bigint", lambda: runs((3, 2), 2)),
    "a run end of zero": ("bigint", lambda: runs((0, 2), 2)),
    "a negative run end": ("bigint", lambda: runs((-1, 2), 2)),
    "a list view that begins before its elements": ("array<bigint>", lambda: list_views((-1,), (1,))),
    "a list view with a negative size": ("array<bigint>", lambda: list_views((0,), (-1,))),
    "a list view that ends beyond its elements": ("array<bigint>", lambda: list_views((2,), (2,))),
    "a list view whose end is beyond 2^31": ("array<bigint>", lambda: list_views((2,), (2**31 - 1,))),
    "lists of damaged views, offsets that descend": ("array<string>", lambda: lists((0, 2, 1), views(SHORT, SHORT))),
    "lists of damaged views": ("array<string>", lambda: lists((0, 1), views(view(-1)))),
    "a struct with a damaged view": (
        "struct<a:string>",
        lambda: pa.StructArray.from_arrays([views(view(30, 7))], names=["a"]),
    ),
    "plain text whose offsets descend": (
        "string",
        lambda: pa.Array.from_buffers(pa.string(), 3, [None, buffer(0, 3, 1, 3), pa.py_buffer(b"abc")]),
    ),
    "a decimal with too many digits": (
        "decimal(5,2)",
        lambda: pa.Array.from_buffers(pa.decimal128(5, 2), 1, [None, buffer(2**62, 1, kind="q")]),
    ),
}


@pytest.mark.parametrize("name", CRASHERS)
def test_a_damaged_array_is_refused_before_a_kernel_sees_it(name: str) -> None:
    column, make = CRASHERS[name]
    with pytest.raises(SchemaMismatch, match="damaged"):
        conform(pa.table({"c": make()}), define_table("t", f"c {column}"))


@pytest.mark.parametrize(
    ("column", "array", "expected"),
    [
        ("string", views(SHORT, view(-5), valid=NULL_SECOND), ["abc", None]),
        ("string", views(SHORT, view(30, 9, -4), valid=NULL_SECOND), ["abc", None]),
        ("string", dictionary(1, 99, valid=NULL_SECOND), ["b", None]),
        ("string", dictionary(1, -1, valid=NULL_SECOND, kind="b"), ["b", None]),
        ("array<bigint>", list_views((1, -7), (2, 2**31 - 1), NULL_SECOND), [[2, 3], None]),
    ],
    ids=["negative size", "no such buffer", "index beyond", "negative index", "list view"],
)
def test_what_a_null_slot_refers_to_does_not_matter(column: str, array: pa.Array, expected: list[Any]) -> None:
    found = conform(pa.table({"c": array}), define_table("t", f"c {column}"))
    assert found.column("c").to_pylist() == expected


TEXT = ["a", None, "longer than twelve bytes", "", "ü" * 20, "a"]
LAYOUTS: dict[str, pa.Array] = {
    "views": pa.array(TEXT, pa.string_view()),
    "binary views": pa.array([None if text is None else text.encode() for text in TEXT], pa.binary_view()),
    "dictionary": pa.array(TEXT).dictionary_encode(),
    "dictionary of views": pa.DictionaryArray.from_arrays(
        pa.array([2, None, 0], pa.uint16()), pa.array(TEXT, pa.string_view())
    ),
    "dictionary with a null": pa.DictionaryArray.from_arrays(pa.array([1, 0, 1]), pa.array(["x", None])),
    "dictionary without values": pa.DictionaryArray.from_arrays(pa.nulls(2, pa.int32()), pa.array([], pa.string())),
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array([2, 5, 6]), pa.array([1, None, 3])),
    "runs of a dictionary": pa.RunEndEncodedArray.from_arrays(
        pa.array([1, 4], pa.int16()), pa.array(["x", "y"]).dictionary_encode()
    ),
    "list views": pa.array([[1, 2], None, [], [3]], pa.list_view(pa.int64())),
    "large list views of views": pa.array([["a"], None, TEXT], pa.large_list_view(pa.string_view())),
    "lists of views": pa.array([["a"], None, TEXT, []], pa.list_(pa.string_view())),
    "large lists of a dictionary": pa.array([["a"], None, ["b"]], pa.large_list(pa.dictionary(pa.int8(), pa.string()))),
    "fixed-size lists of views": pa.array([["a", None], None, ["b", "c" * 20]], pa.list_(pa.string_view(), 2)),
    "structs of views": pa.array([{"a": "x"}, None, {"a": None}], pa.struct([("a", pa.string_view())])),
    "maps of views": pa.array([[("k", "v" * 20)], None, []], pa.map_(pa.string_view(), pa.string_view())),
    "an extension": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16, None], pa.binary(16))),
    "lists of an extension": pa.ListArray.from_arrays(
        pa.array([0, 1, 2]), pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16, None], pa.binary(16)))
    ),
}


def values(array: pa.Array) -> list[Any]:
    return [getattr(value, "bytes", value) for value in array.to_pylist()]


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("first", [0, 1])
def test_a_right_array_keeps_its_values_in_whatever_layout(name: str, first: int) -> None:
    array = LAYOUTS[name]
    for end in range(first, len(array) + 1):
        piece = array.slice(first, end - first)
        found = plain(piece, Budget(1 << 20), "column 'c'")
        found.validate(full=True)
        assert is_plain(found.type)
        if "extension" not in name:
            assert values(found) == values(piece)
        assert len(slot_bytes(found)) == len(piece)


def test_what_no_column_takes_is_refused_whatever_is_in_it() -> None:
    union = pa.UnionArray.from_dense(pa.array([0], pa.int8()), pa.array([9], pa.int32()), [pa.array([1])])
    for array in (union, lists((0, 1), union), pa.array([1], pa.time64("us")), pa.array([1], pa.duration("s"))):
        with pytest.raises(SchemaMismatch, match="no column takes"):
            conform(pa.table({"c": array}), define_table("t", "c bigint"))


def test_types_inside_of_types_have_a_limit() -> None:
    array = pa.array([1])
    for _ in range(100):
        array = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), array)
    with pytest.raises(SchemaMismatch, match="on more than 64 levels"):
        conform(pa.table({"c": array}), define_table("t", "c array<bigint>"))


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        (pa.decimal256(40, 134_217_730), "decimal(5,2)"),
        (pa.decimal256(40, -77), "bigint"),
        (pa.decimal128(5, -(2**31)), "decimal(5,2)"),
        (pa.decimal128(5, 39), "bigint"),
        (pa.decimal128(5, -30), "decimal(38,30)"),
        (pa.decimal256(5, -70), "decimal(38,30)"),
        (pa.list_(pa.decimal128(5, 2**31 - 1)), "array<decimal(5,2)>"),
    ],
)
def test_a_decimal_of_an_absurd_scale_is_refused(kind: pa.DataType, column: str) -> None:
    flat = kind.value_type if pa.types.is_list(kind) else kind
    array = pa.Array.from_buffers(flat, 2, [None, pa.py_buffer(bytes(2 * flat.bit_width // 8))])
    data = lists((0, 2), array) if flat is not kind else array
    with pytest.raises(SchemaMismatch, match="scale is"):
        conform(pa.table({"c": data}), define_table("t", f"c {column}"))


@pytest.mark.parametrize("kind", [pa.decimal32(4, 1), pa.decimal64(12, 1), pa.decimal128(20, 1), pa.decimal256(50, 1)])
def test_decimals_of_every_width_change_their_scale(kind: pa.DataType) -> None:
    array = pa.array([Decimal("1.5"), None, Decimal(-20)], kind)
    found = conform(pa.table({"c": array}), define_table("t", "c decimal(38,30)"))
    assert found.column("c").to_pylist() == array.to_pylist()


LONG = "x" * 1_000_000
MANY = np.zeros(1000, np.int32)


@pytest.mark.parametrize(
    ("column", "array"),
    [
        ("string", pa.DictionaryArray.from_arrays(pa.array(MANY), pa.array([LONG]))),
        ("string", pa.RunEndEncodedArray.from_arrays(pa.array([1000]), pa.array([LONG]))),
        ("bigint", pa.RunEndEncodedArray.from_arrays(pa.array([2**60]), pa.array([1]))),
        ("string", pa.RunEndEncodedArray.from_arrays(pa.array([2**60]), pa.nulls(1))),
        ("array<string>", pa.ListViewArray.from_arrays(pa.array(MANY), pa.array(MANY + 1), pa.array([LONG]))),
        ("array<string>", pa.DictionaryArray.from_arrays(pa.array(MANY), pa.array([[LONG]]))),
        ("struct<a:string>", pa.DictionaryArray.from_arrays(pa.array(MANY), pa.array([{"a": LONG}]))),
        (
            "array<binary>",
            pa.DictionaryArray.from_arrays(pa.array(MANY), pa.array([[b"x" * 999_999]], pa.list_(pa.binary(), 1))),
        ),
        ("decimal(38,0)", pa.nulls(10_000_000)),
        ("struct<a:bigint,b:bigint>", pa.nulls(10_000_000)),
    ],
)
def test_rows_that_become_too_large_are_refused_before_they_are_made(column: str, array: pa.Array) -> None:
    before = pa.total_allocated_bytes()
    with pytest.raises(BadInput, match="insert_decoded_bytes_max"):
        conform(pa.table({"c": array}), define_table("t", f"c {column}"), Budget(100_000_000))
    assert pa.total_allocated_bytes() - before < 50_000_000


def test_columns_that_are_not_given_count_too() -> None:
    table = define_table("t", f"k bigint, {', '.join(f'c{n} bigint' for n in range(100))}")
    with pytest.raises(BadInput, match="insert_decoded_bytes_max"):
        conform(pa.table({"k": pa.nulls(1_000_000, pa.int8())}), table, Budget(100_000_000))
