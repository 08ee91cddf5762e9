"""Plain arrays: dictionaries, runs, views and extensions are checked on their raw buffers and replaced by their values.

Arrow's kernels trust what these layouts refer to, and Arrow's own validation does not check all of it: a view in a null slot
may have a negative size, and a cast of it ends the process.  Rows may come from another machine.  So no kernel is given such an
array: its references are read as numbers, checked, and only then used to take values.

==================  ==================================================================================================
layout              checked before use, null slots included
==================  ==================================================================================================
views of text       size not negative; buffer number, start and end inside; the view of a null slot is replaced by an empty one
dictionary          each index that is not null inside of the dictionary; the index of a null slot is replaced by 0
run-end encoded     run ends positive and ascending, the last one not before the end of the array, no null among them
views of lists      start and size not negative, end inside of the elements; a null slot is replaced by an empty list
list, map           offsets not negative, ascending, the last one inside of the elements
fixed-size list     as many elements as the lists need
struct              each field as long as the struct
==================  ==================================================================================================

Guarantees: the result has the same values, its type has none of these layouts at any depth, and `validate(full=True)` has
accepted each of its leaves.  An array that would become larger than the budget allows is refused before it is made.

Absent on purpose: unions, times, durations and intervals; no column takes their values.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from replitree.errors import BadInput, SchemaMismatch
from replitree.storage.schema.types import is_encoded

DEPTH_MAX = 64
"""Levels of types inside of types."""

VIEW_INLINE_BYTES = 12
"""Text of up to so many bytes stands in its view; longer text in a buffer."""

_Numbers: TypeAlias = NDArray[Any]


class Budget:
    """How many bytes may still be allocated for the rows of one insert.

    Parameters
    ----------
    bytes_max
        The limit; None: there is none.
    """

    def __init__(self, bytes_max: int | None = None) -> None:
        self._max = bytes_max
        self._left = bytes_max

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit."""
        return self._left is not None

    def take(self, size: int) -> None:
        """Take bytes off the budget.

        Raises
        ------
        BadInput
            There are not as many left.
        """
        if self._left is None:
            return
        self._left -= size
        if self._left < 0:
            raise BadInput(
                f"the rows take more than {self._max:,} bytes in the table's types (insert_decoded_bytes_max of the "
                "server): insert in several requests, or upload files"
            )


def plain_table(table: pa.Table, budget: Budget) -> pa.Table:
    """Return the rows with plain arrays only: see the module.

    Raises
    ------
    SchemaMismatch
        An array is damaged, or has a type that no column takes.
    BadInput
        The rows exceed the budget.
    """
    for number, field in enumerate(table.schema):
        if not is_plain(field.type):
            chunks = [plain(chunk, budget, f"column {field.name!r}") for chunk in table.column(number).chunks]
            column = pa.chunked_array(chunks, type=plain_type(field.type))
            table = table.set_column(number, pa.field(field.name, column.type), column)
    return table


# --- types ------------------------------------------------------------------------------------------------------------


def is_plain(arrow: pa.DataType) -> bool:
    """Tell whether a type has no layout that must be replaced, at any depth.  Raises as `plain_type`."""
    return bool(plain_type(arrow) == arrow)


def plain_type(arrow: pa.DataType, depth: int = DEPTH_MAX) -> pa.DataType:
    """Return the type of an array once it is plain.

    Raises
    ------
    SchemaMismatch
        No column takes values of this type, or it is nested too deeply.
    """
    kinds = pa.types
    if not depth:
        raise SchemaMismatch(f"a column has types inside of types on more than {DEPTH_MAX} levels")
    if isinstance(arrow, pa.BaseExtensionType):
        return plain_type(arrow.storage_type, depth - 1)
    if is_encoded(arrow):
        values = plain_type(arrow.value_type, depth - 1)
        return _LARGE.get(values, values)
    if kinds.is_string_view(arrow) or kinds.is_binary_view(arrow):
        return _LARGE[arrow]
    if kinds.is_time(arrow) or kinds.is_duration(arrow) or kinds.is_interval(arrow) or kinds.is_union(arrow):
        raise SchemaMismatch(f"no column takes values of the type {arrow}: Spark and Parquet share no such type")
    if kinds.is_nested(arrow):
        return _plain_nested(arrow, depth - 1)
    if kinds.is_decimal(arrow) and abs(arrow.scale) > SCALES_MAX[arrow.bit_width]:
        raise SchemaMismatch(f"no column takes values of the type {arrow}: its scale is out of range")
    return arrow


SCALES_MAX = {32: 9, 64: 18, 128: 38, 256: 76}
"""Largest scale of a decimal by its bits.  Arrow takes any, and looks in a table of powers of ten without a check."""

_LARGE = {
    pa.string(): pa.large_string(),
    pa.string_view(): pa.large_string(),
    pa.binary(): pa.large_binary(),
    pa.binary_view(): pa.large_binary(),
}
"""Values that are repeated may be longer together than the offsets of a plain string can say."""


def _plain_nested(arrow: pa.DataType, depth: int) -> pa.DataType:
    kinds = pa.types
    if kinds.is_map(arrow):
        return pa.map_(plain_type(arrow.key_type, depth), _plain_field(arrow.item_field, depth), arrow.keys_sorted)
    fields = [_plain_field(arrow.field(number), depth) for number in range(arrow.num_fields)]
    if kinds.is_struct(arrow):
        return pa.struct(fields)
    if kinds.is_fixed_size_list(arrow):
        return pa.list_(fields[0], arrow.list_size)
    return pa.list_(fields[0]) if kinds.is_list(arrow) else pa.large_list(fields[0])


def _plain_field(field: pa.Field, depth: int) -> pa.Field:
    return field.with_type(plain_type(field.type, depth))


# --- arrays -----------------------------------------------------------------------------------------------------------


def plain(array: pa.Array, budget: Budget, place: str) -> pa.Array:
    """Return an array's values as a plain array.

    Parameters
    ----------
    place
        Where the array is, for errors.

    Raises
    ------
    SchemaMismatch
        The array is damaged.
    BadInput
        The values exceed the budget.
    """
    # The result is validated as well: the checks before are ours, these are Arrow's.
    check = _Check(budget, place)
    try:
        found = check.plain(array)
        found.validate(full=True)
    except (pa.ArrowException, UnicodeError, ValueError, OverflowError) as error:
        raise check.damaged(str(error)) from error
    return found


class _Check:
    """Checks one column and makes it plain."""

    def __init__(self, budget: Budget, place: str) -> None:
        self._budget = budget
        self._place = place

    def damaged(self, why: str) -> SchemaMismatch:
        return SchemaMismatch(f"the rows are damaged: {self._place}: {why}")

    def require(self, holds: object, why: str) -> None:
        if not holds:
            raise self.damaged(why)

    def plain(self, array: pa.Array) -> pa.Array:
        kinds, arrow = pa.types, array.type
        if isinstance(array, pa.ExtensionArray):
            return self.plain(array.storage)
        if kinds.is_dictionary(arrow):
            return self._dictionary(array)
        if kinds.is_run_end_encoded(arrow):
            return self._runs(array)
        if kinds.is_string_view(arrow) or kinds.is_binary_view(arrow):
            return self._views(array)
        if kinds.is_list_view(arrow) or kinds.is_large_list_view(arrow):
            return self._list_views(array)
        if not is_plain(arrow):
            return self._nested(array)
        array.validate(full=True)
        return array

    # --- what refers to values ---

    def _dictionary(self, array: pa.Array) -> pa.Array:
        values, valid = self._values(array.dictionary), self._valid(array)
        indices = self._numbers(array, 1, array.type.index_type.to_pandas_dtype())
        if not len(array) or (valid is not None and not valid.any()):
            return pa.nulls(len(array), values.type)
        # The index of a null slot may be anything: Arrow does not check it, and kernels read it.
        indices = indices if valid is None else np.where(valid, indices, 0)
        self.require(indices.min() >= 0 and indices.max() < len(values), "an index beyond its dictionary")
        return self._taken(values, indices.astype(np.int64), valid)

    def _runs(self, array: pa.Array) -> pa.Array:
        """Find the run of each slot: the first one that ends behind it."""
        values, runs = self._values(array.values), array.run_ends
        ends = self._numbers(runs, 1, runs.type.to_pandas_dtype()).astype(np.int64)
        self.require(self._valid(runs) is None and len(ends) == len(values), "runs without an end or without a value")
        first, last = array.offset, array.offset + len(array)
        self.require(not len(array) or (len(ends) and ends[-1] >= last), "runs that end before the rows do")
        self.require(not len(ends) or (ends[0] > 0 and np.all(ends[1:] > ends[:-1])), "ends of runs that do not ascend")
        self._budget.take(8 * len(array))
        return self._taken(values, np.searchsorted(ends, np.arange(first, last), side="right"), None)

    def _list_views(self, array: pa.Array) -> pa.Array:
        elements, valid = self.plain(array.values), self._valid(array)
        number = np.int64 if pa.types.is_large_list_view(array.type) else np.int32
        starts, sizes = (self._numbers(array, buffer, number).astype(np.int64) for buffer in (1, 2))
        if valid is not None:
            starts, sizes = np.where(valid, starts, 0), np.where(valid, sizes, 0)
        self.require(np.all((starts >= 0) & (sizes >= 0)), "a list with a negative start or size")
        # As a difference: the sum of two numbers of the client may overflow 64 bits.
        self.require(np.all(starts <= len(elements) - sizes), "a list that ends beyond its elements")
        ends = np.cumsum(sizes)
        total = int(ends[-1]) if len(ends) else 0
        # Before the arrays of positions are made: views may share elements, so `total` is not bounded by the body.
        self._budget.take(8 * total)
        within = np.arange(total) - np.repeat(ends - sizes, sizes)
        taken = self._taken(elements, np.repeat(starts, sizes) + within, None)
        offsets = np.concatenate([np.zeros(1, np.int64), ends])
        mask = None if valid is None else pa.array(~valid)
        return pa.LargeListArray.from_arrays(offsets, taken, type=plain_type(array.type), mask=mask)

    def _views(self, array: pa.Array) -> pa.Array:
        """Check views, empty those of null slots, and let Arrow gather their text."""
        valid, (_, _, *texts) = self._valid(array), array.buffers()
        views = self._numbers(array, 1, np.int32, 4)
        if valid is not None:
            # Arrow does not validate the view of a null slot, and a cast follows it.
            views = np.where(valid[:, None], views, 0)
        sizes, long = views[:, 0].astype(np.int64), views[views[:, 0] > VIEW_INLINE_BYTES].astype(np.int64)
        self.require(np.all(sizes >= 0), "text of a negative length")
        self.require(np.all((long[:, 2] >= 0) & (long[:, 2] < len(texts))), "text in a buffer that is not there")
        lengths = np.array([0 if text is None else text.size for text in texts], np.int64)
        self.require(
            np.all((long[:, 3] >= 0) & (long[:, 3] + long[:, 0] <= lengths[long[:, 2]])), "text beyond its buffer"
        )
        self._budget.take(int(sizes.sum()) + 8 * len(array))
        bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
        buffers = [bits, pa.py_buffer(np.ascontiguousarray(views).tobytes()), *texts]
        checked = pa.Array.from_buffers(array.type, len(array), buffers)
        checked.validate(full=True)
        return checked.cast(_LARGE[array.type])

    def _values(self, array: pa.Array) -> pa.Array:
        """Make the values of a dictionary or of runs plain; text in a form that can be longer than 2 GiB."""
        values = self.plain(array)
        large = _LARGE.get(values.type, values.type)
        return values if large == values.type else values.cast(large)

    def _taken(self, values: pa.Array, indices: _Numbers, valid: _Numbers | None) -> pa.Array:
        """Take values by indices that are known to be right."""
        # Only rows of another machine have a limit: for our own the sum would be work for nothing.
        if self._budget.is_limited:
            self._budget.take(int(slot_bytes(values)[indices].sum()))
        return values.take(pa.array(indices, mask=None if valid is None else ~valid))

    # --- what has such arrays inside ---

    def _nested(self, array: pa.Array) -> pa.Array:
        """Make the fields or elements plain, and keep everything else."""
        kinds, arrow = pa.types, array.type
        # Without `full`: this checks the buffers' sizes only, which the code below relies on.
        array.validate()
        if kinds.is_struct(arrow):
            fields = [self.plain(array.field(number)) for number in range(arrow.num_fields)]
            valid = self._valid(array)
            mask = None if valid is None else pa.array(~valid)
            return pa.StructArray.from_arrays(fields, fields=list(plain_type(arrow)), mask=mask)
        # `values`, with what lies outside of the slice: the offsets stay as they are.
        elements = self.plain(array.values)
        buffers = array.buffers()[: arrow.num_buffers]
        if kinds.is_fixed_size_list(arrow):
            needed = (array.offset + len(array)) * arrow.list_size
            self.require(needed <= len(elements), "a list that ends beyond its elements")
        else:
            number = np.int64 if kinds.is_large_list(arrow) else np.int32
            offsets = self._numbers(array, 1, number, more=1) if len(array) else np.zeros(1, number)
            self.require(offsets[0] >= 0 and np.all(np.diff(offsets) >= 0), "offsets that do not ascend")
            self.require(offsets[-1] <= len(elements), "a list that ends beyond its elements")
        return pa.Array.from_buffers(plain_type(arrow), len(array), buffers, -1, array.offset, children=[elements])

    # --- raw buffers ---

    def _numbers(self, array: pa.Array, buffer: int, number: Any, each: int = 1, more: int = 0) -> _Numbers:
        """Return a buffer's numbers from the array's first slot to its last; `each` for a slot, `more` behind the last."""
        count = (array.offset + len(array)) * each + more
        found = array.buffers()[buffer]
        self.require(count == 0 or (found is not None and found.size >= count * np.dtype(number).itemsize), _SHORT)
        numbers = np.frombuffer(found, number, count)[array.offset * each :] if count else np.zeros(0, number)
        return numbers.reshape(-1, each) if each > 1 else numbers

    def _valid(self, array: pa.Array) -> NDArray[np.bool_] | None:
        """Return for each slot whether it is not null; None: none is null."""
        bits, end = array.buffers()[0], array.offset + len(array)
        if bits is None or not len(array):
            return None
        self.require(8 * bits.size >= end, _SHORT)
        return np.unpackbits(np.frombuffer(bits, np.uint8), count=end, bitorder="little")[array.offset :].astype(bool)


_SHORT = "a buffer that is too short for its rows"


def slot_bytes(array: pa.Array) -> _Numbers:
    """Return how many bytes each slot of a plain array takes, about."""
    kinds, arrow, count = pa.types, array.type, len(array)
    if kinds.is_null(arrow):
        return np.ones(count, np.int64)
    if kinds.is_struct(arrow):
        sizes = np.ones(count, np.int64)
        for number in range(arrow.num_fields):
            sizes += slot_bytes(array.field(number))
        return sizes
    if kinds.is_fixed_size_list(arrow):
        ends = _running(slot_bytes(array.values))
        found: _Numbers = np.diff(ends[(array.offset + np.arange(count + 1)) * arrow.list_size]) + 1
        return found
    if kinds.is_nested(arrow) or arrow in _LARGE or arrow in _LARGE.values():
        kinds, arrow = pa.types, array.type
        if not len(array):
            return np.zeros(0, np.int64)
        is_large = kinds.is_large_list(arrow) or kinds.is_large_string(arrow) or kinds.is_large_binary(arrow)
        dtype = np.int64 if is_large else np.int32
        offsets = np.frombuffer(array.buffers()[1], dtype, array.offset + len(array) + 1)[array.offset :].astype(
            np.int64
        )
        if kinds.is_nested(arrow):
            offsets = _running(slot_bytes(array.values))[offsets]
        return np.diff(offsets) + 8
    return np.full(count, max(1, arrow.bit_width // 8), np.int64)


def _running(sizes: _Numbers) -> _Numbers:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])


@lru_cache(maxsize=1024)
def slot_bytes_min(arrow: pa.DataType) -> int:
    """Return how many bytes a slot of a column's type takes, without text and elements."""
    kinds = pa.types
    if kinds.is_struct(arrow):
        return 1 + sum(slot_bytes_min(field.type) for field in arrow)
    if kinds.is_nested(arrow) or arrow in _LARGE or arrow in _LARGE.values():
        return 8
    return 1 if kinds.is_null(arrow) else max(1, int(arrow.bit_width) // 8)
