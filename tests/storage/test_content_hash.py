from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replitree.storage.parts.content_hash import ContentHasher, content_hash
from tests.formats.reference_hash import reference_hash
from tests.storage.support import arrays, chunked


def _hash(column: pa.Array | pa.ChunkedArray, arrow: pa.DataType | None = None) -> str:
    schema = pa.schema([("c", arrow or column.type)])
    return content_hash(pa.table({"c": column}), schema)


@given(arrays(), st.lists(st.integers(0, 12), max_size=4), st.integers(0, 5))
def test_hash_does_not_depend_on_chunks_and_offsets(array: pa.Array, cuts: list[int], padding: int) -> None:
    assert _hash(chunked(array, cuts, padding)) == _hash(array)


@given(arrays())
def test_hash_is_what_its_description_says(array: pa.Array) -> None:
    assert _hash(array) == reference_hash(pa.table({"c": array}))


@given(arrays(pa.string()))
def test_hash_does_not_depend_on_dictionary_encoding(array: pa.Array) -> None:
    assert _hash(array.dictionary_encode(), pa.string()) == _hash(array)


def test_hash_does_not_depend_on_what_lies_under_a_null() -> None:
    validity = pa.py_buffer(b"\x05")
    for hidden in (b"\x00\x00", b"\x63\x00"):
        data = pa.py_buffer(b"\x01\x00" + hidden + b"\x03\x00")
        array = pa.Array.from_buffers(pa.int16(), 3, [validity, data])
        assert _hash(array) == _hash(pa.array([1, None, 3], pa.int16()))
    offsets, text = pa.array([0, 1, 4, 5], pa.int32()).buffers()[1], pa.py_buffer(b"axyzb")
    assert _hash(pa.Array.from_buffers(pa.string(), 3, [validity, offsets, text])) == _hash(pa.array(["a", None, "b"]))
    hidden_list = pa.ListArray.from_arrays([0, 1, 3], [7, 8, 9], mask=pa.array([False, True]))
    assert _hash(hidden_list) == _hash(pa.array([[7], None]))
    fields = [pa.array([1, 2])]
    assert _hash(pa.StructArray.from_arrays(fields, ["a"], mask=pa.array([False, True]))) == _hash(
        pa.array([{"a": 1}, None])
    )


def test_hash_does_not_depend_on_the_order_in_which_columns_lie() -> None:
    table = pa.table({"a": [1], "b": ["x"]})
    assert content_hash(table.select(["b", "a"]), table.schema) == content_hash(table, table.schema)


DIFFERENT = [
    (pa.array([1, 2]), pa.array([2, 1])),
    (pa.array([1, None]), pa.array([None, 1])),
    (pa.array([None, None], pa.int64()), pa.array([None], pa.int64())),
    (pa.array([0, None]), pa.array([0, 0])),
    (pa.array([1], pa.int32()), pa.array([1], pa.date32())),
    (pa.array(["ab", "c"]), pa.array(["a", "bc"])),
    (pa.array([""]), pa.array([None], pa.string())),
    (pa.array([[1], [2]]), pa.array([[1, 2], []])),
    (pa.array([[]], pa.list_(pa.int64())), pa.array([None], pa.list_(pa.int64()))),
    (pa.array([[None]], pa.list_(pa.int64())), pa.array([[]], pa.list_(pa.int64()))),
    (pa.array([{"a": None}], pa.struct([("a", pa.int64())])), pa.array([None], pa.struct([("a", pa.int64())]))),
    (pa.array([0.0]), pa.array([-0.0])),
    (pa.array([True]), pa.array([False])),
]


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_hash_tells_different_rows_apart(one: pa.Array, other: pa.Array) -> None:
    assert _hash(one) != _hash(other)


def test_hash_depends_on_names_and_types() -> None:
    rows = pa.table({"a": [1], "b": [1]})
    renamed = rows.rename_columns(["b", "a"])
    assert content_hash(rows, rows.schema) != content_hash(renamed, renamed.schema)


def test_hash_of_batches_is_that_of_the_table() -> None:
    table = pa.table({"a": list(range(100))})
    hasher = ContentHasher(table.schema)
    for batch in table.to_batches(max_chunksize=7):
        hasher.update(batch)
    assert hasher.hexdigest() == content_hash(iter(table.to_batches(max_chunksize=13)), table.schema)
