"""Materialised views: what a view makes of the rows of an insert, and everything that is checked before a table may have it.

A `ViewCommand` gives columns of a target the values of expressions over rows of a source, for the rows for which a condition
is true.  With ``group_by`` the rows with equal values of these columns become one, and each other column is an aggregate:
``sum(x)``, ``count(*)``, ``count(x)``, ``min(x)`` or ``max(x)``.  Expressions and conditions are those of mutations
(`replitree.storage.sql.mutation`): the same on every replica, with the values that Spark gives.

Guarantees: `decode_view(v.encode()) == v`.  A view that `check_view` lets pass can be computed for all rows of the source,
unless an expression has no value for one of them (a number that does not fit, a null where none may be): then `ViewFailed`, and
the insert is refused.  `regrouped` of the results of some batches of rows is the result of all of them.

What the target makes of the rows is for its policy to say, so the policy has to fit (`_check_policy`):

==============================  ============================================================================================
``plain``                       any view; with ``group_by`` each insert adds its own group, and a query adds them up
``summing``                     ``group_by`` the whole order key; sums and counts go into columns that the policy adds
``replacing``                   no ``group_by``: an aggregate of one insert would replace that of all inserts before it
==============================  ============================================================================================

Absent on purpose: joins, subqueries, aggregates of several inserts, and everything that depends on time or chance.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec
import pyarrow as pa

from replitree.decoding import json_decoder
from replitree.errors import BadInput
from replitree.protocol.core.views import ViewValue
from replitree.storage.files.formats import decode_known
from replitree.storage.parts.conform import conform
from replitree.storage.schema.columns import Column
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.schema.merge_policy import PolicyKind
from replitree.storage.sql.expression import Expression, columns_of, evaluate, where_true
from replitree.storage.sql.expression_kernels import NoValueError
from replitree.storage.sql.expression_parser import parse_assignment
from replitree.storage.sql.mutation import refuse_unusable
from replitree.storage.sql.predicate import Predicate
from replitree.storage.sql.predicate_parser import parse_predicate

FORMAT = 1
VIEW_BYTES_MAX = 32 << 10
"""Bytes of a view: all views of a table stand in one node, which takes 1 MB at most."""

COLUMNS_MAX = 1000

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}")
_AGGREGATE = re.compile(r"\s*(sum|count|min|max)\s*\((.*)\)\s*", re.IGNORECASE | re.DOTALL)
_ARROW = {"sum": "sum", "count": "sum", "min": "min", "max": "max"}
"""How the values of an aggregate are combined: a count is the sum of the rows that count."""


class ViewFailed(BadInput):
    """A row has no value for an expression of a materialised view: the insert is refused, and changes no table."""


class ViewCommand(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a view makes of the rows of an insert.

    Attributes
    ----------
    select
        Column of the target and SQL of its value, in the order of the target's columns; columns that are not there get their
        default.
    where
        SQL of the condition; empty: all rows.
    group_by
        Columns of the target that make groups; empty: each row stays a row.
    """

    format: int
    select: tuple[tuple[str, str], ...]
    where: str = ""
    group_by: tuple[str, ...] = ()

    def encode(self) -> str:
        """Text for a node and a log entry; equal views have equal texts."""
        return _encoder.encode(self).decode()


_encoder = msgspec.json.Encoder(order="deterministic")
_decoder = json_decoder(ViewCommand)


def decode_view(text: str) -> ViewCommand:
    """Read a view.

    Raises
    ------
    UnsupportedFormat
        A newer replitree wrote it, or none did.
    """
    return decode_known(_decoder, text, "a materialised view", (FORMAT,))


def check_view_name(name: str) -> None:
    """Raise `BadInput` unless a view can have this name."""
    if not _NAME.fullmatch(name):
        raise BadInput(f"{name!r} can't be a view's name: use letters, digits and _, a letter first, at most 100")


@dataclass(frozen=True, slots=True)
class _Selected:
    """A column of the target, and what it gets: an expression, and with `combine` what is made of those of a group."""

    column: Column
    expression: Expression
    combine: str = ""


@dataclass(frozen=True, slots=True)
class CheckedView:
    """A view that was read with the definitions of its tables, ready to be computed."""

    command: ViewCommand
    source: TableDefinition
    target: TableDefinition
    selected: tuple[_Selected, ...]
    predicate: Predicate | None

    @property
    def columns(self) -> frozenset[str]:
        """The columns of the source that it reads."""
        read = frozenset(name for each in self.selected for name in columns_of(each.expression))
        return read if self.predicate is None else read | frozenset(self.predicate.columns)

    def rows(self, rows: pa.Table) -> pa.Table:
        """Compute the view for some rows of the source, which have its columns.

        Returns
        -------
        pa.Table
            Rows of the target, grouped.

        Raises
        ------
        ViewFailed
            An expression has no value for a row, or null for a column that may not be null.
        """
        computed = [self._computed(batch) for batch in rows.combine_chunks().to_batches()]
        schema = pa.schema([(each.column.name, each.column.arrow_type) for each in self.selected])
        return self.regrouped(pa.Table.from_batches(computed, schema))

    def regrouped(self, rows: pa.Table) -> pa.Table:
        """Group rows that `rows` or this has made; they get the target's columns.  Raises as `rows`."""
        if self.command.group_by and rows.num_rows:
            keys = [each.column.name for each in self.selected if not each.combine]
            combined = [(each.column.name, each.combine) for each in self.selected if each.combine]
            try:
                grouped = rows.group_by(keys, use_threads=False).aggregate(combined)
                # A sum of whole numbers is one of 64 bits: what does not fit into its column is refused by the cast.
                rows = pa.table(
                    {
                        each.column.name: grouped.column(
                            f"{each.column.name}_{each.combine}" if each.combine else each.column.name
                        ).cast(each.column.arrow_type)
                        for each in self.selected
                    }
                )
            except pa.ArrowException as error:
                raise ViewFailed(f"a materialised view can't group its rows: {error}") from error
        return conform(rows, self.target, sound=True)

    def _computed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        try:
            if self.predicate is not None:
                rows = rows.filter(pa.array(where_true(self.predicate, rows)))
            values = [evaluate(each.expression, rows) for each in self.selected]
        except NoValueError as error:
            raise ViewFailed(f"a materialised view into {self.target.name} has no value for a row: {error}") from error
        return pa.RecordBatch.from_arrays(values, names=[each.column.name for each in self.selected])


@lru_cache(maxsize=64)
def check_view(command: ViewCommand, source: TableDefinition, target: TableDefinition) -> CheckedView:
    """Read a view with the definitions of its tables.

    Raises
    ------
    BadInput
        Something of it can't be used: a name, a type, a function, or the target's policy; says what to use instead.
    """
    size = len(command.encode())
    if size > VIEW_BYTES_MAX:
        raise BadInput(f"a materialised view may have {VIEW_BYTES_MAX:,} bytes; this has {size:,}")
    if not 1 <= len(command.select) <= COLUMNS_MAX:
        raise BadInput(
            "a materialised view selects at least one column: say which column of the target gets which value"
        )
    names = [name for name, _ in command.select]
    if names != sorted(set(names), key=target.arrow_schema.names.index if set(names) <= _names(target) else None):
        unknown = sorted(set(names) - _names(target))
        problem = f"table {target.name} has no column {unknown[0]!r}" if unknown else "a column is selected twice"
        raise BadInput(f"{problem}; its columns are {', '.join(target.arrow_schema.names[:20])}")
    missing = [
        column.name
        for column in target.columns
        if column.name not in names and not column.nullable and not column.has_default
    ]
    if missing:
        raise BadInput(f"column {missing[0]!r} of {target.name} may not be null: select a value for it")
    unknown = sorted(set(command.group_by) - set(names))
    if unknown:
        raise BadInput(f"group_by names {unknown[0]!r}, which is no selected column: give a column of the target")
    predicate = None
    if command.where:
        refuse_unusable(command.where)
        predicate = parse_predicate(command.where, source, recorded=True)
    selected = tuple(_selected(name, text, command, source, target) for name, text in command.select)
    checked = CheckedView(command, source, target, selected, predicate)
    _check_policy(checked)
    try:
        # Of no rows: what the kernels can't calculate with these types shows here, and not in an insert.
        checked.rows(source.arrow_schema.empty_table())
    except (pa.ArrowException, RecursionError) as error:
        raise BadInput(f"the materialised view can't be calculated: {error}; use cast to narrower types") from error
    return checked


def new_view(
    select: Mapping[str, str] | Sequence[str],
    where: str,
    group_by: Sequence[str],
    source: TableDefinition,
    target: TableDefinition,
) -> CheckedView:
    """Make a view of what a client asks: its columns are put into the target's order.  Raises as `check_view`."""
    wanted = dict(select) if isinstance(select, Mapping) else {name: name for name in select}
    unknown = sorted(set(wanted) - _names(target))
    if unknown:
        columns = ", ".join(target.arrow_schema.names[:20])
        raise BadInput(f"table {target.name} has no column {unknown[0]!r}; its columns are {columns}")
    ordered = tuple((name, wanted[name]) for name in target.arrow_schema.names if name in wanted)
    grouped = tuple(name for name in target.arrow_schema.names if name in set(group_by))
    unknown = sorted(set(group_by) - set(grouped))
    if unknown:
        raise BadInput(f"group_by names {unknown[0]!r}, which is no selected column: give a column of the target")
    return check_view(ViewCommand(format=FORMAT, select=ordered, where=where, group_by=grouped), source, target)


def broken_by(command: str, before: TableDefinition, after: TableDefinition, target: TableDefinition) -> str:
    """Return why a view would not be what it is after a change of its source's columns; empty: it would.

    Parameters
    ----------
    command
        The view's text.
    before, after
        The source.
    target
        The table that it writes to.
    """
    try:
        columns = check_view(decode_view(command), before, target).columns
        ids = {column.name: column.id for column in after.columns}
        gone = sorted(
            column.name for column in before.columns if column.name in columns and ids.get(column.name) != column.id
        )
        if gone:
            return f"it reads column {gone[0]!r}"
        check_view(decode_view(command), after, target)
    except BadInput as error:
        return str(error)
    return ""


def unwritable_after(command: str, before: TableDefinition, after: TableDefinition) -> str:
    """Return why a view could not write to its target after a change of the target's columns; empty: it could."""
    ids = {column.name: (column.id, column.type) for column in after.columns}
    names = [name for name, _ in decode_view(command).select]
    changed = sorted(
        each.name for each in before.columns if each.name in names and ids.get(each.name) != (each.id, each.type)
    )
    return f"it writes column {changed[0]!r}" if changed else ""


def check_readable(view: ViewValue, before: TableDefinition, after: TableDefinition, target: TableDefinition) -> None:
    """Raise `BadInput` if a change of its source's columns would break a view.  Parameters as of `broken_by`."""
    if problem := broken_by(view.command, before, after, target):
        raise BadInput(f"materialised view {view.name} into {view.target} would break ({problem}): drop it first")


def check_writable(source: str, command: str, before: TableDefinition, after: TableDefinition) -> None:
    """Raise `BadInput` if a view of the table `source` could not write to its target after a change of the target's columns."""
    if problem := unwritable_after(command, before, after):
        raise BadInput(f"a materialised view of {source} would break ({problem}): drop it first")


def _names(definition: TableDefinition) -> frozenset[str]:
    return frozenset(definition.arrow_schema.names)


def _selected(
    name: str, text: str, command: ViewCommand, source: TableDefinition, target: TableDefinition
) -> _Selected:
    """Read what a column of the target gets."""
    column = next(each for each in target.columns if each.name == name)
    refuse_unusable(text)
    found = _AGGREGATE.fullmatch(text)
    is_key = name in command.group_by
    if found is None or is_key or not command.group_by:
        if command.group_by and not is_key:
            raise BadInput(f"column {name!r} gets {text!r}: use sum, count, min or max of something, or group by it")
        if found is not None and found[1].lower() in ("sum", "count", "min", "max"):
            raise BadInput(f"{text!r} is an aggregate: say what to group by (group_by)")
        return _Selected(column, parse_assignment(text, column, source))
    function, inner = found[1].lower(), found[2].strip()
    if function == "count":
        counted = "1" if inner in ("*", "1") else f"case when ({inner}) is null then 0 else 1 end"
        inner = f"cast({counted} as {column.type})"
    return _Selected(column, parse_assignment(inner, column, source), _ARROW[function])


def _check_policy(view: CheckedView) -> None:
    """Refuse a view whose rows the target's policy would make something else of."""
    target, grouped = view.target, view.command.group_by
    kind = target.policy.kind
    if kind is PolicyKind.REPLACING and grouped:
        raise BadInput(
            f"table {target.name} keeps one row of each key ({target.policy.text}), so an insert would replace the aggregates"
            " of all inserts before it: use a summing target, or no group_by"
        )
    if kind is not PolicyKind.SUMMING:
        return
    added = target.policy.summed(target.arrow_schema, target.key_columns)
    for each in view.selected:
        name = each.column.name
        if each.combine and (each.combine != "sum" or name not in added):
            raise BadInput(
                f"table {target.name} adds {', '.join(added)} ({target.policy.text}), and column {name!r} gets a min or a"
                " max, or is none of these: use a plain target for it, and aggregate when you read"
            )
        if grouped and not each.combine and name not in target.order_by:
            raise BadInput(
                f"column {name!r} makes groups and is not in the order key of {target.name}, which adds by that key"
            )


__all__ = [
    "CheckedView",
    "ViewCommand",
    "ViewFailed",
    "broken_by",
    "check_readable",
    "check_view",
    "check_view_name",
    "check_writable",
    "decode_view",
    "new_view",
    "unwritable_after",
]
