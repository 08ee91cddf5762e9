"""Changed rows: what differs between a part and the part that has replaced it.

Guarantees: with the rows of the part before, the changes give the rows of the part after, as multisets.  Rows are compared as
content hashes are: null equals null, floating-point values by their bits.

* A *mutation* keeps the order of the rows, and either deletes some or gives columns of some other values
  (`replitree.storage.rewrite.mutate`).  So with equal numbers of rows the rows are compared place by place, and each row that
  differs gives a preimage and, right after it, its postimage.  With fewer rows, those that are missing were deleted: the rows
  that are left are found in their order, each as early as possible.  Of equal rows it makes no difference which one went.
* A *rewrite* may do anything: what is missing is a `delete`, what is new an `insert`.

Both are computed from the two parts alone, vectorised: `row_classes` numbers the rows so that equal rows have equal numbers.

Memory: of a mutation `CHUNK_ROWS` rows of each part at a time, because the order is kept; of a rewrite the rows of both parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from replitree.errors import CorruptPart

CHANGE_TYPE = "_change_type"
INSERT, DELETE, PREIMAGE, POSTIMAGE = "insert", "delete", "update_preimage", "update_postimage"
CHANGE_TYPES = (INSERT, DELETE, PREIMAGE, POSTIMAGE)

Numbers = NDArray[np.int64]

CHUNK_ROWS = 131_072
"""Rows of each part that are compared at a time."""

WINDOW_ROWS = 64
"""Rows in which the next place that is equal, or differs, is looked for first."""


def mutated_rows(
    before: Iterable[pa.RecordBatch], after: Iterable[pa.RecordBatch], schema: pa.Schema, *, deletes: bool
) -> Iterator[pa.Table]:
    """Give the rows that a mutation has changed, some at a time, with a last column `_change_type`.

    Parameters
    ----------
    before, after
        All rows of a part, in their order, with the same schema.
    schema
        That schema.
    deletes
        Whether there are fewer rows after it.

    Raises
    ------
    CorruptPart
        No mutation makes one of the other.
    """
    old_rows, new_rows = _Rows(before, schema), _Rows(after, schema)
    while (old := old_rows.first(CHUNK_ROWS)).num_rows:
        old_rows.skip(old.num_rows)
        new = new_rows.first(old.num_rows)
        if not deletes and new.num_rows != old.num_rows:
            raise _other_rows()
        a, b = _classes(old, new)
        if deletes:
            is_kept, kept = _kept(a, b)
            new_rows.skip(kept)
            found = _with_types(old.filter(pa.array(~is_kept)), [DELETE] * (old.num_rows - kept))
        else:
            new_rows.skip(old.num_rows)
            (places,) = np.nonzero(a != b)
            # The preimage of each changed row, and right after it its postimage.
            order = np.column_stack([places, places + old.num_rows]).ravel()
            found = _with_types(pa.concat_tables([old, new]).take(order), [PREIMAGE, POSTIMAGE] * len(places))
        if found.num_rows:
            yield found
    if new_rows.first(1).num_rows:
        raise _other_rows()


class _Rows:
    """Rows that come in batches, taken by number."""

    def __init__(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
        self._batches, self._left = iter(batches), schema.empty_table()

    def first(self, count: int) -> pa.Table:
        """Return the next rows, so many if there are; they stay the next ones."""
        while self._left.num_rows < count and (batch := next(self._batches, None)) is not None:
            self._left = pa.concat_tables([self._left, pa.Table.from_batches([batch], self._left.schema)])
        return self._left.slice(0, count)

    def skip(self, count: int) -> None:
        """Pass by the next rows."""
        self._left = self._left.slice(count)


def _kept(before: Numbers, after: Numbers) -> tuple[NDArray[np.bool_], int]:
    """Find which of some rows are kept, and how many, where `after` begins with the rows that are."""
    kept, i, j = np.zeros(len(before), np.bool_), 0, 0
    while i < len(before) and j < len(after):
        run = _first(before[i:], after[j:], equal=False)
        kept[i : i + run] = True
        i, j = i + run, j + run
        if i < len(before) and j < len(after):
            i += _first(before[i:], np.broadcast_to(after[j], len(before) - i), equal=True)
    return kept, j


def _first(some: Numbers, others: Numbers, *, equal: bool) -> int:
    """Return the first place at which two arrays are equal, or differ; the shorter one's length where there is none."""
    at, window, length = 0, WINDOW_ROWS, min(len(some), len(others))
    while at < length:
        end = min(length, at + window)
        # Mostly the place is near: comparing all that is left each time would cost its square.
        (found,) = np.nonzero((some[at:end] == others[at:end]) == equal)
        if len(found):
            return at + int(found[0])
        at, window = end, 2 * window
    return length


def _other_rows() -> CorruptPart:
    return CorruptPart("the rows of a mutated part are not those of the part that it was made of; verify both")


def rewritten_rows(before: pa.Table, after: pa.Table) -> pa.Table:
    """Return the difference of two parts as multisets, `delete` and `insert`, with a last column `_change_type`.

    Parameters
    ----------
    before, after
        All rows of each part, with the same schema.
    """
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
        # Both factors are at most the number of rows, so the product has less than 63 bits.  Encoded, it begins at 0 again.
        found = _encoded(pa.array(found * (int(numbers.max(initial=0)) + 1) + numbers))
    return found


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
