"""Sort rows that are a few sorted runs, one after the other.

Guarantees: the same order as `replitree.storage.parts.order.sort_rows`, rows with equal keys included.

NumPy's stable sort finds the runs and merges them, which costs a comparison per row and doubling of the runs, but it takes one
key.  So whole numbers, dates, timestamps and floating-point numbers that fit into 64 bits together are packed into one.  Other
keys (strings, decimals) are sorted by Arrow.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from replitree.storage.parts.order import are_sorted, sort_indices, sort_keys

_Numbers = NDArray[np.int64]

PACKED_BITS_MAX = 63
"""Bits of all keys together; the sign is left alone."""


def sort_runs(table: pa.Table, order_by: Sequence[str]) -> pa.Table:
    """Sort rows by the order key; a sorted table comes back as it is.

    Parameters
    ----------
    table
        Sorted runs, one after the other.
    order_by
        Names of plain columns.
    """
    keys = sort_keys(table, order_by)
    if not keys or are_sorted(keys):
        return table
    packed = _packed(keys)
    return table.take(sort_indices(keys) if packed is None else pa.array(np.argsort(packed, kind="stable")))


def _packed(keys: Sequence[pa.Array]) -> _Numbers | None:
    """Give one number per row that compares as the keys do, or None."""
    packed: _Numbers | None = None
    free = PACKED_BITS_MAX
    for key in keys:
        numbers = _numbers(key)
        if numbers is None:
            return None
        if len(keys) == 1:
            return numbers
        low, high = int(numbers.min()), int(numbers.max())
        bits = (high - low).bit_length()
        free -= bits
        # More bits than 63 do not fit one number: Arrow sorts by several keys.
        if free < 0:
            return None
        above = numbers - low
        packed = above if packed is None else (packed << bits) | above
    return packed


def _numbers(key: pa.Array) -> _Numbers | None:
    """Give 64-bit integers that compare as the values do, or None."""
    arrow = key.type
    if pa.types.is_temporal(arrow):
        key = key.view(pa.int32() if arrow.bit_width == 32 else pa.int64())
    if pa.types.is_integer(key.type):
        return np.asarray(key.to_numpy()).astype(np.int64, copy=False)
    if pa.types.is_floating(arrow):
        values = key.to_numpy().astype(np.float64) + 0.0  # -0.0 becomes 0.0
        # The bits of positive floats compare as they do; of negative ones, the other way round.
        bits = values.view(np.int64)
        return np.asarray(bits ^ ((bits >> 63) & np.iinfo(np.int64).max))
    return None
