"""From the text after ``SET column =``, or of a side of a condition, in Spark's dialect, to an expression.

Understood: columns (any case; backquotes; ``struct.field``); numbers (``1``, ``1L``, ``1.50``, ``1.5D``, ``1e3``), strings,
``date'…'``, ``timestamp'…'``, ``X'…'``, ``true``, ``null``; ``+ - * / %``, ``mod``, ``div``; ``||``, ``concat``; ``case``,
``if``; ``coalesce``, ``nvl``, ``ifnull``, ``nullif``; ``cast``; ``upper``, ``lower``, ``trim``, ``ltrim``, ``rtrim``,
``length``; ``isnan``, ``isnull``, ``isnotnull``, ``startswith``, ``endswith``, ``contains``; and as a boolean, or after
``when``, every condition that ``WHERE`` takes (see `replitree.storage.sql.predicate_parser`).

Anything else is refused with `BadInput`, never guessed; so is what has another value on every replica, such as ``now()``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

import pyarrow as pa

from replitree.errors import BadInput
from replitree.storage.schema.columns import Column
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.schema.spark_types import spark_type
from replitree.storage.schema.type_kinds import DECIMAL_PRECISION_MAX
from replitree.storage.schema.types import is_nested, parse_type
from replitree.storage.sql.condition_parser import NULL_TESTS, as_type, condition_expression
from replitree.storage.sql.expression import (
    FUNCTIONS,
    Arithmetic,
    Call,
    Case,
    Coalesce,
    ColumnValue,
    Concatenated,
    Condition,
    Constant,
    Expression,
    Hashed,
    Negated,
    NullIf,
)
from replitree.storage.sql.expression_types import (
    arithmetic_type,
    can_assign,
    can_cast,
    common_type,
    decimal_of_literal,
    is_moment,
    is_numeric,
)
from replitree.storage.sql.literals import parse_date, parse_moment
from replitree.storage.sql.predicate import Predicate
from replitree.storage.sql.predicate_parser import TEXT_CHARACTERS_MAX, column_of, condition_of
from replitree.storage.sql.sql_parser import NotRead, parse_one, text_of

if TYPE_CHECKING:
    from sqlglot import exp

_INT32 = 1 << 31
_INT64 = 1 << 63

_VARYING = frozenset(
    {
        *("now", "rand", "randn", "random", "uuid", "current_timestamp", "current_date", "localtimestamp", "curdate"),
        *("current_user", "current_database", "current_schema", "current_catalog", "current_timezone", "user"),
        *("session_user", "unix_timestamp", "monotonically_increasing_id", "spark_partition_id", "input_file_name"),
        *(
            "shuffle",
            "randstr",
            "uniform",
            "version",
            "currenttimestamp",
            "currentdate",
            "currentuser",
            "currentdatetime",
        ),
    }
)
"""Functions that are not the same everywhere and always."""


def parse_assignment(text: str, column: Column, definition: TableDefinition) -> Expression:
    """Read what a column is set to; the expression that comes back has the column's type.

    Raises
    ------
    BadInput
        It can't be read, names an unknown column, calculates with what is no number, or doesn't fit the column; says what to
        use instead.
    """
    if len(text) > TEXT_CHARACTERS_MAX:
        raise BadInput(f"an expression may have {TEXT_CHARACTERS_MAX:,} characters; this has {len(text):,}")
    try:
        reader = _Reader(text, definition)
        found = reader.expression(parse_one(text))
    except NotRead as error:
        raise BadInput(f"can't read the expression {text!r}: {str(error) or 'no expression'}") from error
    except RecursionError as error:
        raise BadInput(f"the expression for {column.name!r} is nested too deeply") from error
    if not can_assign(found.type, column.arrow_type):
        hint = f"; use cast(… as {column.type})" if can_cast(found.type, column.arrow_type) else ""
        raise reader.error(f"{column.name} is a {column.type} column, and this is a {_name(found.type)}{hint}")
    return as_type(found, column.arrow_type)


def parse_condition(tree: exp.Expr, text: str, definition: TableDefinition) -> Expression:
    """Give the boolean expression that a tree of sqlglot's means: a condition about more than columns and literals.

    Raises
    ------
    BadInput
        It is not understood, or compares what does not compare.
    """
    reader = _Reader(text, definition, "condition")
    return condition_expression(reader, tree)


def varying_function(tree: exp.Expr) -> str | None:
    """Give a piece of a tree of sqlglot's that is not the same everywhere and always, or None."""
    return next((_sql(node) for node in tree.walk() if _function_name(node) in _VARYING), None)


class _Reader:
    """From sqlglot's tree to ours."""

    def __init__(self, text: str, definition: TableDefinition, what: str = "expression") -> None:
        self.text = text
        self.definition = definition
        self._what = what

    def error(self, problem: str) -> BadInput:
        return BadInput(f"can't use the {self._what} {self.text!r}: {problem}")

    def expression(self, tree: exp.Expr) -> Expression:
        name = type(tree).__name__
        reader = _READERS.get(name)
        if reader is not None:
            self._check(tree)
            return reader(self, tree)
        if _function_name(tree) == "xxhash64":
            return self.hashed(tree)
        if name in _CONDITIONS or _function_name(tree) in NULL_TESTS:
            return Condition(self._condition(tree))
        if _function_name(tree) in _VARYING:
            raise self.error(f"{_sql(tree)} is not the same on every replica; write its value")
        if name in {"Select", "Subquery", "Union"}:
            raise self.error("an expression looks at one row; it can't select others")
        instead = (
            "calculate it with Spark, and insert the rows"
            if self._what == "expression"
            else "to read, use `to_df(spark)` and Spark's `where`; to change rows, find their keys with Spark and list them"
        )
        raise self.error(f"{_sql(tree)[:80]!r} is not understood here (docs/conditions.md lists what is): {instead}")

    def _check(self, tree: exp.Expr) -> None:
        """Refuse a node with a part that is not looked at here: a flag of a newer sqlglot may turn its meaning round."""
        known = _PARTS.get(type(tree).__name__, _TWO)
        unknown = sorted(name for name, part in tree.args.items() if part and name not in known)
        if unknown:
            raise self.error(f"{_sql(tree)!r} is not understood here ({unknown[0]})")

    # --- values -----------------------------------------------------------------------------------------------------------

    def paren(self, tree: exp.Expr) -> Expression:
        return self.expression(tree.this)

    def column(self, tree: exp.Expr) -> Expression:
        found = column_of(tree, self.text, self.definition)
        return ColumnValue(found.path, found.type)

    def literal(self, tree: exp.Expr) -> Expression:
        return Constant(tree.this, pa.string()) if tree.is_string else self._number(tree.this)

    def raw_string(self, tree: exp.Expr) -> Expression:
        return Constant(tree.this, pa.string())

    def binary(self, tree: exp.Expr) -> Expression:
        try:
            return Constant(bytes.fromhex(tree.this), pa.binary())
        except ValueError as error:
            raise self.error(f"X'{tree.this[:80]}' has no even number of hexadecimal digits") from error

    def boolean(self, tree: exp.Expr) -> Expression:
        return Constant(bool(tree.this), pa.bool_())

    def null(self, tree: exp.Expr) -> Expression:
        del tree
        return Constant(None, pa.null())

    def negative(self, tree: exp.Expr) -> Expression:
        if _is_number(tree.this):
            return self._number(f"-{tree.this.this}")
        # The lowest value of a type exists only with its sign: 128 alone does not fit a tinyint.
        if type(tree.this).__name__ in {"Cast", "TryCast"} and _is_number(tree.this.this):  # as in -128Y
            return self.cast(tree.this, self._number(f"-{tree.this.this.this}"))
        inner = self.expression(tree.this)
        if not is_numeric(inner.type):
            raise self.error(f"{_sql(tree.this)!r} is a {_name(inner.type)}, which has no negative")
        return Negated(inner)

    def _number(self, text: str) -> Expression:
        try:
            # Both forms are needed: an exponent makes a double, a point a decimal.
            number, value = float(text), Decimal(text)
        # sqlglot's tokenizer takes 1e5.5 and .05.05 for one number.
        except (ValueError, InvalidOperation):
            raise self.error(f"{text[:80]} is not a number") from None
        if "e" in text.lower():
            if not math.isfinite(number):
                raise self.error(f"{text[:80]} is beyond every number")
            return Constant(number, pa.float64())
        if "." not in text and -_INT64 <= value < _INT64:
            return Constant(int(value), pa.int32() if -_INT32 <= value < _INT32 else pa.int64())
        _, digits, exponent = value.as_tuple()
        assert isinstance(exponent, int)
        # 0.001 has one digit, and needs three after the point.
        precision = max(len(digits), -exponent)
        if precision > DECIMAL_PRECISION_MAX:
            raise self.error(f"{text} has more than {DECIMAL_PRECISION_MAX} digits")
        return Constant(value, pa.decimal128(precision, -exponent))

    # --- casts and functions ------------------------------------------------------------------------------------------------

    def cast(self, tree: exp.Expr, inner: Expression | None = None) -> Expression:
        self._check(tree)
        try:
            target = parse_type(text_of(tree.args["to"]))
        except BadInput as error:
            raise self.error(str(error)) from error
        # A text literal that is cast to a date is read once, with our messages, and needs no kernel.
        literal = tree.this
        if type(literal).__name__ == "Literal" and literal.is_string:
            constant = self.moment(literal.this, target)
            if constant is not None:
                return constant
        inner = inner or self.expression(literal)
        if not can_cast(inner.type, target):
            raise self.error(f"a cast of a {_name(inner.type)} to {spark_type(target)} is not understood here")
        return as_type(inner, target)

    def moment(self, text: str, target: pa.DataType) -> Expression | None:
        """Read the text of a date or timestamp; without a zone it is UTC where one is needed."""
        if not is_moment(target):
            return None
        try:
            value = parse_date(text) if pa.types.is_date(target) else parse_moment(text)
        except ValueError as error:
            raise self.error(str(error)) from error
        if isinstance(value, datetime):
            if target.tz is None and value.tzinfo is not None:
                raise self.error("the column has no time zone: leave it out")
            if target.tz is not None and value.tzinfo is None:
                value = value.replace(tzinfo=UTC)
        return Constant(value, target)

    def call(self, tree: exp.Expr) -> Expression:
        name = type(tree).__name__.lower()
        if name == "trim":
            name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(tree.args.get("position") or ""), name)
        inner = self.expression(tree.this)
        if pa.types.is_null(inner.type):
            inner = as_type(inner, pa.string())
        takes = pa.types.is_string(inner.type) or (name == "length" and pa.types.is_binary(inner.type))
        if not takes:
            raise self.error(f"{name} takes a string, and {_sql(tree.this)!r} is a {_name(inner.type)}")
        assert name in FUNCTIONS
        return Call(name, inner, pa.int32() if name == "length" else pa.string())

    def concat(self, tree: exp.Expr) -> Expression:
        trees = tree.expressions if type(tree).__name__ == "Concat" else [tree.this, tree.expression]
        parts = [self.expression(part) for part in trees]
        for part, shown in zip(parts, trees, strict=True):
            if not can_assign(part.type, pa.string()) or pa.types.is_binary(part.type):
                raise self.error(f"{_sql(shown)!r} is a {_name(part.type)}, which is not joined to a string here")
        return Concatenated(tuple(as_type(part, pa.string()) for part in parts))

    def hashed(self, tree: exp.Expr) -> Expression:
        from replitree.storage.schema.row_buckets import is_key_column

        if not tree.expressions:
            raise self.error("xxhash64 takes columns")
        parts: list[Expression] = []
        for part in tree.expressions:
            value = self.expression(part)
            # Not every type's hash is computed here, and no null's.
            named = value.path[0] if isinstance(value, ColumnValue) and len(value.path) == 1 else None
            if named is None or not is_key_column(self.definition.column(named)):
                raise self.error(f"xxhash64 takes columns that a table can be sharded by, and {_sql(part)!r} is none")
            parts.append(value)
        return Hashed(tuple(parts))

    # --- arithmetic -----------------------------------------------------------------------------------------------------------

    def arithmetic(self, tree: exp.Expr) -> Expression:
        sign = _SIGNS[type(tree).__name__]
        left, right = self.expression(tree.this), self.expression(tree.expression)
        left, right = _null_as(left, right), _null_as(right, left)
        left, right = _literal_beside(left, right), _literal_beside(right, left)
        # After the literals have their types: they decide the digits of a decimal's result.
        found = arithmetic_type(sign, left.type, right.type)
        if found is None and sign == "div":
            raise self.error(f"div takes two whole numbers, not {_name(left.type)} and {_name(right.type)}")
        if found is None:
            raise self.error(f"can't calculate {_name(left.type)} {sign} {_name(right.type)}: both must be numbers")
        return Arithmetic(sign, left, right, found)

    # --- branches -----------------------------------------------------------------------------------------------------------

    def coalesce(self, tree: exp.Expr) -> Expression:
        parts, common = self._alike([tree.this, *tree.expressions])
        return Coalesce(tuple(parts), common)

    def null_if(self, tree: exp.Expr) -> Expression:
        left, right = self.expression(tree.this), self.expression(tree.expression)
        compared = common_type(left.type, right.type)
        if compared is None or is_nested(compared):
            raise self.error(f"nullif does not compare a {_name(left.type)} with a {_name(right.type)}")
        return left if pa.types.is_null(compared) else NullIf(left, right, compared)

    def case(self, tree: exp.Expr) -> Expression:
        from sqlglot import exp

        subject, ifs = tree.this, tree.args["ifs"]
        conditions = [
            exp.EQ(this=subject.copy(), expression=each.this.copy()) if subject else each.this for each in ifs
        ]
        return self._branches(conditions, [each.args["true"] for each in ifs], tree.args.get("default"))

    def if_(self, tree: exp.Expr) -> Expression:
        return self._branches([tree.this], [tree.args["true"]], tree.args.get("false"))

    def _branches(self, conditions: list[exp.Expr], values: list[exp.Expr], otherwise: exp.Expr | None) -> Expression:
        from sqlglot import exp

        parts, common = self._alike([*values, otherwise or exp.Null()])
        branches = zip(map(self._condition, conditions), parts[:-1], strict=True)
        return Case(tuple(branches), parts[-1], common)

    def _condition(self, tree: exp.Expr) -> Predicate:
        return condition_of(tree, self.text, self.definition)

    def _alike(self, trees: list[exp.Expr]) -> tuple[list[Expression], pa.DataType]:
        """Read values that must have one type."""
        parts = [self.expression(tree) for tree in trees]
        common = pa.null()
        for part in parts:
            joined = common_type(common, part.type)
            if joined is None:
                raise self.error(f"a {_name(common)} and a {_name(part.type)} have no type in common; use cast")
            common = joined
        return [as_type(part, common) for part in parts], common


def _is_number(tree: exp.Expr) -> bool:
    return type(tree).__name__ == "Literal" and not tree.is_string


def _null_as(node: Expression, other: Expression) -> Expression:
    """Give a null beside a number the number's type."""
    return as_type(node, other.type) if pa.types.is_null(node.type) else node


def _literal_beside(node: Expression, other: Expression) -> Expression:
    """Give an integer literal beside a decimal no more digits than it has."""
    is_literal = isinstance(node, Constant) and pa.types.is_integer(node.type) and node.value is not None
    if not is_literal or not pa.types.is_decimal(other.type):
        return node
    assert isinstance(node, Constant)
    return Constant(Decimal(node.value), decimal_of_literal(node.value))


def _function_name(tree: exp.Expr) -> str:
    name = type(tree).__name__
    return str(tree.this if name == "Anonymous" else name).lower()


def _name(arrow: pa.DataType) -> str:
    return "null" if pa.types.is_null(arrow) else spark_type(arrow)


def _sql(tree: exp.Expr) -> str:
    return text_of(tree)


_SIGNS = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "Mod": "%", "IntDiv": "div"}

_READERS: dict[str, Callable[[_Reader, exp.Expr], Expression]] = {
    "Paren": _Reader.paren,
    "Column": _Reader.column,
    "Dot": _Reader.column,
    "Literal": _Reader.literal,
    "RawString": _Reader.raw_string,
    "HexString": _Reader.binary,
    "Boolean": _Reader.boolean,
    "Null": _Reader.null,
    "Neg": _Reader.negative,
    "Cast": _Reader.cast,
    "TryCast": _Reader.cast,
    **dict.fromkeys(("Upper", "Lower", "Trim", "Length"), _Reader.call),
    **dict.fromkeys(("DPipe", "Concat"), _Reader.concat),
    **dict.fromkeys(_SIGNS, _Reader.arithmetic),
    "Coalesce": _Reader.coalesce,
    "Nullif": _Reader.null_if,
    "Case": _Reader.case,
    "If": _Reader.if_,
}
"""The method that reads each node of sqlglot's."""

_CONDITIONS = frozenset(
    {
        *("And", "Or", "Not", "EQ", "NEQ", "LT", "LTE", "GT", "GTE", "NullSafeEQ", "Is", "In", "Between"),
        *("Like", "ILike", "Escape", "StartsWith", "EndsWith", "Contains", "IsNan"),
    }
)
"""Nodes that are conditions."""

_TWO = frozenset({"this", "expression"})
_PARTS: dict[str, frozenset[str]] = {
    "Column": frozenset({"this", "table", "db", "catalog"}),
    "Literal": frozenset({"this", "is_string"}),
    **dict.fromkeys(("Cast", "TryCast"), frozenset({"this", "to"})),
    "Trim": frozenset({"this", "position"}),
    "DPipe": _TWO | {"safe"},
    "Concat": frozenset({"expressions", "safe"}),
    "Div": _TWO | {"safe"},
    "Coalesce": frozenset({"this", "expressions"}),
    "Case": frozenset({"this", "ifs", "default"}),
    "If": frozenset({"this", "true", "false"}),
}
"""The parts of each node that are looked at, where they are not `this` and `expression`."""
