"""Conditions on whole arrays of values, as Spark has them.

Null is neither true nor false; NaN equals itself and is above every number.

Guarantees: an array of booleans, null wherever an operand is null, but for `missing` and `is_nan`, which are never null.
"""

from __future__ import annotations

import pyarrow as pa

from replitree.storage.sql.predicate import Operator

_KERNELS = {
    Operator.EQ: "equal",
    Operator.NE: "not_equal",
    Operator.LT: "less",
    Operator.LE: "less_equal",
    Operator.GT: "greater",
    Operator.GE: "greater_equal",
}


def compare(operator: Operator, left: pa.Array, right: pa.Array) -> pa.Array:
    """Compare values of one type, row by row."""
    import pyarrow.compute as pc

    plain = pc.call_function(_KERNELS[operator], [left, right])
    if not pa.types.is_floating(left.type):
        return plain
    # `is_nan` of null is null, so nulls stay nulls below.
    one, other = pc.is_nan(left), pc.is_nan(right)
    with_nan = {
        Operator.EQ: pc.and_(one, other),
        Operator.NE: pc.invert(pc.and_(one, other)),
        Operator.LT: pc.and_(other, pc.invert(one)),
        Operator.LE: other,
        Operator.GT: pc.and_(one, pc.invert(other)),
        Operator.GE: one,
    }[operator]
    return pc.if_else(pc.or_(one, other), with_nan, plain)


def same(left: pa.Array, right: pa.Array) -> pa.Array:
    """Tell whether values of one type are equal or both null, row by row; never null (SQL's ``<=>``)."""
    import pyarrow.compute as pc

    equal = compare(Operator.EQ, left, right).fill_null(False)
    return pc.or_(equal, pc.and_(left.is_null(), right.is_null()))


def among(values: pa.Array, wanted: pa.Array) -> pa.Array:
    """Tell whether each value is in a list (SQL's ``IN``); what is not found in a list with a null is null."""
    import pyarrow.compute as pc

    known = wanted.drop_null()
    # NaN equals itself, and 0.0 equals -0.0: each value of the list is compared by itself.
    if pa.types.is_floating(values.type):
        found = pa.repeat(pa.scalar(False), len(values))
        for one in known:
            found = pc.or_(found, compare(Operator.EQ, values, pa.repeat(one, len(values))))
    else:
        # `is_in` hashes its values: a list of thousands costs one pass.
        found = pc.is_in(values, value_set=known)
    found = pc.if_else(values.is_valid(), found, pa.scalar(None, pa.bool_()))
    # `x IN (1, NULL)` is true or null, and never false: the null might be x.
    if len(known) == len(wanted):
        return found
    return pc.if_else(found, pa.scalar(True), pa.scalar(None, pa.bool_()))


def missing(values: pa.Array) -> pa.Array:
    """Tell whether there is no value; NaN is one."""
    return values.is_null()


def is_nan(values: pa.Array) -> pa.Array:
    """Tell whether floating-point numbers are NaN; null is not."""
    import pyarrow.compute as pc

    return pc.is_nan(values).fill_null(False)


def matches(values: pa.Array, pattern: str, *, ignore_case: bool) -> pa.Array:
    """Tell whether strings match SQL's pattern, with the backslash as escape."""
    import pyarrow.compute as pc

    return pc.match_like(values, pattern, ignore_case=ignore_case)
