"""Changed rows: what differs between a part and the part that has replaced it.

Guarantees: with the rows of the part before, the changes give the rows of the part after, as multisets.  Rows are compared as
content hashes are: null equals null, floating-point values by their bits.

* A *mutation* keeps the order of the rows, and either deletes some or gives columns of some other values
  (`replitree.storage.rewrite.mutate`).  So with equal numbers of rows the rows are compared place by place, and each row that
  differs gives a preimage and, right after it, its postimage.  With fewer rows, those that are missing were deleted.
* A *rewrite* may do anything: what is missing is a `delete`, what is new an `insert`.

Both are computed from the two parts alone, vectorised: `row_classes` numbers the rows so that equal rows have equal numbers.

Memory: the rows of both parts, and some numbers for each row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from replitree.errors import CorruptPart

CHANGE_TYPE = "_change_type"
INSERT, DELETE, PREIMAGE, POSTIMAGE = "insert", "delete", "update_preimage", "update_postimage"
CHANGE_TYPES = (INSERT, DELETE, PREIMAGE, POSTIMAGE)

Numbers = NDArray[np.int64]


def mutated_rows(before: pa.Table, after: pa.Table) -> pa.Table:
    """Return the rows that a mutation has changed, with a last column `_change_type`.

    Parameters
    ----------
    before, after
        All rows of a part, in their order, with the same schema.

    Raises
    ------
    CorruptPart
        No mutation makes one of the other.
    """
    if after.num_rows == before.num_rows:
        old, new = _classes(before, after)
        (places,) = np.nonzero(old != new)
        # The preimage of each changed row, and right after it its postimage.
        order = np.column_stack([places, places + before.num_rows]).ravel()
        types = [PREIMAGE, POSTIMAGE] * len(places)
        return _with_types(pa.concat_tables([before, after]).take(order), types)
    found = rewritten_rows(before, after)
    if found.num_rows != before.num_rows - after.num_rows:
        raise CorruptPart("the rows of a mutated part are not those of the part that it was made of; verify both")
    return found


def rewritten_rows(before: pa.Table, after: pa.Table) -> pa.Table:
    """Return the difference of two parts as multisets: `delete` and `insert`.  Parameters as `mutated_rows`."""
    old, new = _classes(before, after)
    gone, came = _surplus(old, new), _surplus(new, old)
    order = np.concatenate([gone, came + before.num_rows])
    types = [DELETE] * len(gone) + [INSERT] * len(came)
    return _with_types(pa.concat_tables([before, after]).take(order), types)


def _with_types(rows: pa.Table, types: list[str]) -> pa.Table:
    return rows.append_column(CHANGE_TYPE, pa.array(types, pa.string()))


def _surplus(some: Numbers, others: Numbers) -> Numbers:
    """Return the places of the rows of `some` that are more than there are equal ones in `others`."""
    if not len(some):
        return np.empty(0, np.int64)
    many = np.bincount(others, minlength=int(some.max()) + 1)
    order = np.argsort(some, kind="stable")
    ordered = some[order]
    begins = np.searchsorted(ordered, ordered)
    # Of equal rows, the first ones are those that are there still: which ones they are makes no difference.
    return np.sort(order[np.arange(len(some)) - begins >= many[ordered]])


def _classes(before: pa.Table, after: pa.Table) -> tuple[Numbers, Numbers]:
    rows = pa.concat_tables([before, after]).combine_chunks()
    numbers = row_classes([rows.column(i) for i in range(rows.num_columns)], rows.num_rows)
    return numbers[: before.num_rows], numbers[before.num_rows :]


def row_classes(columns: Sequence[pa.ChunkedArray | pa.Array], rows: int) -> Numbers:
    """Return numbers for rows: two have the same number exactly when they are equal, from 0 on."""
    found = np.zeros(rows, np.int64)
    for column in columns:
        array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        numbers = _value_classes(array)
        # Both factors are at most the number of rows, so the product has less than 63 bits.
        found = _dense(found * (int(numbers.max(initial=0)) + 1) + numbers)
    return found


def _dense(numbers: Numbers) -> Numbers:
    """Return equal numbers for equal numbers, from 0 on."""
    return _encoded(pa.array(numbers))


def _value_classes(array: pa.Array) -> Numbers:
    """Return numbers for values: two have the same number exactly when they are equal; 0 is null."""
    found = np.zeros(len(array), np.int64)
    if array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        found[valid] = _classes_of_valid(array.drop_null()) + 1
    else:
        found[:] = _classes_of_valid(array) + 1
    return found


def _classes_of_valid(array: pa.Array) -> Numbers:
    """Return the same for values of which none is null."""
    kinds, arrow = pa.types, array.type
    if not len(array):
        return np.empty(0, np.int64)
    if kinds.is_dictionary(arrow):
        return _classes_of_valid(array.dictionary_decode())
    if kinds.is_map(arrow):
        entries = pa.list_(pa.struct([("key", arrow.key_type), ("value", arrow.item_type)]))
        return _classes_of_valid(array.cast(entries))
    if kinds.is_list(arrow):
        # The numbers of a list's elements, as bytes, tell lists apart.
        elements = _value_classes(array.flatten())
        ends = np.concatenate([[0], np.cumsum(np.diff(array.offsets.to_numpy()))]) * elements.itemsize
        buffers = [None, pa.py_buffer(ends.astype("<i8")), pa.py_buffer(elements)]
        array = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(array), buffers)
    elif kinds.is_struct(arrow):
        return row_classes(array.flatten(), len(array))
    elif kinds.is_floating(arrow):
        array = array.view(pa.int32() if arrow.bit_width == 32 else pa.int64())
    return _encoded(array)


def _encoded(array: pa.Array) -> Numbers:
    found: Numbers = array.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return found


__all__ = [
    "CHANGE_TYPE",
    "CHANGE_TYPES",
    "DELETE",
    "INSERT",
    "POSTIMAGE",
    "PREIMAGE",
    "mutated_rows",
    "rewritten_rows",
    "row_classes",
]
