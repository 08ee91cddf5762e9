"""Expressions: the values that ``UPDATE … SET column = …`` gives, and what conditions calculate, for whole batches at a time.

Guarantees: `evaluate` gives the value that Spark gives in its ANSI mode, in an array of exactly the node's type, or raises
`NoValueError`.  It looks at no row for which the value is not asked: a branch of ``case``, and what follows in ``coalesce``, is
calculated only for the rows that get there, so that ``case when b = 0 then 0 else a / b end`` divides by no zero.

An expression is a tree of a few kinds of nodes.  Each knows its type; the parser
(`replitree.storage.sql.expression_parser`) has put a `Cast` wherever a type changes.  Conditions are predicates, the same that
``WHERE`` takes.

==============================  ==============================================================================================
``upper``, ``lower``            character by character (Spark makes two of some: ``upper('ß')`` is ``SS`` there, ``ẞ`` here)
``trim``, ``ltrim``, ``rtrim``  spaces only, no other white space
``length``                      characters of a string, bytes of a binary
``a || b``, ``concat``          null if one is null
==============================  ==============================================================================================

Absent on purpose: everything whose value is not the same on every replica (the time, chance, settings), aggregates, other rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, assert_never

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from replitree.errors import BadInput
from replitree.storage.sql.condition_kernels import among, compare, is_nan, matches, missing, same
from replitree.storage.sql.expression_kernels import NoValueError, calculate, cast_values, negate
from replitree.storage.sql.predicate import And, Computed, Node, Not, Operator, Or, Predicate, is_computed

Truths: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Constant:
    """The same value for every row, as Python has it; None is null."""

    value: Any
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class ColumnValue:
    """The value of a column, or of a field inside a struct."""

    path: tuple[str, ...]
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Condition:
    """Whether a condition holds: true, false or null."""

    predicate: Predicate

    @property
    def type(self) -> pa.DataType:
        """Always boolean."""
        return pa.bool_()


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two values of one type, compared; `null_safe` is ``<=>``, which calls two nulls equal."""

    operator: Operator
    left: Expression
    right: Expression
    null_safe: bool = False

    @property
    def type(self) -> pa.DataType:
        """Always boolean."""
        return pa.bool_()


@dataclass(frozen=True, slots=True)
class Among:
    """Whether a value is one of a list of its type; None in the list is null."""

    inner: Expression
    values: tuple[Any, ...]

    @property
    def type(self) -> pa.DataType:
        """Always boolean."""
        return pa.bool_()


@dataclass(frozen=True, slots=True)
class Matched:
    """Whether a string matches SQL's pattern."""

    inner: Expression
    pattern: str
    ignore_case: bool = False

    @property
    def type(self) -> pa.DataType:
        """Always boolean."""
        return pa.bool_()


@dataclass(frozen=True, slots=True)
class Tested:
    """Whether a value is ``"null"``, or ``"nan"``; never null."""

    inner: Expression
    what: str

    @property
    def type(self) -> pa.DataType:
        """Always boolean."""
        return pa.bool_()


@dataclass(frozen=True, slots=True)
class Negated:
    """A number with the other sign."""

    inner: Expression

    @property
    def type(self) -> pa.DataType:
        """That of the number."""
        return self.inner.type


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Two numbers and one of ``+ - * / %`` or ``div``."""

    sign: str
    left: Expression
    right: Expression
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Cast:
    """A value as another type."""

    inner: Expression
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Call:
    """A function of one string or binary; `FUNCTIONS` has them by name."""

    name: str
    inner: Expression
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Concatenated:
    """Strings, one after the other."""

    parts: tuple[Expression, ...]

    @property
    def type(self) -> pa.DataType:
        """Always string."""
        return pa.string()


@dataclass(frozen=True, slots=True)
class Hashed:
    """The hash of some columns without nulls, as Spark's ``xxhash64`` computes it."""

    parts: tuple[Expression, ...]

    @property
    def type(self) -> pa.DataType:
        """Always bigint."""
        return pa.int64()


@dataclass(frozen=True, slots=True)
class NullIf:
    """The first value, or null where the two are equal once they have the common type `compared`."""

    left: Expression
    right: Expression
    compared: pa.DataType

    @property
    def type(self) -> pa.DataType:
        """That of the first value."""
        return self.left.type


@dataclass(frozen=True, slots=True)
class Coalesce:
    """The first of the values that is not null; all have the same type."""

    parts: tuple[Expression, ...]
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Case:
    """The value of the first branch whose condition is true; all values have the same type."""

    branches: tuple[tuple[Predicate, Expression], ...]
    otherwise: Expression
    type: pa.DataType


Expression: TypeAlias = (
    Constant
    | ColumnValue
    | Condition
    | Comparison
    | Among
    | Matched
    | Tested
    | Negated
    | Arithmetic
    | Cast
    | Call
    | Concatenated
    | Hashed
    | NullIf
    | Coalesce
    | Case
)


# --- columns ----------------------------------------------------------------------------------------------------------------


def columns_of(node: Expression) -> frozenset[str]:
    """Give the names of the table's columns that an expression looks at."""
    match node:
        case Constant():
            return frozenset()
        case ColumnValue(path):
            return frozenset({path[0]})
        case Condition(predicate):
            return frozenset(predicate.columns)
        case Negated(inner) | Cast(inner) | Call(_, inner) | Among(inner) | Matched(inner) | Tested(inner):
            return columns_of(inner)
        case Arithmetic(_, left, right) | NullIf(left, right) | Comparison(_, left, right):
            return columns_of(left) | columns_of(right)
        case Concatenated(parts) | Coalesce(parts) | Hashed(parts):
            return frozenset().union(*map(columns_of, parts))
        case Case(branches, otherwise):
            named = (frozenset(predicate.columns) | columns_of(value) for predicate, value in branches)
            return columns_of(otherwise).union(*named)
        case _:
            assert_never(node)


# --- values -----------------------------------------------------------------------------------------------------------------


def evaluate(node: Expression, rows: pa.RecordBatch) -> pa.Array:  # noqa: C901, PLR0912 - one case for each kind of node
    """Give an expression's value for each row.

    Parameters
    ----------
    rows
        Has at least the columns of `columns_of`.

    Raises
    ------
    NoValueError
        It has none for some row: a number that does not fit, a division by zero, a text that can't be read.
    """
    import pyarrow.compute as pc

    match node:
        case Constant(value, arrow):
            return pa.repeat(pa.scalar(value, arrow), rows.num_rows)
        case ColumnValue(path):
            values = rows.column(path[0])
            return pc.struct_field(values, list(path[1:])) if len(path) > 1 else values
        case Condition(predicate):
            return condition_values(predicate, rows)
        case Comparison(operator, left, right, null_safe):
            one, other = evaluate(left, rows), evaluate(right, rows)
            return same(one, other) if null_safe else compare(operator, one, other)
        case Among(inner, wanted):
            return among(evaluate(inner, rows), pa.array(wanted, inner.type))
        case Matched(inner, pattern, ignore_case):
            return matches(evaluate(inner, rows), pattern, ignore_case=ignore_case)
        case Tested(inner, what):
            return TESTS[what](evaluate(inner, rows))
        case Negated(inner):
            return negate(evaluate(inner, rows))
        case Arithmetic(sign, left, right, arrow):
            return calculate(sign, evaluate(left, rows), evaluate(right, rows), arrow)
        case Cast(inner, arrow):
            return cast_values(evaluate(inner, rows), arrow)
        case Call(name, inner):
            return FUNCTIONS[name](evaluate(inner, rows))
        case Concatenated(parts):
            return pc.binary_join_element_wise(*(evaluate(each, rows) for each in parts), "", null_handling="emit_null")
        case Hashed(parts):
            from replitree.storage.schema.row_buckets import xxhash64

            return pa.array(xxhash64([evaluate(each, rows) for each in parts]))
        case NullIf():
            return _null_if(node, rows)
        case Coalesce(parts):
            gathered = _Gathered(rows)
            for part in parts[:-1]:
                values = evaluate(part, gathered.left)
                present = _as_mask(values.is_valid())
                gathered.give(present, values.filter(pa.array(present)))
            return _finished(gathered, parts[-1])
        case Case(branches, otherwise):
            gathered = _Gathered(rows)
            for predicate, value in branches:
                chosen = where_true(predicate, gathered.left)
                gathered.give(chosen, evaluate(value, gathered.left.filter(pa.array(chosen))))
            return _finished(gathered, otherwise)
        case _:
            assert_never(node)


def condition_values(predicate: Predicate, rows: pa.RecordBatch) -> pa.Array:
    """Give for each row whether a predicate is true, false or null.

    Raises
    ------
    NoValueError
        Something in it has no value for a row that decides by it.
    """
    return _truths(predicate, predicate.node, rows)


def _truths(predicate: Predicate, node: Node, rows: pa.RecordBatch) -> pa.Array:
    import pyarrow.compute as pc

    match node:
        case Computed(expression):
            return evaluate(expression, rows)
        case Not(inner) if is_computed(node):
            return pc.invert(_truths(predicate, inner, rows))
        case And(nodes) if is_computed(node):
            return _chained(predicate, nodes, rows, pc.and_kleene, decided=False)
        case Or(nodes) if is_computed(node):
            return _chained(predicate, nodes, rows, pc.or_kleene, decided=True)
    # Nothing is calculated here: Arrow's scanner decides, as it does when files are read.
    import pyarrow.dataset as ds

    # A column that may not be null is not taken at its word here: the scanner would simplify conditions by it.
    nullable = pa.schema([field.with_nullable(True) for field in rows.schema])
    table = pa.table(rows.columns, schema=nullable)
    scanner = ds.dataset(table).scanner(columns={"truth": replace(predicate, node=node).to_arrow()}, use_threads=False)
    found = scanner.to_table().column("truth").combine_chunks()
    assert len(found) == rows.num_rows
    return found


def _chained(
    predicate: Predicate,
    nodes: Sequence[Node],
    rows: pa.RecordBatch,
    joined: Callable[[pa.Array, pa.Array], pa.Array],
    *,
    decided: bool,
) -> pa.Array:
    """Give ``AND`` or ``OR``, each operand only for the rows that those before it have not decided.

    So ``b <> 0 and a / b > 1`` divides by no zero.
    """
    import pyarrow.compute as pc

    found = _truths(predicate, nodes[0], rows)
    for node in nodes[1:]:
        # Null is open as well: the next operand may decide.
        is_open = ~_as_mask(found if decided else pc.invert(found))
        if not is_open.any():
            break
        values = _truths(predicate, node, rows.filter(pa.array(is_open)))
        # Null where an operand before has decided, which changes nothing there.
        places = pa.array(np.cumsum(is_open) - 1, mask=~is_open)
        found = joined(found, values.take(places))
    return found


def where_true(predicate: Predicate, rows: pa.RecordBatch) -> Truths:
    """Give for each row whether a predicate is true; null is not."""
    return _as_mask(condition_values(predicate, rows))


def wanted_rows(predicate: Predicate, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows for which a reader's predicate is true.

    Raises
    ------
    BadInput
        Something in it has no value for a row: a division by zero, a number that does not fit.
    """
    try:
        return rows.filter(pa.array(where_true(predicate, rows)))
    except NoValueError as error:
        raise BadInput(f"the condition {predicate.text!r} has no value in some row: {error}") from error


def _as_mask(values: pa.Array) -> Truths:
    mask: Truths = values.fill_null(False).to_numpy(zero_copy_only=False)
    return mask


def _kernel(name: str, *arguments: str) -> Callable[[pa.Array], pa.Array]:
    """Return a function of one value that calls a kernel of Arrow's, whose module is loaded when it is called first."""

    def call(values: pa.Array) -> pa.Array:
        import pyarrow.compute as pc

        return getattr(pc, name)(values, *arguments)

    return call


_characters, _bytes = _kernel("utf8_length"), _kernel("binary_length")
FUNCTIONS: dict[str, Callable[[pa.Array], pa.Array]] = {
    "upper": _kernel("utf8_upper"),
    "lower": _kernel("utf8_lower"),
    "trim": _kernel("utf8_trim", " "),
    "ltrim": _kernel("utf8_ltrim", " "),
    "rtrim": _kernel("utf8_rtrim", " "),
    "length": lambda values: (_characters if pa.types.is_string(values.type) else _bytes)(values),
}
"""Functions of one value, by name."""


TESTS: dict[str, Callable[[pa.Array], pa.Array]] = {"null": missing, "nan": is_nan}
"""Tests of one value, by name."""


def _null_if(node: NullIf, rows: pa.RecordBatch) -> pa.Array:
    import pyarrow.compute as pc

    value, other = evaluate(node.left, rows), evaluate(node.right, rows)
    one, two = cast_values(value, node.compared), cast_values(other, node.compared)
    equal = pc.equal(one, two)
    # NaN equals itself in Spark, and not in Arrow.
    if pa.types.is_floating(node.compared):
        equal = pc.or_(equal, pc.and_(pc.is_nan(one), pc.is_nan(two)))
    return pc.if_else(equal.fill_null(False), pa.scalar(None, value.type), value)


# --- branches: every row is calculated where it gets to, and nowhere else -----------------------------------------------------


class _Gathered:
    """Values of some rows at a time, until every row has one."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        self.left = rows
        self._positions: NDArray[np.intp] = np.arange(rows.num_rows)
        self._values: list[pa.Array] = []
        self._owners: list[NDArray[np.intp]] = []

    def give(self, chosen: Truths, values: pa.Array) -> None:
        """Give the chosen ones of the rows that are left their values."""
        self._values.append(values)
        self._owners.append(self._positions[chosen])
        self._positions = self._positions[~chosen]
        self.left = self.left.filter(pa.array(~chosen))

    def all(self) -> pa.Array:
        """Give the values in the order of the rows."""
        owners = np.concatenate(self._owners)
        places = np.empty_like(owners)
        # The inverse permutation: where each row's value lies in the concatenation.
        places[owners] = np.arange(len(owners))
        return pa.concat_arrays(self._values).take(pa.array(places))


def _finished(gathered: _Gathered, otherwise: Expression) -> pa.Array:
    everything = np.ones(gathered.left.num_rows, np.bool_)
    gathered.give(everything, evaluate(otherwise, gathered.left))
    return gathered.all()
