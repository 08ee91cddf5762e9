"""Calculations on whole arrays, as Spark does them in its ANSI mode: what has no value is an error, never a wrong value.

Guarantees, for every kernel here:

* null in, null out; what lies under a null is never looked at.
* Integers and decimals that do not fit, division by zero (of any kind of number; ``null / 0`` is null) and texts that are not
  what they are cast to raise `NoValueError`.
* Decimals are calculated with 76 digits and rounded once, half away from zero, to the digits of the result.
* ``%`` has the sign of the dividend.

`NoValueError` says what is wrong, not in which row: the caller, which knows the expression and the part, adds that.

Where the result for a value depends on the time zone, it is UTC's.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pyarrow as pa

from replitree.storage.schema.types import format_type

WIDE_DIGITS = 76
"""Digits of Arrow's widest decimal."""

_INTEGER_TEXT = r"^[+-]?[0-9]+$"
_DOUBLE_TEXT = r"^[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|(?i:nan|inf|infinity))$"
_DATE_TEXT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_TRUE_TEXTS = ["t", "true", "y", "yes", "1"]
_FALSE_TEXTS = ["f", "false", "n", "no", "0"]


class NoValueError(Exception):
    """An expression has no value for some row; says why."""


# --- arithmetic -----------------------------------------------------------------------------------------------------------


def calculate(sign: str, left: pa.Array, right: pa.Array, result: pa.DataType) -> pa.Array:
    """Give ``left <sign> right`` for one of ``+ - * / %`` and ``div``, which leaves out what is after the point.

    Parameters
    ----------
    result
        The type by `replitree.storage.sql.expression_types.arithmetic_type`.

    Raises
    ------
    NoValueError
        A result does not fit, or something is divided by zero.
    """
    import pyarrow.compute as pc

    if pa.types.is_decimal(result):
        left, right = _wide(left), _wide(right)
        # Exact in 76 digits, or Arrow says that the result does not fit.
        if sign in "+-*":
            kernels = {"+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked}
            return _rounded(_checked(kernels[sign], left, right), result)
        right = _without_zeros(left, right)
        if sign == "/":
            # A quotient has `left.scale + right.precision - right.scale + 1` digits after the point, cut off: one more than
            # wanted.
            missing = result.scale + right.type.scale - left.type.scale - right.type.precision
            if missing > 0:
                left = left.cast(pa.decimal256(left.type.precision + missing, left.type.scale + missing))
            return _rounded(_checked(pc.divide_checked, left, right), result)
        if left.type.precision == left.type.scale and right.type.scale == 0:
            # Every whole divisor leaves a number below 1 as it is.  Their quotient's type has no digit before the point, and
            # there Arrow can't cut off what is after it.
            return _rounded(pc.if_else(right.is_valid(), left, pa.scalar(None, left.type)), result)
        quotient = pc.trunc(_checked(pc.divide_checked, left, right))
        whole = quotient.cast(pa.decimal256(max(1, quotient.type.precision - quotient.type.scale), 0))
        return _rounded(_checked(pc.subtract_checked, left, _checked(pc.multiply_checked, whole, right)), result)
    left, right = cast_values(left, result), cast_values(right, result)
    if sign in ("/", "%", "div"):
        right = _without_zeros(left, right)
    if sign != "%":
        kernels = {"+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked, "/": pc.divide_checked}
        return _checked(kernels["/" if sign == "div" else sign], left, right)
    if pa.types.is_floating(result):
        known = pc.and_(left.is_valid(), right.is_valid())
        one, other = (values.fill_null(1).to_numpy(zero_copy_only=False) for values in (left, right))
        # A float divided by zero has been refused before; infinity has the rest NaN, as in Spark.
        with np.errstate(invalid="ignore"):
            return pc.if_else(known, pa.array(np.fmod(one, other), result), pa.scalar(None, result))
    # Nothing remains of a division by -1, and the lowest integer divided by it does not fit.
    right = pc.if_else(pc.equal(right, pa.scalar(-1, right.type)), pa.scalar(1, right.type), right)
    return pc.subtract(left, pc.multiply(pc.divide(left, right), right))


def negate(values: pa.Array) -> pa.Array:
    """Give the numbers with the other sign.  Raises `NoValueError` for the lowest integer."""
    import pyarrow.compute as pc

    return _checked(pc.negate if pa.types.is_decimal(values.type) else pc.negate_checked, values)


def _without_zeros(dividend: pa.Array, divisor: pa.Array) -> pa.Array:
    """Give the divisors with null where the dividend is null; raise if a zero is left."""
    import pyarrow.compute as pc

    # Null divided by zero is null in Spark, and no error.
    divisor = pc.if_else(dividend.is_valid(), divisor, pa.scalar(None, divisor.type))
    zero = pa.scalar(Decimal(0) if pa.types.is_decimal(divisor.type) else 0, divisor.type)
    if pc.any(pc.equal(divisor, zero)).as_py():
        raise NoValueError("division by zero; nullif(…, 0) as the divisor gives null instead")
    return divisor


def _wide(values: pa.Array) -> pa.Array:
    """Give integers or decimals as decimals with room to calculate."""
    if pa.types.is_integer(values.type):
        values = values.cast(pa.decimal128(20, 0))
    return values.cast(pa.decimal256(values.type.precision, values.type.scale))


def _rounded(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Round decimals, half away from zero, to the digits of a decimal type."""
    import pyarrow.compute as pc

    if values.type.scale > target.scale:
        values = _checked(lambda v: v.cast(pa.decimal256(WIDE_DIGITS, v.type.scale)), values)
        values = pc.round(values, target.scale, "half_towards_infinity")
    return _checked(lambda v: v.cast(target), values)


def _checked(kernel: Callable[..., pa.Array], *arguments: pa.Array) -> pa.Array:
    try:
        return kernel(*arguments)
    except pa.ArrowInvalid as error:
        kinds = " and ".join(dict.fromkeys(str(argument.type) for argument in arguments))
        raise NoValueError(f"a result of {kinds} does not fit ({error})") from error


# --- casts ------------------------------------------------------------------------------------------------------------------


def cast_values(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Give the values as another type.

    Parameters
    ----------
    target
        A type for which `replitree.storage.sql.expression_types.can_cast` holds.

    Raises
    ------
    NoValueError
        A value does not fit, or a text is not one of such a value.
    """
    found = values.type
    if found == target:
        return values
    if pa.types.is_null(found):
        return pa.nulls(len(values), target)
    for is_found, is_target, kernel in _CASTS:
        if is_found(found) and is_target(target):
            try:
                return kernel(values, target)
            except pa.ArrowException as error:
                raise NoValueError(f"a {format_type(found)} does not fit {format_type(target)} ({error})") from error
    raise AssertionError(f"no cast from {found} to {target}")


def _plain(values: pa.Array, target: pa.DataType) -> pa.Array:
    return values.cast(target)


def _inexact(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Round to the nearest floating-point number."""
    return values.cast(target, safe=False)


def _to_integer(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Leave the digits after the point out."""
    import pyarrow.compute as pc

    return pc.trunc(values).cast(target)


def _to_boolean(values: pa.Array, target: pa.DataType) -> pa.Array:
    import pyarrow.compute as pc

    del target
    return pc.not_equal(values, pa.scalar(0, values.type))


def _text_to_number(values: pa.Array, target: pa.DataType) -> pa.Array:
    import pyarrow.compute as pc

    texts = _readable(values, _INTEGER_TEXT if pa.types.is_integer(target) else _DOUBLE_TEXT, target)
    # Arrow's parser takes no plus sign.
    return pc.replace_substring_regex(texts, r"^\+", "").cast(target)


def _text_to_boolean(values: pa.Array, target: pa.DataType) -> pa.Array:
    import pyarrow.compute as pc

    texts = pc.utf8_lower(_readable(values, f"^(?i:{'|'.join(_TRUE_TEXTS + _FALSE_TEXTS)})$", target))
    truths = pc.is_in(texts, pa.array(_TRUE_TEXTS))
    return pc.if_else(texts.is_valid(), truths, pa.scalar(None, pa.bool_()))


def _readable(values: pa.Array, pattern: str, target: pa.DataType) -> pa.Array:
    """Give the texts without white space around them, all of which match."""
    import pyarrow.compute as pc

    # Spark trims before it reads.
    texts = pc.utf8_trim_whitespace(values)
    matches = pc.match_substring_regex(texts, pattern)
    wrong = matches.index(False).as_py()
    if wrong >= 0:
        raise NoValueError(f"{texts[wrong].as_py()[:80]!r} is not a {format_type(target)}")
    return texts


def _timestamp_to_text(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Write moments without zeros at the end of the fraction of a second."""
    import pyarrow.compute as pc

    # Without the zone first: Arrow would write an offset behind the text.
    texts = values.cast(pa.timestamp("us")).cast(target)
    return pc.replace_substring_regex(texts, r"\.?0*$|(\.[0-9]*[1-9])0*$", r"\1")


def _timestamp_to_date(values: pa.Array, target: pa.DataType) -> pa.Array:
    import pyarrow.compute as pc

    # Arrow refuses to cast a timestamp with a time of day to a date, as it would lose it.
    return pc.floor_temporal(values.cast(pa.timestamp("us")), unit="day").cast(target)


_is = pa.types
_CASTS: tuple[
    tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], bool], Callable[[pa.Array, pa.DataType], pa.Array]],
    ...,
] = (
    (_is.is_integer, _is.is_integer, _plain),
    (_is.is_integer, _is.is_floating, _inexact),
    # Through the widest decimal: Arrow compares digits of types, and would refuse values that fit.
    (
        _is.is_integer,
        _is.is_decimal,
        lambda values, target: (
            values.cast(pa.decimal128(20, 0)).cast(pa.decimal256(WIDE_DIGITS, target.scale)).cast(target)
        ),
    ),
    (_is.is_integer, _is.is_boolean, _to_boolean),
    (_is.is_integer, _is.is_string, _plain),
    (_is.is_floating, _is.is_floating, _inexact),
    (_is.is_floating, _is.is_integer, _to_integer),
    (_is.is_floating, _is.is_boolean, _to_boolean),
    (_is.is_decimal, _is.is_decimal, _rounded),
    (_is.is_decimal, _is.is_integer, _to_integer),
    # Through text, which alone is rounded correctly.
    (_is.is_decimal, _is.is_floating, lambda values, target: values.cast(pa.string()).cast(target)),
    (_is.is_boolean, _is.is_integer, _plain),
    (_is.is_boolean, _is.is_floating, _plain),
    (_is.is_boolean, _is.is_string, _plain),
    (_is.is_string, _is.is_integer, _text_to_number),
    (_is.is_string, _is.is_floating, _text_to_number),
    (_is.is_string, _is.is_boolean, _text_to_boolean),
    (_is.is_string, _is.is_date, lambda values, target: _readable(values, _DATE_TEXT, target).cast(target)),
    (_is.is_string, _is.is_binary, _plain),
    (_is.is_binary, _is.is_string, _plain),
    (_is.is_date, _is.is_string, _plain),
    # By way of a timestamp without a zone: midnight by UTC.
    (_is.is_date, _is.is_timestamp, lambda values, target: values.cast(pa.timestamp("us")).cast(target)),
    (_is.is_timestamp, _is.is_date, _timestamp_to_date),
    (_is.is_timestamp, _is.is_timestamp, _plain),
    (_is.is_timestamp, _is.is_string, _timestamp_to_text),
)
