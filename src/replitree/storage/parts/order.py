"""The order key: is a table sorted, and how to sort it.

Guarantees: ascending by the key columns, nulls first, NaN after every other number, strings and binaries by their bytes: the
order of Spark's own ``ORDER BY``.  Sorting is stable: rows with equal keys keep their order.

The kernels compare plain values only, so a key column becomes up to three that have neither null nor NaN: whether there is a
value, whether it is NaN, and the value.  This also makes the order independent of what a library thinks of either.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor

import pyarrow as pa

from replitree.storage.files.whole_numbers import whole_numbers

PARALLEL_ROWS_MIN = 500_000
"""Fewer rows are sorted by one thread."""

PIVOT_SAMPLE = 1000
"""Keys that are looked at to find the middle one."""


def sort_rows(table: pa.Table, order_by: Sequence[str], pool: Executor | None = None) -> pa.Table:
    """Sort rows by the order key; a sorted table comes back as it is.

    Parameters
    ----------
    order_by
        Names of plain columns; none means that any order is right.
    pool
        Where to sort a large table in two halves.
    """
    keys = sort_keys(table, order_by)
    if not keys or are_sorted(keys):
        return table
    whole = table.combine_chunks()
    if pool is None or table.num_rows < PARALLEL_ROWS_MIN:
        return whole.take(sort_indices(keys))

    import pyarrow.compute as pc

    def sorted_half(rows: pa.Array) -> pa.Table:
        return whole.take(rows.take(sort_indices([key.take(rows) for key in keys])))

    # The halves are about equal, if values do not repeat too much.
    # Every n-th row, without randomness: the same rows are cut in the same way each time.
    first = keys[0]
    sample = first.take(pa.array(range(0, len(first), max(1, len(first) // PIVOT_SAMPLE))))
    below = pc.less(first, sample[pc.array_sort_indices(sample)[len(sample) // 2].as_py()])
    halves = pc.indices_nonzero(below), pc.indices_nonzero(pc.invert(below))
    # Each half keeps its rows in their order, and every key of the first is below those of the second: the sort stays stable.
    return pa.concat_tables(pool.map(sorted_half, halves))


def is_sorted(table: pa.Table, order_by: Sequence[str]) -> bool:
    """Tell whether rows are sorted by the order key."""
    return are_sorted(sort_keys(table, order_by))


def sort_keys(table: pa.Table, order_by: Sequence[str]) -> list[pa.Array]:
    """Give arrays without null and NaN whose lexicographic order is the rows' order."""
    if table.num_rows < 2:
        return []
    import pyarrow.compute as pc

    keys: list[pa.Array] = []
    for column in map(table.column, order_by):
        # `concat_arrays` copies, also a single chunk.
        values = column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
        if values.null_count:
            # 0 stands for null and sorts first: no option of a kernel decides where nulls are.
            keys.append(values.is_valid().cast(pa.uint8()))
            if values.null_count < len(values):
                # Any value of the array stands where null was.
                filler = values[values.is_valid().index(True).as_py()]
            elif pa.types.is_string(values.type) or pa.types.is_binary(values.type):
                filler = pa.scalar("" if pa.types.is_string(values.type) else b"", values.type)
            else:
                # Zero bytes are a value of each type of fixed width; a Python zero is not (decimals, dates).
                # A boolean is one bit.
                zero = b"\0" * max(1, values.type.bit_width // 8)
                filler = pa.Array.from_buffers(values.type, 1, [None, pa.py_buffer(zero)])[0]
            values = values.fill_null(filler)
        if pa.types.is_floating(values.type):
            is_nan = pc.is_nan(values)
            if pc.any(is_nan).as_py():
                keys.append(is_nan.cast(pa.uint8()))
                # Rows with NaN tie in the value: only the key before it tells them apart from numbers.
                values = pc.if_else(is_nan, pa.scalar(0, values.type), values)
        keys.append(values.cast(pa.uint8()) if pa.types.is_boolean(values.type) else values)
    return keys


def are_sorted(keys: Sequence[pa.Array]) -> bool:
    """Tell whether no row is below the one before it: at the first key in which they differ, it is above.

    Parameters
    ----------
    keys
        See `sort_keys`; at least one row each.
    """
    import pyarrow.compute as pc

    # The common case of a small insert: one key of whole numbers, for which numpy needs a tenth of a kernel's time.
    numbers = whole_numbers(keys[0]) if len(keys) == 1 else None
    if numbers is not None:
        return bool((numbers[:-1] <= numbers[1:]).all())
    tied: pa.Array | None = None
    for number, key in enumerate(keys):
        before, after = key.slice(0, len(key) - 1), key.slice(1)
        fine = pc.less_equal(before, after)
        if tied is not None:
            fine = pc.or_(fine, pc.invert(tied))
        if not pc.all(fine).as_py():
            return False
        # The ties of the last key decide nothing.
        if number < len(keys) - 1:
            equal = pc.equal(before, after)
            tied = equal if tied is None else pc.and_(tied, equal)
    return True


def sort_indices(keys: Sequence[pa.Array]) -> pa.Array:
    """Give the rows in their order.

    Parameters
    ----------
    keys
        See `sort_keys`; at least one.
    """
    import pyarrow.compute as pc

    if len(keys) == 1:
        return pc.array_sort_indices(keys[0])
    names = [str(i) for i in range(len(keys))]
    return pc.sort_indices(pa.table(list(keys), names=names), sort_keys=[(name, "ascending") for name in names])
