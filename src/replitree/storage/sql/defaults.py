"""Defaults: from a value, as SQL or as a Python object, to the JSON value that a column keeps as its default.

Guarantees: the default is exactly the value that was given, in the column's type; what the type can't hold is refused, never
rounded (a decimal fraction becomes the nearest binary floating-point number, as everywhere).

Absent on purpose: defaults that are computed (``current_date()``), whose value would depend on the process that
computes it, and on the time; defaults of lists, structs and maps; infinity and NaN, which JSON can't hold.
"""

from __future__ import annotations

import math
from decimal import Decimal

import pyarrow as pa

from replitree.errors import BadInput
from replitree.storage.schema.bounds import Bound
from replitree.storage.schema.columns import Plain
from replitree.storage.schema.definition import define_table
from replitree.storage.schema.types import format_type, is_nested, parse_type
from replitree.storage.sql.predicate import Compare, Literal
from replitree.storage.sql.predicate_parser import parse_predicate
from replitree.storage.sql.sql_parser import NotRead, refuse_doubled_quotes

_VALUE = "value"


def sql_default(text: str, type_text: str) -> Plain | None:
    """Read a default as it stands in SQL.

    Parameters
    ----------
    text
        A literal of Spark's dialect: ``0``, ``'abc'``, ``date'2018-01-31'``, ``X'0aff'``, ``null``.
    type_text
        The column's type.

    Returns
    -------
    bool, int, float, str or None
        The value in JSON; None for ``null``.

    Raises
    ------
    BadInput
        It is not a literal, or not one of this type.

    Examples
    --------
    >>> sql_default("date'1970-01-31'", "date")
    30
    """
    arrow = parse_type(type_text)
    if is_nested(arrow):
        raise BadInput(f"a column of type {type_text} can't have a default: use a plain type, or leave the default out")
    try:
        refuse_doubled_quotes(text)
    except NotRead as error:
        raise BadInput(f"can't read the default {text}: {error}") from error
    column = define_table("t", pa.schema([(_VALUE, arrow)]), table_id="0" * 32)
    try:
        # The parser of conditions makes a literal exact in the column's type; what is no literal gives another node.
        node = parse_predicate(f"{_VALUE} = {text}", column).node
    except BadInput as error:
        raise _not_a_default(text, type_text) from error
    match node:
        case Literal(None):
            return None
        case Compare(_, _, value):
            return plain_of(value)
    raise _not_a_default(text, type_text)


def plain_of_scalar(scalar: pa.Scalar) -> Plain | None:
    """Give a value of a column as it stands in JSON."""
    value = scalar.value if pa.types.is_temporal(scalar.type) else scalar.as_py()
    return None if value is None else plain_of(value)


def plain_of(value: Bound) -> Plain:
    """Give a value as it stands in JSON.

    Raises
    ------
    BadInput
        JSON can't hold it.
    """
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        raise BadInput(f"a default is a number, not {value}")
    return value


def _not_a_default(value: object, type_text: str) -> BadInput:
    return BadInput(
        f"{value!r} can't be the default of a {format_type(parse_type(type_text))} column: give one constant of that type"
    )
