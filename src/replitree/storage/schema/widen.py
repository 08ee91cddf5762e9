"""Widening: which types hold every value of another type, in the same order.

=====================  ================================================================================
from                   to
=====================  ================================================================================
int8, int16, int32     a wider integer, ``double``, a decimal with as many digits before the point
int64                  a decimal with 19 digits before the point
float                  ``double``
decimal(p,s)           a decimal with at least as many digits before and after the point
=====================  ================================================================================

This is the table of Delta Lake but for ``date`` to ``timestamp_ntz``: a date may be 5 million years away, where no timestamp
reaches.  Each step keeps every value and its order, so bounds in manifests and sorted files stay right.

Widening by itself (`common_type`) is more careful: whole numbers stay whole numbers, and floating-point numbers floating-point.

Absent on purpose: anything that could round; lists, structs and maps, of which each type inside is widened by itself.
"""

from __future__ import annotations

import pyarrow as pa

from replitree.storage.schema.type_kinds import DECIMAL_PRECISION_MAX

_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
"""Decimal digits of an integer with so many bits."""

_EXACT_BITS = 32
"""Widest integer of ours that a double holds exactly."""


def can_widen(found: pa.DataType, target: pa.DataType) -> bool:
    """Tell whether a type holds all values of another one, and is another one."""
    kinds = pa.types
    if found == target:
        return False
    if kinds.is_integer(found):
        if kinds.is_integer(target):
            # Only wider ones: a type that holds the same values would make a schema version for nothing.
            return bool(found.bit_width < target.bit_width)
        if kinds.is_float64(target):
            return bool(found.bit_width <= _EXACT_BITS)
        return kinds.is_decimal(target) and bool(target.precision - target.scale >= _DIGITS[found.bit_width])
    if kinds.is_decimal(found) and kinds.is_decimal(target):
        before, after = found.precision - found.scale, found.scale
        return bool(target.precision - target.scale >= before and target.scale >= after)
    return bool(kinds.is_float32(found) and kinds.is_float64(target))


def keeps_partitions(found: pa.DataType, target: pa.DataType) -> bool:
    """Tell whether equal values keep their partition's id, whatever the transform, when a column is widened.

    The id of a decimal has as many digits as its scale, and the hash of ``bucket`` is taken of the digits.
    """
    kinds = pa.types
    if kinds.is_decimal(found) and kinds.is_decimal(target):
        return bool(found.scale == target.scale)
    return bool(kinds.is_integer(found) and kinds.is_integer(target))


def common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Give the narrowest type of the same kind that holds the values of both, or None."""
    kinds = pa.types
    if one == other:
        return one
    for is_kind in (kinds.is_integer, kinds.is_floating):
        if is_kind(one) and is_kind(other):
            return max(one, other, key=lambda arrow: arrow.bit_width)
    if kinds.is_decimal(one) and kinds.is_decimal(other):
        scale = max(one.scale, other.scale)
        precision = max(one.precision - one.scale, other.precision - other.scale) + scale
        return pa.decimal128(precision, scale) if precision <= DECIMAL_PRECISION_MAX else None
    return None
