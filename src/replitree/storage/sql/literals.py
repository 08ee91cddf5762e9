"""From a literal in a condition to a comparison in the column's own type, exactly.

Guarantees: the comparison that comes back is true, false or null for the same rows as the one that was asked for.  A number
beside or between the values that a column can have is no reason to round: ``k > 2.5`` on whole numbers is ``k > 2``,
``k = 2.5`` is never true, and ``k < 1e30`` is true for every value that a 64-bit integer can have.

Whole numbers are what is compared underneath: decimals without their point, dates in days, timestamps in microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from fractions import Fraction

import pyarrow as pa

from replitree.storage.schema.bounds import Bound
from replitree.storage.sql.predicate import Always, ColumnRef, Compare, Node, Operator

_DAY = 86_400_000_000
_WIDE = Context(prec=100)


class NoMeaningError(Exception):
    """A literal has no meaning for a column's type; the message says what to use."""


def coerce(column: ColumnRef, op: Operator, value: bool | Decimal | float | str | bytes | date) -> Node:
    """Compare a column with a literal of any kind that has a meaning for it.

    Raises
    ------
    NoMeaningError
        It has none; says what to use.
    """
    arrow = column.type
    if pa.types.is_integer(arrow):
        limit = 1 << (arrow.bit_width - 1)
        return _whole(column, op, _rational(value), (-limit, limit - 1), lambda n: n)
    if pa.types.is_decimal(arrow):
        number, scale, limit = _rational(value), arrow.scale, 10**arrow.precision - 1
        unscaled = number * 10**scale if isinstance(number, Fraction) else number
        # A context of its own: the default one rounds to 28 digits, and a decimal column may have 38.
        return _whole(column, op, unscaled, (-limit, limit), lambda n: Decimal(n).scaleb(-scale, _WIDE))
    if pa.types.is_date(arrow):
        # A timestamp beside a date is a fraction of days: `d > timestamp'2018-01-31 12:00'` is true from the next day on.
        days = Fraction(_microseconds(parse_date(value) if isinstance(value, str) else value, arrow), _DAY)
        return _whole(column, op, days, (-(1 << 31), (1 << 31) - 1), lambda n: n)
    if pa.types.is_timestamp(arrow):
        return Compare(column, op, _microseconds(parse_moment(value) if isinstance(value, str) else value, arrow))
    if pa.types.is_binary(arrow) and isinstance(value, str):
        value = value.encode()
    for is_kind, wanted, instead in _PLAIN:
        if is_kind(arrow):
            if not isinstance(value, wanted):
                raise NoMeaningError(instead)
            assert not isinstance(value, date)
            return Compare(column, op, float(value) if isinstance(value, Decimal) else value)
    raise NoMeaningError("values inside it can be compared, but not the whole")


_PLAIN: tuple[tuple[Callable[[pa.DataType], bool], tuple[type, ...], str], ...] = (
    (pa.types.is_boolean, (bool,), "use true or false"),
    (pa.types.is_floating, (Decimal, float), "use a number"),
    (pa.types.is_string, (str,), "put the value in quotes"),
    (pa.types.is_binary, (bytes,), "write the bytes as X'0aff'"),
)
"""Columns whose literals are compared as they are: the literals that each takes, and what to write instead of another."""


def _rational(value: object) -> Fraction | float:
    """Give the number exactly; an infinite one, or NaN, as a float."""
    if isinstance(value, bool) or not isinstance(value, Decimal | float):
        raise NoMeaningError("use a number")
    if isinstance(value, float):
        # By its shortest text: 0.1 means a tenth to its writer, not the nearest binary number.
        return Fraction(repr(value)) if math.isfinite(value) else value
    return Fraction(value) if value.is_finite() else float(value)


def _whole(
    column: ColumnRef, op: Operator, number: Fraction | float, limits: tuple[int, int], bound: Callable[[int], Bound]
) -> Node:
    """Compare a column of whole numbers with any number: beside or between whole numbers the answer is the same for all."""
    if isinstance(number, float):
        return _outside(column, op, above=not number < 0)  # NaN is above every number
    floor = number.numerator // number.denominator
    # A value beyond the type decides the comparison for every row; the type could not even hold it.
    if floor < limits[0] or floor > limits[1]:
        return _outside(column, op, above=floor > 0)
    if number.denominator == 1:
        return Compare(column, op, bound(floor))
    # Between two whole numbers nothing is equal.
    if op in (Operator.EQ, Operator.NE):
        return Always(column, op is Operator.NE)
    return Compare(column, Operator.LE if op in (Operator.LT, Operator.LE) else Operator.GT, bound(floor))


def _outside(column: ColumnRef, op: Operator, *, above: bool) -> Node:
    """Compare a column with a number that is above, or below, all its values."""
    less = op in (Operator.LT, Operator.LE)
    greater = op in (Operator.GT, Operator.GE)
    return Always(column, op is Operator.NE or (less and above) or (greater and not above))


def parse_date(value: object) -> date:
    """Give the date that a literal means.  Raises ValueError."""
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    try:
        return date.fromisoformat(str(value).strip())
    except ValueError as error:
        raise ValueError(f"{value!r} is not a date; write it as '2018-01-31'") from error


def parse_moment(value: object) -> datetime:
    """Give the moment that a literal means; without a zone if it has none.  Raises ValueError."""
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)  # noqa: DTZ001  (a literal without a zone has none)
    try:
        return datetime.fromisoformat(str(value).strip())
    except ValueError as error:
        raise ValueError(f"{value!r} is not a timestamp; write it as '2018-01-31 05:06:07'") from error


def _microseconds(value: object, arrow: pa.DataType) -> int:
    """Count from 1970, by UTC where nothing else is said."""
    if not isinstance(value, date):
        raise NoMeaningError("use a date or timestamp such as '2018-01-31 05:06:07'")
    moment = parse_moment(value)
    if moment.tzinfo is not None and pa.types.is_timestamp(arrow) and arrow.tz is None:
        raise NoMeaningError("the column has no time zone: leave it out")
    # Both are aware now: Python refuses to subtract one of each kind.
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
