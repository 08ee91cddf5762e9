"""The order key: is a table sorted, and how to sort it.

Guarantees: ascending by the key columns, nulls first, NaN after every other number, strings and binaries by their bytes: the
order of Spark's own ``ORDER BY``.  Sorting is stable: rows with equal keys keep their order.

The kernels compare plain values only, so a key column becomes up to three that have neither null nor NaN: whether there is a
value, whether it is NaN, and the value.  This also makes the order independent of what a library thinks of either.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa


def sort_rows(table: pa.Table, order_by: Sequence[str]) -> pa.Table:
    """Sort rows by the order key; a sorted table comes back as it is.

    Parameters
    ----------
    order_by
        Names of plain columns; none means that any order is right.
    """
    keys = sort_keys(table, order_by)
    if not keys or _are_sorted(keys):
        return table
    return table.combine_chunks().take(_sort_indices(keys))


def is_sorted(table: pa.Table, order_by: Sequence[str]) -> bool:
    """Tell whether rows are sorted by the order key."""
    return _are_sorted(sort_keys(table, order_by))


def sort_keys(table: pa.Table, order_by: Sequence[str]) -> list[pa.Array]:
    """Give arrays without null and NaN whose lexicographic order is the rows' order."""
    if table.num_rows < 2:
        return []
    return [key for name in order_by for key in _plain_keys(_one_array(table.column(name)))]


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _plain_keys(values: pa.Array) -> list[pa.Array]:
    import pyarrow.compute as pc

    keys = []
    if values.null_count:
        keys.append(values.is_valid().cast(pa.uint8()))
        values = values.fill_null(_any_value(values))
    if pa.types.is_floating(values.type):
        is_nan = pc.is_nan(values)
        if pc.any(is_nan).as_py():
            keys.append(is_nan.cast(pa.uint8()))
            values = pc.if_else(is_nan, pa.scalar(0, values.type), values)
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    return [*keys, values]


def _any_value(values: pa.Array) -> pa.Scalar:
    """Give a value of the array, to stand where null was; all are null: any value of the type."""
    if values.null_count == len(values):
        zero = b"\0" * (values.type.bit_width // 8) if not _is_ragged(values.type) else b""
        return _scalar_of_bytes(values.type, zero)
    return values[values.is_valid().index(True).as_py()]


def _is_ragged(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_string(arrow) or pa.types.is_binary(arrow))


def _scalar_of_bytes(arrow: pa.DataType, data: bytes) -> pa.Scalar:
    if _is_ragged(arrow):
        return pa.scalar(data.decode(), arrow) if pa.types.is_string(arrow) else pa.scalar(data, arrow)
    return pa.Array.from_buffers(arrow, 1, [None, pa.py_buffer(data or b"\0")])[0]


def _are_sorted(keys: Sequence[pa.Array]) -> bool:
    """No row is below the one before it: at the first key in which they differ, it is above."""
    import pyarrow.compute as pc

    tied: pa.Array | None = None
    for number, key in enumerate(keys):
        before, after = key.slice(0, len(key) - 1), key.slice(1)
        fine = pc.less_equal(before, after)
        if tied is not None:
            fine = pc.or_(fine, pc.invert(tied))
        if not pc.all(fine).as_py():
            return False
        if number < len(keys) - 1:
            equal = pc.equal(before, after)
            tied = equal if tied is None else pc.and_(tied, equal)
    return True


def _sort_indices(keys: Sequence[pa.Array]) -> pa.Array:
    import pyarrow.compute as pc

    if len(keys) == 1:
        return pc.array_sort_indices(keys[0])
    names = [str(i) for i in range(len(keys))]
    return pc.sort_indices(pa.table(list(keys), names=names), sort_keys=[(name, "ascending") for name in names])
