"""From the text of a ``WHERE`` clause, in Spark's dialect, to a predicate.

Understood: ``AND OR NOT``, ``= != <> < <= > >= <=>``, ``BETWEEN``, ``IN (…)``, ``IS [NOT] NULL``, ``IS [NOT] TRUE``,
``LIKE``, ``ILIKE``, ``startswith``, column names (any case; backquotes; ``struct.field``), numbers, strings, ``date'…'``,
``timestamp'…'``, ``X'…'``, casts of literals; and in the place of a column or a value every expression of
`replitree.storage.sql.expression_parser`: arithmetic, functions, ``case``, ``cast``.  Anything else is refused with `BadInput`,
never guessed.

A literal beside a column gets the column's type before anything is compared, see `replitree.storage.sql.literals`;
statistics can prune by such a comparison.  What is beside an expression is calculated for each row, and never prunes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from replitree.errors import BadInput
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.schema.spark_types import spark_type
from replitree.storage.schema.type_kinds import DECIMAL_PRECISION_MAX
from replitree.storage.schema.types import is_nested
from replitree.storage.sql.literals import NoMeaningError, coerce, parse_date, parse_moment
from replitree.storage.sql.predicate import (
    FLIPPED,
    Always,
    And,
    ColumnRef,
    Compare,
    CompareColumns,
    IsNull,
    Like,
    Literal,
    Node,
    Not,
    OneOf,
    Operator,
    Or,
    Predicate,
)
from replitree.storage.sql.sql_parser import NotRead, parse_one, refuse_doubled_quotes, text_of

if TYPE_CHECKING:
    from sqlglot import exp

TEXT_CHARACTERS_MAX = 100_000
EXPONENT_MAX = 400
"""Numbers beyond 10^400 are beyond every column."""

_Value: TypeAlias = bool | Decimal | float | str | bytes | date | datetime | None


def parse_predicate(text: str, definition: TableDefinition, *, recorded: bool = False) -> Predicate:
    """Read a ``WHERE`` clause.

    Parameters
    ----------
    recorded
        A log entry has it, which keeps its meaning: a doubled quote in a text, which is refused otherwise, ends one text and
        begins another.

    Raises
    ------
    BadInput
        It can't be read, names an unknown column, or compares what does not compare; says what to use instead.
    """
    if len(text) > TEXT_CHARACTERS_MAX:
        raise BadInput(f"a condition may have {TEXT_CHARACTERS_MAX:,} characters; this has {len(text):,}")
    try:
        if not recorded:
            refuse_doubled_quotes(text)
        return Predicate(text, _Translator(text, definition).node(parse_one(text)), definition)
    except NotRead as error:
        raise BadInput(f"can't read the condition {text!r}: {str(error) or 'no condition'}") from error
    except RecursionError as error:
        raise BadInput("the condition is nested too deeply; use IN (…) for many values") from error


def condition_of(tree: exp.Expr, text: str, definition: TableDefinition) -> Predicate:
    """Give the predicate that a tree of sqlglot's means: a condition inside another text.  Raises as `parse_predicate`."""
    return Predicate(text, _Translator(text, definition).node(tree), definition)


def column_of(tree: exp.Expr, text: str, definition: TableDefinition) -> ColumnRef:
    """Give the column, or the field of one, that a tree of sqlglot's names.  Raises as `parse_predicate`."""
    return _Translator(text, definition).column(tree)


class _Translator:
    """From sqlglot's tree to ours."""

    def __init__(self, text: str, definition: TableDefinition) -> None:
        self._text = text
        self._definition = definition

    def error(self, problem: str) -> BadInput:
        return BadInput(f"can't use the condition {self._text!r}: {problem}")

    def check(self, tree: exp.Expr) -> None:
        """Refuse a node with a part that is not looked at here: a flag of a newer sqlglot may turn its meaning round."""
        known = _PARTS.get(type(tree).__name__, frozenset())
        unknown = sorted(name for name, part in tree.args.items() if part and name not in known)
        # A node that is not in the table is refused where it is read.
        if unknown == ["query"]:
            raise self.error(
                "a condition looks at one row; it can't select others: read them first, and list the values"
            )
        if unknown and known:
            raise self.error(f"{text_of(tree)[:80]!r} is not understood here ({unknown[0]})")

    def node(self, tree: exp.Expr) -> Node:
        from sqlglot import exp

        self.check(tree)
        match tree:
            case exp.Paren():
                return self.node(tree.this)
            case exp.And():
                return And(tuple(self.node(part) for part in _chain(tree, exp.And)))
            case exp.Or():
                return Or(tuple(self.node(part) for part in _chain(tree, exp.Or)))
            case exp.Not():
                return Not(self.node(tree.this))
            case exp.Null():
                return Literal(None)
            case exp.Boolean():
                return Literal(bool(tree.this))
            case _:
                return self.condition(tree)

    def condition(self, tree: exp.Expr) -> Node:
        """Translate a condition without others inside."""
        from sqlglot import exp

        if self.needs_rows(tree):
            return self.computed(tree)
        match tree:
            case exp.Column() | exp.Dot():
                column = self.column(tree)
                if not pa.types.is_boolean(column.type):
                    kind = spark_type(column.type)
                    raise self.error(f"column {'.'.join(column.path)} is {kind}: compare it with something")
                return self.compare(Operator.EQ, column, True)
            case exp.Is():
                return self.is_(tree)
            case exp.In():
                return self.one_of(tree)
            case exp.Between():
                return self.between(tree)
            case exp.NullSafeEQ():
                return self.null_safe(tree.this, tree.expression)
            case exp.Like() | exp.ILike() | exp.Escape() | exp.StartsWith():
                return self.like(tree)
        comparison = _comparisons().get(type(tree))
        if comparison is not None:
            return self.comparison(comparison, tree.this, tree.expression)
        return self.computed(tree)

    def needs_rows(self, tree: exp.Expr) -> bool:
        """Tell whether a condition is about something else than columns and literals."""
        from sqlglot import exp

        comparisons = _comparisons()
        match tree:
            case exp.Is():
                return not _is_column(tree.this)
            case exp.In():
                return not (_is_column(tree.this) and all(map(_is_value, tree.expressions)))
            case exp.Between():
                return not (_is_column(tree.this) and _is_value(tree.args["low"]) and _is_value(tree.args["high"]))
            case exp.NullSafeEQ():
                sides = _is_column(tree.this), _is_column(tree.expression)
                return sides == (True, True) or not self._are_plain(tree)
            case exp.StartsWith() | exp.Like() | exp.ILike():
                return not _is_column(tree.this)
            case exp.Escape():
                return self.needs_rows(tree.this)
        return type(tree) in comparisons and not self._are_plain(tree)

    def _are_plain(self, tree: exp.Expr) -> bool:
        """Tell whether both sides of a comparison are columns or literals, one a column at least."""
        sides = (tree.this, tree.expression)
        return any(map(_is_column, sides)) and all(_is_column(side) or _is_value(side) for side in sides)

    def computed(self, tree: exp.Expr) -> Node:
        """Translate a condition that is calculated for each row."""
        from replitree.storage.sql.condition_parser import computed_node
        from replitree.storage.sql.expression_parser import parse_condition

        return computed_node(parse_condition(tree, self._text, self._definition), self._definition)

    # --- the kinds of conditions ----------------------------------------------------------------------------------------

    def comparison(self, op: Operator, left: exp.Expr, right: exp.Expr) -> Node:
        if not _is_column(left):
            # The literal stands on the right from here on: `1 < k` is `k > 1`.
            left, right, op = right, left, FLIPPED[op]
        column = self.column(left)
        if _is_column(right):
            return self.columns(column, op, self.column(right))
        return self.compare(op, column, self.value(right))

    def compare(self, op: Operator, column: ColumnRef, value: _Value) -> Node:
        if value is None:
            return Literal(None)
        try:
            return coerce(column, op, value)
        except (NoMeaningError, ValueError) as error:
            name = ".".join(column.path)
            shown = repr(value) if isinstance(value, str | bytes) else str(value)
            raise self.error(f"column {name} is {spark_type(column.type)}, and {shown} is not; {error}") from error

    def columns(self, left: ColumnRef, op: Operator, right: ColumnRef) -> Node:
        if is_nested(left.type) or not (left.type == right.type or _are_comparable_numbers(left.type, right.type)):
            types = f"{spark_type(left.type)} and {spark_type(right.type)}"
            raise self.error(f"columns of the types {types} don't compare here; use `to_df(spark)`")
        return CompareColumns(left, op, right)

    def null_safe(self, left: exp.Expr, right: exp.Expr) -> Node:
        if not _is_column(left):
            left, right = right, left
        column, value = self.column(left), self.value(right)
        if value is None:
            return IsNull(column)
        return And((Not(IsNull(column)), self.compare(Operator.EQ, column, value)))

    def is_(self, tree: exp.Is) -> Node:
        from sqlglot import exp

        if isinstance(tree.expression, exp.Null):
            return IsNull(self.column(tree.this))
        if isinstance(tree.expression, exp.Boolean) and _is_column(tree.this):
            column = self.column(tree.this)
            return And((Not(IsNull(column)), self.compare(Operator.EQ, column, bool(tree.expression.this))))
        raise self.error("IS takes NULL, TRUE or FALSE")

    def one_of(self, tree: exp.In) -> Node:
        if not tree.expressions:
            raise self.error("IN takes a list of values")
        column = self.column(tree.this)
        nodes = [self.compare(Operator.EQ, column, self.value(value)) for value in tree.expressions]
        values = tuple(dict.fromkeys(node.value for node in nodes if isinstance(node, Compare)))
        has_nan = any(isinstance(value, float) and math.isnan(value) for value in values)
        if pa.types.is_floating(column.type) or has_nan:
            return Or(tuple(nodes))  # NaN, and 0.0 = -0.0
        found: list[Node] = [OneOf(column, values) if values else Always(column, truth=False)]
        if any(isinstance(node, Literal) for node in nodes):
            found.append(Literal(None))
        return Or(tuple(found))

    def between(self, tree: exp.Between) -> Node:
        column = self.column(tree.this)
        low, high = self.value(tree.args["low"]), self.value(tree.args["high"])
        return And((self.compare(Operator.GE, column, low), self.compare(Operator.LE, column, high)))

    def like(self, tree: exp.Expr) -> Node:
        from sqlglot import exp

        self.check(tree)
        if isinstance(tree, exp.Escape):
            if self.value(tree.expression) != "\\":
                raise self.error("LIKE takes the backslash as escape only")
            return self.like(tree.this)
        column, pattern = self.column(tree.this), self.value(tree.expression)
        if not pa.types.is_string(column.type) or not isinstance(pattern, str):
            raise self.error("LIKE takes a string column and a string")
        # The text is plain: its percent signs match themselves.
        if isinstance(tree, exp.StartsWith):
            return Like(column, "".join(f"\\{c}" if c in "\\%_" else c for c in pattern) + "%")
        if isinstance(tree, exp.Like | exp.ILike):
            found = Like(column, pattern, ignore_case=isinstance(tree, exp.ILike))
            return Not(found) if tree.args.get("negate") else found
        raise self.error("LIKE takes a column and a pattern")

    # --- columns and values ---------------------------------------------------------------------------------------------

    def column(self, tree: exp.Expr) -> ColumnRef:
        from sqlglot import exp

        if not isinstance(tree, exp.Column | exp.Dot):
            raise self.error(f"expected a column, found {text_of(tree)[:80]!r}")
        self.check(tree)
        names = [part.name for part in tree.parts]
        known = (column for column in self._definition.columns if column.name.lower() == names[0].lower())
        # The definition raises when it has no such column, and names those that it has.
        first = next(known, None) or self._definition.column(names[0])
        path, found = [first.name], first.arrow_type
        for name in names[1:]:
            fields = list(found) if pa.types.is_struct(found) else []
            field = next((field for field in fields if field.name.lower() == name.lower()), None)
            if field is None:
                raise self.error(f"{'.'.join(path)} has no field {name!r}")
            path.append(field.name)
            found = field.type
        return ColumnRef(tuple(path), found)

    def value(self, tree: exp.Expr) -> _Value:
        from sqlglot import exp

        self.check(tree)
        match tree:
            case exp.Paren():
                return self.value(tree.this)
            case exp.Literal() | exp.RawString():
                return tree.this if isinstance(tree, exp.RawString) or tree.is_string else self._number(tree.this)
            case exp.Neg():
                value = self.value(tree.this)
                if isinstance(value, Decimal | float):
                    return -value
                raise self.error(f"{value!r} has no negative")
            case exp.Boolean():
                return bool(tree.this)
            case exp.Null():
                return None
            case exp.HexString():
                try:
                    return bytes.fromhex(tree.this)
                except ValueError as error:
                    raise self.error(f"X'{tree.this[:80]}' has no even number of hexadecimal digits") from error
            case exp.Cast():
                return self._cast(self.value(tree.this), tree.to)
            case exp.Concat() if all(isinstance(part, exp.Literal) for part in tree.expressions):
                return "".join(part.this for part in tree.expressions)
        raise self.error(f"expected a value, found {text_of(tree)[:80]!r}")

    def _number(self, text: str) -> Decimal:
        try:
            value = Decimal(text)
        except InvalidOperation as error:
            raise self.error(f"{text!r} is not a number") from error
        # A fraction of 10^1000000 would take a megabyte, and a comparison minutes.
        if value.is_finite() and abs(value.adjusted()) > EXPONENT_MAX:
            raise self.error(f"{text} is beyond every column")
        return value

    def _cast(self, value: _Value, target: exp.DataType) -> _Value:
        from sqlglot import exp

        if value is None:
            return None
        kind = target.this
        try:
            if kind == exp.DataType.Type.DATE:
                return parse_date(value)
            if kind in exp.DataType.TEMPORAL_TYPES:
                return parse_moment(value)
            if kind in exp.DataType.REAL_TYPES - {exp.DataType.Type.DECIMAL}:
                return float(value) if isinstance(value, str | Decimal) else self._uncast(value, target)
            if kind in exp.DataType.NUMERIC_TYPES:
                return self._number(str(value)) if isinstance(value, str | Decimal) else self._uncast(value, target)
            if kind in exp.DataType.TEXT_TYPES and isinstance(value, str):
                return value
        except ValueError as error:
            raise self.error(str(error)) from error
        return self._uncast(value, target)

    def _uncast(self, value: _Value, target: exp.DataType) -> _Value:
        raise self.error(f"a cast of {value!r} to {text_of(target)} is not understood here")


_TWO = frozenset({"this", "expression"})
_PARTS: dict[str, frozenset[str]] = {
    **dict.fromkeys(("Paren", "Not", "Neg", "Boolean", "HexString", "RawString"), frozenset({"this"})),
    **dict.fromkeys(("And", "Or", "EQ", "NEQ", "LT", "LTE", "GT", "GTE", "NullSafeEQ", "Is", "Dot"), _TWO),
    **dict.fromkeys(("Escape", "StartsWith"), _TWO),
    **dict.fromkeys(("Like", "ILike"), _TWO | {"negate"}),
    **dict.fromkeys(("Cast", "TryCast"), frozenset({"this", "to"})),
    "Between": frozenset({"this", "low", "high"}),
    "Column": frozenset({"this", "table", "db", "catalog"}),
    "Concat": frozenset({"expressions"}),
    "In": frozenset({"this", "expressions"}),
    "Literal": frozenset({"this", "is_string"}),
}
"""The parts of each node of sqlglot's that are looked at."""


def _comparisons() -> dict[type, Operator]:
    from sqlglot import exp

    return {
        exp.EQ: Operator.EQ,
        exp.NEQ: Operator.NE,
        exp.LT: Operator.LT,
        exp.LTE: Operator.LE,
        exp.GT: Operator.GT,
        exp.GTE: Operator.GE,
    }


def _chain(tree: exp.Expr, kind: type) -> Iterable[exp.Expr]:
    """Give the parts of ``a AND b AND c``, which the parser nests to the left, without recursion."""
    parts: list[exp.Expr] = []
    while isinstance(tree, kind):
        parts.append(tree.expression)
        tree = tree.this
    return (tree, *reversed(parts))


def _is_column(tree: exp.Expr) -> bool:
    from sqlglot import exp

    return isinstance(tree, exp.Column | exp.Dot)


def _is_value(tree: exp.Expr) -> bool:
    """Tell whether this is a literal, perhaps with a sign or a cast."""
    from sqlglot import exp

    match tree:
        case exp.Paren() | exp.Neg() | exp.Cast():
            return _is_value(tree.this)
        case exp.Concat():
            return all(isinstance(part, exp.Literal) for part in tree.expressions)
    return isinstance(tree, exp.Literal | exp.RawString | exp.HexString | exp.Boolean | exp.Null)


def _are_comparable_numbers(one: pa.DataType, other: pa.DataType) -> bool:
    """Tell whether two kinds of numbers have a common type: a double, or a decimal with enough digits."""
    kinds = pa.types
    if kinds.is_floating(one) or kinds.is_floating(other):
        return all(kinds.is_floating(t) or _digits(t) is not None for t in (one, other))
    digits = _digits(one), _digits(other)
    if digits[0] is None or digits[1] is None:
        return False
    return max(digits[0][0], digits[1][0]) + max(digits[0][1], digits[1][1]) <= DECIMAL_PRECISION_MAX


def _digits(arrow: pa.DataType) -> tuple[int, int] | None:
    """Give the digits before and after the point of an integer or decimal type."""
    if pa.types.is_decimal(arrow):
        return arrow.precision - arrow.scale, arrow.scale
    return (19, 0) if pa.types.is_integer(arrow) else None
