"""Predicates: which rows a reader wants, and which parts can't have any.

Guarantees: `Predicate.to_arrow` keeps exactly the rows that Spark's ``WHERE`` keeps (null is not true; NaN equals itself and is
above every number; a timestamp without a zone, compared with a column that has one, is UTC).  `Predicate.may_match` is False
only when the statistics prove that no row of the part is wanted: what it can't judge never prunes.

A predicate is a tree of a few kinds of nodes.  Comparisons with literals have been made exact by then: the literal has the
column's type, and a comparison that the column's type decides alone is an `Always`.

Pruning computes which of the three truth values a node can have for some row of a part, as a set of bits, from the leaves up.
`NOT`, `AND` and `OR` of such sets take every combination, so the set never misses one: the result may be too large, which only
costs a read.

Arithmetic and functions are in `Computed` nodes: an expression (`replitree.storage.sql.expression`) that is calculated for the
rows.  No statistics are known of its values, so it never prunes, and Arrow's scanner can't calculate it as Spark does:
`Predicate.split` gives what the scanner may filter by, and what is left to be calculated.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum, IntFlag
from functools import reduce
from itertools import product
from typing import TYPE_CHECKING, Any, TypeAlias, assert_never

import pyarrow as pa

from replitree.storage.parts.manifest import ColumnStats, PartManifest
from replitree.storage.parts.statistics import lower_bound, upper_bound
from replitree.storage.schema.bounds import Bound
from replitree.storage.schema.columns import arrow_scalar
from replitree.storage.schema.definition import TableDefinition, TransformKind

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from replitree.storage.schema.layout import Layout
    from replitree.storage.sql.expression import Expression


class Operator(Enum):
    """A comparison."""

    EQ = "="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="


FLIPPED = {
    Operator.EQ: Operator.EQ,
    Operator.NE: Operator.NE,
    Operator.LT: Operator.GT,
    Operator.LE: Operator.GE,
    Operator.GT: Operator.LT,
    Operator.GE: Operator.LE,
}
"""The comparison with its sides exchanged."""

_FUNCTIONS: dict[Operator, Callable[[Any, Any], Any]] = {
    Operator.EQ: operator.eq,
    Operator.NE: operator.ne,
    Operator.LT: operator.lt,
    Operator.LE: operator.le,
    Operator.GT: operator.gt,
    Operator.GE: operator.ge,
}


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """A column, or a field inside a struct: names from the outside in, and the type found there."""

    path: tuple[str, ...]
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Compare:
    """A column compared with a value of its own kind."""

    column: ColumnRef
    operator: Operator
    value: Bound


@dataclass(frozen=True, slots=True)
class CompareColumns:
    """Two columns compared with each other."""

    left: ColumnRef
    operator: Operator
    right: ColumnRef


@dataclass(frozen=True, slots=True)
class OneOf:
    """A column equals one of the values."""

    column: ColumnRef
    values: tuple[Bound, ...]


@dataclass(frozen=True, slots=True)
class Like:
    """A string matches SQL's pattern, with the backslash as escape."""

    column: ColumnRef
    pattern: str
    ignore_case: bool = False


@dataclass(frozen=True, slots=True)
class IsNull:
    """A column has no value."""

    column: ColumnRef


@dataclass(frozen=True, slots=True)
class Always:
    """Decided by the column's type: `truth` where the column has a value, null where it has none."""

    column: ColumnRef
    truth: bool


@dataclass(frozen=True, slots=True)
class Literal:
    """The same for every row."""

    truth: bool | None


@dataclass(frozen=True, slots=True)
class Computed:
    """A boolean expression, calculated for each row; `columns` are those that it looks at."""

    expression: Expression
    columns: tuple[ColumnRef, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite; null stays null."""

    inner: Node


@dataclass(frozen=True, slots=True)
class And:
    """All of these."""

    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """One of these at least."""

    nodes: tuple[Node, ...]


Node: TypeAlias = "Compare | CompareColumns | OneOf | Like | IsNull | Always | Literal | Computed | Not | And | Or"


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition that `parse_predicate` has read from `text`."""

    text: str
    node: Node
    definition: TableDefinition

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the table's columns that it looks at, in the table's order."""
        used = {ref.path[0] for ref in _refs(self.node)}
        return tuple(column.name for column in self.definition.columns if column.name in used)

    def to_arrow(self, layout: Layout | None = None) -> pc.Expression:
        """Give the filter for Arrow's dataset scanner.  The predicate has no `Computed` node: see `split`.

        Parameters
        ----------
        layout
            Of the files that are scanned, see `replitree.storage.schema.layout`; by default they have the table's columns.
        """
        return _Filter(layout or ()).of(self.node)

    @property
    def is_computed(self) -> bool:
        """Whether something of it has to be calculated for the rows."""
        return is_computed(self.node)

    def split(self) -> tuple[Predicate | None, Predicate | None]:
        """Return what Arrow's scanner can filter by, and what has to be calculated for the rows that are left.

        A row is wanted when both are true.
        """
        if not self.is_computed:
            return self, None
        nodes = self.node.nodes if isinstance(self.node, And) else (self.node,)
        # Only the operands of the outermost AND: under OR or NOT a
        # filter by one side would drop rows that the other side wants.
        plain = tuple(node for node in nodes if not is_computed(node))
        computed = tuple(node for node in nodes if is_computed(node))
        return replace(self, node=And(plain)) if plain else None, replace(self, node=And(computed))

    def may_match(self, manifest: PartManifest) -> bool:
        """Tell whether the part can have a row that is wanted; False is certain."""
        # Statistics of no rows prove nothing, and an empty part has none to show.
        return manifest.rows > 0 and Outcomes.TRUE in _Pruner(manifest, self.definition).outcomes(self.node)

    def must_match(self, manifest: PartManifest) -> bool:
        """Tell whether every row of the part is wanted; True is certain."""
        return _Pruner(manifest, self.definition).outcomes(self.node) == Outcomes.TRUE


def is_computed(node: Node) -> bool:
    """Whether a node, or one inside of it, has to be calculated for the rows."""
    match node:
        case Computed():
            return True
        case Not(inner):
            return is_computed(inner)
        case And(nodes) | Or(nodes):
            return any(map(is_computed, nodes))
    return False


def _refs(node: Node) -> Iterator[ColumnRef]:
    match node:
        case Compare(column) | OneOf(column) | Like(column) | IsNull(column) | Always(column):
            yield column
        case CompareColumns(left, _, right):
            yield from (left, right)
        case Computed(_, columns):
            yield from columns
        case Literal():
            return
        case Not(inner):
            yield from _refs(inner)
        case And(nodes) | Or(nodes):
            for inner in nodes:
                yield from _refs(inner)
        case _:
            assert_never(node)


# --- to Arrow -------------------------------------------------------------------------------------------------------------


class _Filter:
    """Writes nodes as expressions over the columns of files."""

    def __init__(self, layout: Layout) -> None:
        self._origins = {origin.column.name: origin for origin in layout}

    def of(self, node: Node) -> pc.Expression:
        import pyarrow.compute as pc

        match node:
            case Compare(column, op, value):
                return _compare_arrow(self.field(column), column.type, op, value)
            case CompareColumns(left, op, right):
                return self.compare_columns(left, op, right)
            case OneOf(column, values):
                # `isin` calls null "not in" the list; SQL calls it null.
                wanted = pa.array([arrow_scalar(column.type, value).as_py() for value in values], column.type)
                field = self.field(column)
                return pc.if_else(field.is_valid(), field.isin(wanted), _null())
            case Like(column, pattern, ignore_case):
                return pc.match_like(self.field(column), pattern, ignore_case=ignore_case)
            case IsNull(column):
                return self.field(column).is_null()
            case Always(column, truth):
                return pc.if_else(self.field(column).is_valid(), pc.scalar(truth), _null())
            case Literal(truth):
                return pc.scalar(pa.scalar(truth, pa.bool_()))
            case Computed():
                raise AssertionError("an expression is calculated for rows, not filtered by")
            case Not(inner):
                return ~self.of(inner)
            case And(nodes):
                return reduce(operator.and_, map(self.of, nodes))
            case Or(nodes):
                return reduce(operator.or_, map(self.of, nodes))
            case _:
                assert_never(node)

    def field(self, column: ColumnRef) -> pc.Expression:
        """Give what the files have for a column."""
        import pyarrow.compute as pc

        origin = self._origins.get(column.path[0])
        return pc.field(*column.path) if origin is None else origin.expression(column.path[1:])

    def compare_columns(self, left: ColumnRef, op: Operator, right: ColumnRef) -> pc.Expression:
        """Compare two columns; with NaN, three numbers decide: whether each is NaN, and how the others compare."""
        import pyarrow.compute as pc

        a, b = self.field(left), self.field(right)
        if not (pa.types.is_floating(left.type) or pa.types.is_floating(right.type)):
            return _FUNCTIONS[op](a, b)
        # Both as doubles, rounded where they have to be: Spark rounds as well.
        plain = _FUNCTIONS[op](a.cast(pa.float64(), safe=False), b.cast(pa.float64(), safe=False))
        a_nan, b_nan = (
            pc.is_nan(field) if pa.types.is_floating(ref.type) else pc.scalar(False)
            for ref, field in ((left, a), (right, b))
        )
        with_nan = {
            Operator.EQ: a_nan & b_nan,
            Operator.NE: ~(a_nan & b_nan),
            Operator.LT: b_nan & ~a_nan,
            Operator.LE: b_nan,
            Operator.GT: a_nan & ~b_nan,
            Operator.GE: a_nan,
        }[op]
        either = pc.if_else(a_nan | b_nan, with_nan, plain)
        return pc.if_else(a.is_valid() & b.is_valid(), either, _null())


def _null() -> pc.Expression:
    import pyarrow.compute as pc

    return pc.scalar(pa.scalar(None, pa.bool_()))


def _compare_arrow(field: pc.Expression, arrow: pa.DataType, op: Operator, value: Bound) -> pc.Expression:
    import pyarrow.compute as pc

    if not pa.types.is_floating(arrow):
        return _FUNCTIONS[op](field, pc.scalar(arrow_scalar(arrow, value)))
    assert isinstance(value, float)
    is_nan = pc.is_nan(field)
    # Arrow's comparisons with NaN are all false.
    if math.isnan(value):  # NaN, which is above every number and equals itself
        truths = {Operator.EQ: is_nan, Operator.NE: ~is_nan, Operator.LT: ~is_nan, Operator.GE: is_nan}
        always = pc.if_else(field.is_valid(), pc.scalar(op is Operator.LE), _null())
        return truths.get(op, always)
    plain = _FUNCTIONS[op](field, pc.scalar(pa.scalar(value, pa.float64())))
    return plain | is_nan if op in (Operator.GT, Operator.GE) else plain


# --- pruning ----------------------------------------------------------------------------------------------------------------


class Outcomes(IntFlag):
    """Which truth values a node can have for some row of a part."""

    NONE = 0
    TRUE = 1
    FALSE = 2
    NULL = 4
    ANY = 7


class _Pruner:
    """Judges nodes by one part's manifest."""

    def __init__(self, manifest: PartManifest, definition: TableDefinition) -> None:
        self._manifest = manifest
        self._definition = definition

    def outcomes(self, node: Node) -> Outcomes:
        match node:
            case Compare(column, op, value):
                return self._compare(column, op, value)
            case OneOf(column, values):
                return _combined(Outcomes.FALSE, (self._compare(column, Operator.EQ, v) for v in values), _or)
            case Like(column, pattern, ignore_case):
                return self._like(column, pattern, ignore_case)
            case IsNull(column):
                found = self._with_nulls(column, Outcomes.FALSE)
                return (Outcomes.TRUE if Outcomes.NULL in found else Outcomes.NONE) | found & Outcomes.FALSE
            case Always(column, truth):
                return self._with_nulls(column, Outcomes.TRUE if truth else Outcomes.FALSE)
            case Literal(truth):
                return Outcomes.NULL if truth is None else Outcomes.TRUE if truth else Outcomes.FALSE
            case CompareColumns() | Computed():
                return Outcomes.ANY
            case Not(inner):
                return reduce(
                    operator.or_,
                    (_bit(None if t is None else not t) for t in _values(self.outcomes(inner))),
                    Outcomes.NONE,
                )
            case And(nodes):
                return _combined(Outcomes.TRUE, map(self.outcomes, nodes), _and)
            case Or(nodes):
                return _combined(Outcomes.FALSE, map(self.outcomes, nodes), _or)
            case _:
                assert_never(node)

    def _stats(self, column: ColumnRef) -> ColumnStats | None:
        """Give what is known of a column; nothing is known of fields inside structs."""
        return column_stats(self._manifest, self._definition, column.path[0]) if len(column.path) == 1 else None

    def _with_nulls(self, column: ColumnRef, known: Outcomes) -> Outcomes:
        """Add null, or leave only null, as the column's count of nulls says."""
        stats = self._stats(column)
        if stats is None:
            return known | Outcomes.NULL
        # Nulls only: no comparison is true or false for any row.
        if stats.nulls == self._manifest.rows:
            return Outcomes.NULL
        return known | Outcomes.NULL if stats.nulls else known

    def _compare(self, column: ColumnRef, op: Operator, value: Bound) -> Outcomes:
        stats = self._stats(column)
        known = Outcomes.TRUE | Outcomes.FALSE
        if stats is not None:
            known = interval_outcomes(op, value, stats.low, stats.high)
        # `bucket` does not keep the order of values: it only tells equal ones from others.
        if op is Operator.EQ and self._in_another_bucket(column, value):
            known &= Outcomes.FALSE
        return self._with_nulls(column, known)

    def _in_another_bucket(self, column: ColumnRef, value: Bound) -> bool:
        transforms = self._definition.partition_by
        if len(column.path) > 1 or len(self._manifest.partition_values) != len(transforms):
            return False
        for transform, bucket in zip(transforms, self._manifest.partition_values, strict=True):
            if transform.kind is TransformKind.BUCKET and transform.column == column.path[0] and bucket is not None:
                from replitree.storage.schema.transforms import apply_transform

                one = arrow_scalar(column.type, value)
                if apply_transform(transform, pa.array([one.as_py()], column.type))[0].as_py() != bucket:
                    return True
        return False

    def _like(self, column: ColumnRef, pattern: str, ignore_case: bool) -> Outcomes:
        """Judge a pattern by the range of strings that its plain beginning leaves."""
        prefix = "" if ignore_case else like_prefix(pattern)
        if not prefix:
            return self._with_nulls(column, Outcomes.TRUE | Outcomes.FALSE)
        found = self.outcomes(And(tuple(prefix_range(column, prefix))))
        # A string in the range need not match the rest of the pattern.
        return found | Outcomes.FALSE if Outcomes.TRUE in found else found


def column_stats(manifest: PartManifest, definition: TableDefinition, name: str) -> ColumnStats | None:
    """Give the statistics of a column as readers see it in a part; None: there are none.

    Parameters
    ----------
    manifest
        Of the part; it names columns as files do.
    definition
        The table.
    name
        The column's exact name.
    """
    if not definition.history:
        return manifest.columns.get(name)
    found = definition.column(name)
    if found.is_in(manifest.schema_version):
        return manifest.columns.get(found.stored_name)
    # The part is older than the column: every row shows the default that it was added with, or null.
    if not isinstance(found.initial, bool | int | float | str):
        return ColumnStats(found.type, nulls=manifest.rows)
    return ColumnStats(found.type, found.initial, found.initial)


def interval_outcomes(op: Operator, value: Bound, low: Bound | None, high: Bound | None) -> Outcomes:
    """Tell how values between two bounds (None: not known) can compare with a value."""
    # NaN is above every number in SQL, and Python's comparisons deny it.
    if isinstance(value, float) and math.isnan(value):
        return Outcomes.TRUE | Outcomes.FALSE
    try:
        below = low is None or low < value  # type: ignore[operator]
        above = high is None or high > value  # type: ignore[operator]
        reaches = (low is None or low <= value) and (high is None or high >= value)  # type: ignore[operator]
    # Statistics of another kind of type, from before the column was changed.
    except TypeError:
        return Outcomes.TRUE | Outcomes.FALSE
    can = {
        Operator.EQ: (reaches, below or above),
        Operator.NE: (below or above, reaches),
        Operator.LT: (below, reaches or above),
        Operator.LE: (below or reaches, above),
        Operator.GT: (above, reaches or below),
        Operator.GE: (above or reaches, below),
    }
    true, false = can[op]
    return (Outcomes.TRUE if true else Outcomes.NONE) | (Outcomes.FALSE if false else Outcomes.NONE)


def like_prefix(pattern: str) -> str:
    r"""Give the plain text that a pattern begins with.

    Examples
    --------
    >>> like_prefix(r"a\_b_c%")
    'a_b'
    """
    prefix, at = "", 0
    while at < len(pattern) and pattern[at] not in "%_":
        if pattern[at] == "\\":
            at += 1
            if at == len(pattern):
                break
        prefix += pattern[at]
        at += 1
    return prefix


def prefix_range(column: ColumnRef, prefix: str) -> list[Compare]:
    """Give the range of strings that begin with a prefix, or a wider one."""
    short = lower_bound(prefix)
    # The highest string that begins with the prefix; the manifest's bounds are cut at 64 characters as well.
    end = upper_bound(prefix + "\U0010ffff" * 64)
    assert isinstance(short, str)
    found = [Compare(column, Operator.GE, short)]
    if isinstance(end, str):
        found.append(Compare(column, Operator.LE, end))
    return found


_TRUTH = ((Outcomes.TRUE, True), (Outcomes.FALSE, False), (Outcomes.NULL, None))


def _values(outcomes: Outcomes) -> list[bool | None]:
    return [truth for bit, truth in _TRUTH if bit in outcomes]


def _bit(truth: bool | None) -> Outcomes:
    return Outcomes.NULL if truth is None else Outcomes.TRUE if truth else Outcomes.FALSE


def _and(a: bool | None, b: bool | None) -> bool | None:
    return False if a is False or b is False else None if a is None or b is None else True


def _or(a: bool | None, b: bool | None) -> bool | None:
    return True if a is True or b is True else None if a is None or b is None else False


def _combined(
    start: Outcomes, many: Iterable[Outcomes], function: Callable[[bool | None, bool | None], bool | None]
) -> Outcomes:
    found = start
    for outcomes in many:
        pairs = product(_values(found), _values(outcomes))
        found = reduce(operator.or_, (_bit(function(a, b)) for a, b in pairs), Outcomes.NONE)
    return found
