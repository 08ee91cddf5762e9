"""Conditions about expressions: from a tree of sqlglot's to a boolean expression.

Comparisons, ``IN``, ``BETWEEN``, ``LIKE``, ``IS NULL`` and so on when a side is more than a column or a literal.  Both sides
get the type that Spark gives them in its ANSI mode, or the condition is refused: see `replitree.storage.sql.expression_types`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from replitree.errors import BadInput
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.schema.spark_types import spark_type
from replitree.storage.schema.types import is_nested
from replitree.storage.sql.expression import (
    Among,
    Cast,
    Comparison,
    Condition,
    Constant,
    Expression,
    Matched,
    Tested,
    columns_of,
)
from replitree.storage.sql.expression_kernels import NoValueError, cast_values
from replitree.storage.sql.expression_types import common_type, is_moment, is_numeric
from replitree.storage.sql.predicate import And, ColumnRef, Computed, Not, Operator, Or, Predicate
from replitree.storage.sql.sql_parser import text_of

if TYPE_CHECKING:
    from sqlglot import exp

NULL_TESTS = frozenset({"isnull", "isnotnull"})
"""Functions that sqlglot has no nodes for."""

_COMPARISONS = {
    "EQ": Operator.EQ,
    "NEQ": Operator.NE,
    "LT": Operator.LT,
    "LTE": Operator.LE,
    "GT": Operator.GT,
    "GTE": Operator.GE,
}


class Reader(Protocol):
    """The reader of a condition's sides: `replitree.storage.sql.expression_parser`."""

    @property
    def definition(self) -> TableDefinition:
        """The table's definition."""

    @property
    def text(self) -> str:
        """The whole condition, or expression, as it was written."""

    def expression(self, tree: exp.Expr) -> Expression:
        """Read an expression."""

    def moment(self, text: str, target: pa.DataType) -> Expression | None:
        """Read the text of a date or timestamp; None when the type is neither."""

    def error(self, problem: str) -> BadInput:
        """Return an error about the text that is read."""


def condition_expression(reader: Reader, tree: exp.Expr) -> Expression:
    """Return the boolean expression that a condition means.

    Raises
    ------
    BadInput
        It is not understood, or compares what does not compare.
    """
    name = type(tree).__name__
    if name in _COMPARISONS:
        return _compared(reader, _COMPARISONS[name], tree.this, tree.expression)
    special = _SPECIAL.get(name)
    if special is not None:
        return special(reader, tree)
    if name == "Anonymous" and str(tree.this).lower() in NULL_TESTS:
        if len(tree.expressions) != 1:
            raise reader.error(f"{tree.this} takes one value")
        found = Tested(reader.expression(tree.expressions[0]), "null")
        return _negated(reader, found) if str(tree.this).lower() == "isnotnull" else found
    found_value = reader.expression(tree)
    if not (pa.types.is_boolean(found_value.type) or pa.types.is_null(found_value.type)):
        raise reader.error(f"{_sql(tree)!r} is a {_name(found_value.type)}, and a condition is true or false")
    return found_value


def computed_node(expression: Expression, definition: TableDefinition) -> Computed:
    """Return the node of a predicate that calculates an expression."""
    used = columns_of(expression)
    refs = (ColumnRef((column.name,), column.arrow_type) for column in definition.columns if column.name in used)
    return Computed(expression, tuple(refs))


# --- the kinds of conditions ----------------------------------------------------------------------------------------------


def _compared(
    reader: Reader, operator: Operator, left: exp.Expr, right: exp.Expr, *, null_safe: bool = False
) -> Expression:
    one, other = reader.expression(left), reader.expression(right)
    # A text beside a date is read once here, instead of cast for every row; Spark takes it for a date, too.
    one, other = _text_beside(reader, one, other), _text_beside(reader, other, one)
    common = common_type(one.type, other.type)
    if common is None or is_nested(common):
        raise reader.error(f"a {_name(one.type)} does not compare with a {_name(other.type)}; use cast")
    if pa.types.is_null(common):
        common = pa.int32()  # two nulls, of any type
    return Comparison(operator, as_type(one, common), as_type(other, common), null_safe)


def _text_beside(reader: Reader, node: Expression, other: Expression) -> Expression:
    """Read a text beside a date or timestamp as one."""
    if isinstance(node, Constant) and isinstance(node.value, str) and is_moment(other.type):
        return reader.moment(node.value, other.type) or node
    return node


def _is(reader: Reader, tree: exp.Expr) -> Expression:
    kind = type(tree.expression).__name__
    if kind == "Null":
        return Tested(reader.expression(tree.this), "null")
    if kind == "Boolean":
        return Comparison(
            Operator.EQ,
            condition_expression(reader, tree.this),
            Constant(bool(tree.expression.this), pa.bool_()),
            null_safe=True,
        )
    raise reader.error("IS takes NULL, TRUE or FALSE")


def _in(reader: Reader, tree: exp.Expr) -> Expression:
    # `IN (SELECT …)` has its query in another part of the node.
    if not tree.expressions or any(name not in {"this", "expressions"} for name, part in tree.args.items() if part):
        raise reader.error("IN takes a list of values")
    compared = [_compared(reader, Operator.EQ, tree.this, value) for value in tree.expressions]
    sides = [each for each in compared if isinstance(each, Comparison)]
    left, constants = sides[0].left, list[Any]()
    for value in (each.right for each in sides):
        if isinstance(value, Constant):
            constants.append(value.value)
        elif isinstance(value, Cast) and isinstance(value.inner, Constant):
            # A constant that does not fit keeps its cast, which fails where Spark fails: when a row is calculated.
            with suppress(NoValueError):
                one = pa.array([value.inner.value], value.inner.type)
                constants.append(cast_values(one, value.type)[0].as_py())
    # Each comparison has a type of its own: one list of values needs the same left side in all.
    if len(constants) == len(sides) and all(each.left == left for each in sides):
        return Among(left, tuple(constants))
    node = Or(tuple(computed_node(each, reader.definition) for each in compared))
    return Condition(Predicate(reader.text, node, reader.definition))


def _between(reader: Reader, tree: exp.Expr) -> Expression:
    if tree.args.get("symmetric"):
        raise reader.error("BETWEEN SYMMETRIC is not understood here")
    low = _compared(reader, Operator.GE, tree.this, tree.args["low"])
    high = _compared(reader, Operator.LE, tree.this, tree.args["high"])
    node = And((computed_node(low, reader.definition), computed_node(high, reader.definition)))
    return Condition(Predicate(reader.text, node, reader.definition))


def _like(reader: Reader, tree: exp.Expr) -> Expression:
    found = _matched(reader, tree, lambda text: text, ignore_case=type(tree).__name__ == "ILike")
    return _negated(reader, found) if tree.args.get("negate") else found


def _escape(reader: Reader, tree: exp.Expr) -> Expression:
    if not _is_text(tree.expression) or tree.expression.this != "\\":
        raise reader.error("LIKE takes the backslash as escape only")
    return condition_expression(reader, tree.this)


def _matched(
    reader: Reader, tree: exp.Expr, pattern_of: Callable[[str], str], *, ignore_case: bool = False
) -> Expression:
    inner = reader.expression(tree.this)
    if type(tree.this).__name__ == "Null":  # of no type by itself
        inner = as_type(inner, pa.string())
    if not pa.types.is_string(inner.type) or not _is_text(tree.expression):
        raise reader.error(f"{_sql(tree)!r} takes a string, and a text in quotes")
    return Matched(inner, pattern_of(tree.expression.this), ignore_case)


def _escaped(text: str) -> str:
    return "".join(f"\\{c}" if c in "\\%_" else c for c in text)


def _is_nan(reader: Reader, tree: exp.Expr) -> Expression:
    inner = reader.expression(tree.this)
    if not (is_numeric(inner.type) or pa.types.is_null(inner.type)):
        raise reader.error(f"isnan takes a number, and {_sql(tree.this)!r} is a {_name(inner.type)}")
    return Tested(inner if pa.types.is_floating(inner.type) else as_type(inner, pa.float64()), "nan")


def _negated(reader: Reader, found: Expression) -> Expression:
    return Condition(Predicate(reader.text, Not(computed_node(found, reader.definition)), reader.definition))


def as_type(node: Expression, target: pa.DataType) -> Expression:
    """Return an expression with a cast to a type around it, where it has another one."""
    if node.type == target:
        return node
    if isinstance(node, Constant) and node.value is None:
        return Constant(None, target)
    return Cast(node, target)


def _is_text(tree: exp.Expr) -> bool:
    return type(tree).__name__ == "RawString" or (type(tree).__name__ == "Literal" and bool(tree.is_string))


def _name(arrow: pa.DataType) -> str:
    return "null" if pa.types.is_null(arrow) else spark_type(arrow)


def _sql(tree: exp.Expr) -> str:
    return text_of(tree)[:80]


_SPECIAL: dict[str, Callable[[Reader, exp.Expr], Expression]] = {
    "NullSafeEQ": lambda reader, tree: _compared(reader, Operator.EQ, tree.this, tree.expression, null_safe=True),
    "Is": _is,
    "In": _in,
    "Between": _between,
    "Like": _like,
    "ILike": _like,
    "Escape": _escape,
    "StartsWith": lambda reader, tree: _matched(reader, tree, lambda text: f"{_escaped(text)}%"),
    "EndsWith": lambda reader, tree: _matched(reader, tree, lambda text: f"%{_escaped(text)}"),
    "Contains": lambda reader, tree: _matched(reader, tree, lambda text: f"%{_escaped(text)}%"),
    "IsNan": _is_nan,
}
"""The function that reads each node of sqlglot's."""
