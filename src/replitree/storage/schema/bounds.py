"""Bounds of columns in statistics: their form in JSON, and the values that compare with others of their column.

=================  ==============================  ==========================================
type of column     `min` and `max` in JSON         `low` and `high`
=================  ==============================  ==========================================
boolean            true, false                     bool
integers           number                          int
date               days since 1970-01-01           int
timestamp          microseconds since 1970         int
float, double      number; none if infinite, NaN   float
decimal            text                            Decimal
string             at most 64 characters           str
binary             hexadecimal, at most 64 bytes   bytes
=================  ==============================  ==========================================
"""

from __future__ import annotations

from decimal import Decimal
from typing import TypeAlias

Scalar: TypeAlias = bool | int | float | str | None
"""A value in JSON."""

Bound: TypeAlias = bool | int | float | Decimal | str | bytes
"""A value that compares with others of its column."""

_BOUND_KINDS: dict[str, type] = {
    **dict.fromkeys(("int8", "int16", "int32", "int64", "date", "timestamp"), int),
    "boolean": bool,
    "float": float,
    "double": float,
    "decimal": Decimal,
    "string": str,
    "binary": bytes,
}
"""Kinds of bounds by the word that a column's type begins with."""


def bound_of(type_text: str, value: Scalar) -> Bound | None:
    """Turn a value in JSON into one that compares with others of its column; None stays None."""
    if value is None:
        return None
    if isinstance(value, str):
        if type_text.startswith("decimal"):
            return Decimal(value)
        # A date or timestamp is a number in JSON, so text is a string, a decimal or bytes.
        return bytes.fromhex(value) if type_text == "binary" else value
    if isinstance(value, int) and type_text in {"float", "double"}:
        return float(value)  # JSON has one kind of number
    return value


def are_bounds_of(type_text: str, *values: Scalar) -> bool:
    """Tell whether values in JSON are bounds that compare with the values of their column; None is no bound."""
    # A later version may know bounds of other types.
    kind = _BOUND_KINDS.get(type_text.partition("(")[0].partition("[")[0], object)
    for value in values:
        try:
            bound = bound_of(type_text, value)
        # No decimal number, no hexadecimal digits, or a number beyond every double.
        except (ValueError, ArithmeticError):
            return False
        is_nan = kind is Decimal and isinstance(bound, Decimal) and bound.is_nan()
        if bound is not None and (is_nan or not isinstance(bound, kind)):
            return False
    return True
