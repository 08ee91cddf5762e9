"""Which type an expression has: Spark's rules in its ANSI mode, the default of the Spark versions that this project works with.

Guarantees: two operands of any types either have the common type that Spark gives them, or none.  Digits of decimals follow
Spark's ``DecimalType``: a result that would need more than 38 digits keeps those before the point and at least six after it.

What differs from Spark, each refused instead of guessed: texts beside numbers or dates (Spark parses them), timestamps with a
zone beside those without (Spark uses the session's time zone, and a table has none).
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from replitree.storage.schema.type_kinds import DECIMAL_PRECISION_MAX

SCALE_MIN = 6
"""Digits after the point that a decimal with too many digits keeps, if it has them."""

_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
"""Digits of the decimal that holds every integer of so many bits."""


def is_numeric(arrow: pa.DataType) -> bool:
    """Tell whether one can calculate with values of a type."""
    kinds = pa.types
    return bool(kinds.is_integer(arrow) or kinds.is_floating(arrow) or kinds.is_decimal(arrow))


def is_moment(arrow: pa.DataType) -> bool:
    """Tell whether values are dates or timestamps."""
    return bool(pa.types.is_date(arrow) or pa.types.is_timestamp(arrow))


def common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Give the type that the values of both become in ``coalesce`` or the branches of a ``case``; None if there is none."""
    kinds = pa.types
    if one == other or kinds.is_null(other):
        return one
    if kinds.is_null(one):
        return other
    if kinds.is_date(one) and kinds.is_timestamp(other):
        return other
    if kinds.is_timestamp(one) and kinds.is_date(other):
        return one
    if not (is_numeric(one) and is_numeric(other)):
        return None
    if kinds.is_integer(one) and kinds.is_integer(other):
        return one if one.bit_width >= other.bit_width else other
    # A float beside an integer or another kind is a double in Spark; two floats have been equal types before.
    if kinds.is_floating(one) or kinds.is_floating(other):
        return pa.float64()
    first, second = decimal_of(one), decimal_of(other)
    scale = max(first.scale, second.scale)
    precision = max(first.precision - first.scale, second.precision - second.scale) + scale
    # Spark would give up digits after the point here; a value that is rounded without a cast is refused instead.
    return pa.decimal128(precision, scale) if precision <= DECIMAL_PRECISION_MAX else None


def arithmetic_type(sign: str, one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Give the type of ``one <sign> other`` for one of ``+ - * / %`` and ``div``; None when it has none.

    Examples
    --------
    >>> arithmetic_type("*", pa.decimal128(12, 2), pa.decimal128(2, 1))
    Decimal128Type(decimal128(15, 3))
    >>> arithmetic_type("/", pa.int32(), pa.int32())
    DataType(double)
    """
    if not (is_numeric(one) and is_numeric(other)):
        return None
    kinds = pa.types
    if sign == "div":
        return pa.int64() if kinds.is_integer(one) and kinds.is_integer(other) else None
    has_decimal = kinds.is_decimal(one) or kinds.is_decimal(other)
    has_float = kinds.is_floating(one) or kinds.is_floating(other)
    if not has_decimal or has_float:
        return pa.float64() if sign == "/" else common_type(one, other)
    one, other = decimal_of(one), decimal_of(other)
    before, scale = max(one.precision - one.scale, other.precision - other.scale), max(one.scale, other.scale)
    if sign in "+-":
        return adjusted_decimal(before + scale + 1, scale)
    if sign == "*":
        return adjusted_decimal(one.precision + other.precision + 1, one.scale + other.scale)
    if sign == "/":
        scale = max(SCALE_MIN, one.scale + other.precision + 1)
        return adjusted_decimal(one.precision - one.scale + other.scale + scale, scale)
    before = min(one.precision - one.scale, other.precision - other.scale)
    return adjusted_decimal(before + scale, scale)


def adjusted_decimal(precision: int, scale: int) -> pa.DataType:
    """Give the decimal type for so many digits, of which `scale` after the point; above 38 some of these are given up."""
    if precision <= DECIMAL_PRECISION_MAX:
        return pa.decimal128(precision, scale)
    before = precision - scale
    return pa.decimal128(DECIMAL_PRECISION_MAX, max(DECIMAL_PRECISION_MAX - before, min(scale, SCALE_MIN)))


def decimal_of(arrow: pa.DataType) -> pa.DataType:
    """Give the decimal type that holds every value of an integer or decimal type."""
    return arrow if pa.types.is_decimal(arrow) else pa.decimal128(_DIGITS[arrow.bit_width], 0)


def decimal_of_literal(value: Any) -> pa.DataType:
    """Give the smallest decimal type that holds an integer: ``m * 2`` has fewer digits than ``m * k``."""
    return pa.decimal128(len(str(abs(value))), 0)


def can_cast(found: pa.DataType, target: pa.DataType) -> bool:
    """Tell whether ``cast(… as target)`` is understood."""
    kinds = pa.types
    if found == target or kinds.is_null(found):
        return True
    if is_numeric(found) and is_numeric(target):
        return not (kinds.is_floating(found) and kinds.is_decimal(target))
    if kinds.is_string(target):
        return kinds.is_integer(found) or kinds.is_boolean(found) or is_moment(found) or kinds.is_binary(found)
    if kinds.is_string(found):
        readable = kinds.is_integer(target) or kinds.is_float64(target) or kinds.is_boolean(target)
        return bool(readable or kinds.is_date(target) or kinds.is_binary(target))
    if kinds.is_boolean(found):
        return bool(kinds.is_integer(target) or kinds.is_floating(target))
    if kinds.is_boolean(target):
        return bool(kinds.is_integer(found) or kinds.is_floating(found))
    return is_moment(found) and is_moment(target)


def can_assign(found: pa.DataType, target: pa.DataType) -> bool:
    """Tell whether a value may be put into a column of another type without a ``cast``: Spark's ANSI store assignment.

    Numbers into numbers, dates and timestamps into each other, plain values into strings.
    """
    if not can_cast(found, target) or found == target or pa.types.is_null(found):
        return can_cast(found, target)
    return (
        (is_numeric(found) and is_numeric(target))
        or (is_moment(found) and is_moment(target))
        or bool(pa.types.is_string(target))
    )
