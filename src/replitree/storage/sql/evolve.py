"""Evolve: a table's columns change by one `Alter` at a time, and no file is rewritten.

An `Alter` is what a log entry carries: one or several changes that make one new schema version.  `apply_alter` is a function of
definition and alter alone, so every replica that applies the same alters has the same definition, byte for byte.

What a change may do, and why nothing more:

===============  ===========================================================================================================
add column       at the end, first or after another; rows that are there show its default; ``not null`` needs a default
drop column      not one of the order key, of `partition_by` or of the merge policy: rows lie where its values put them
rename column    any; data files keep the old name (see `replitree.storage.schema.columns`)
widen column     to a type that keeps every value and its order (`replitree.storage.schema.widen`); a column of
`partition_by` only
                 where every partition keeps its id
set default      for inserts to come; rows that are there keep what they show
drop default     inserts that leave the column out get null again
drop not null    never the opposite, see `replitree.storage.sql.alter_parser`
===============  ===========================================================================================================

Guarantees: an alter that fails, fails as a whole; after one that does not, every part of every
older version can still be read (`replitree.storage.schema.layout`).

With a path, `inside`, the first four are about a field inside the column; see `replitree.storage.sql.evolve_nested`.

Names in an alter are found whatever the case of their letters, as Spark finds them.

Absent on purpose: order of existing columns, order key and partitions of a table that has rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias, assert_never

import msgspec
import pyarrow as pa
from msgspec import UNSET

from replitree.errors import BadInput
from replitree.storage.schema.columns import Column, ColumnStep, Plain, columns_ever
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.schema.nested import children
from replitree.storage.schema.types import format_type, is_nested, parse_type
from replitree.storage.schema.widen import can_widen, keeps_partitions
from replitree.storage.sql.defaults import plain_of_scalar, sql_default
from replitree.storage.sql.evolve_nested import add_inside, drop_inside, free_name, rename_inside, widen_inside

COLUMNS_BYTES_MAX = 512 << 10
"""Bytes of the node `columns` with its history: half of what ZooKeeper takes."""


class _ColumnChange(msgspec.Struct, frozen=True, tag_field="do", forbid_unknown_fields=True, omit_defaults=True):
    """One change; `name` is the column's."""

    name: str


class _InnerChange(_ColumnChange, frozen=True, kw_only=True):
    """One that may also be about what is inside the column: `inside` is the path from the column inwards, mostly empty."""

    inside: tuple[str, ...] = ()


class AddColumn(_InnerChange, frozen=True, tag="add column"):
    """Add a column; with `inside`, a field of that path, which may be null and has no default.

    Attributes
    ----------
    name, type
        The type in the text form of `replitree.storage.schema.types`, or Spark's.
    nullable
        False needs a default.
    default
        In JSON form (see `replitree.storage.sql.defaults`): what rows that are there show, and inserts that leave it out get.
    after
        The column, or field beside it, that it follows.  By default it comes last.
    first
        It comes before all others.
    """

    type: str
    nullable: bool = True
    default: Plain | None = None
    after: str | None = None
    first: bool = False


class DropColumn(_InnerChange, frozen=True, tag="drop column"):
    """Drop a column: its values stay in the files, but no read shows them."""


class RenameColumn(_InnerChange, frozen=True, tag="rename column"):
    """Give a column another name."""

    to: str


class WidenColumn(_InnerChange, frozen=True, tag="widen column"):
    """Give a column a type that holds all values of its type."""

    type: str


class SetDefault(_ColumnChange, frozen=True, tag="set default"):
    """Give a column a default for inserts to come, in JSON form."""

    default: Plain


class DropDefault(_ColumnChange, frozen=True, tag="drop default"):
    """Take a column's default away: what an insert leaves out is null."""


class DropNotNull(_ColumnChange, frozen=True, tag="drop not null"):
    """Let a column have nulls."""


Change: TypeAlias = AddColumn | DropColumn | RenameColumn | WidenColumn | SetDefault | DropDefault | DropNotNull


class Alter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Changes that make one schema version, in their order; the format is the oldest that has them."""

    changes: tuple[Change, ...]
    format: int = 1

    def __post_init__(self) -> None:
        """Give it the format that its changes need."""
        if any(isinstance(change, _InnerChange) and change.inside for change in self.changes):
            # Only alters that need it: a replica of an earlier version pulls all others.
            msgspec.structs.force_setattr(self, "format", 2)

    def encode(self) -> bytes:
        """Bytes for a log entry; equal alters have equal bytes."""
        return _encoder.encode(self)


_encoder = msgspec.json.Encoder(order="deterministic")


def apply_alter(definition: TableDefinition, alter: Alter) -> TableDefinition:
    """Give the table after an alter: the next schema version.

    Raises
    ------
    BadInput
        A change is not possible; says why and what to use instead.  None of them was made.
    """
    if not alter.changes:
        raise BadInput("an alter makes at least one change")
    columns = definition.columns
    steps: list[ColumnStep] = []
    for change in alter.changes:
        altered = _Altered(definition, columns, tuple(steps))
        if isinstance(change, _InnerChange) and change.inside:
            place = altered.place(change.name)
            columns, step = altered.with_changed(place, _changed_inside(altered, columns[place], change))
        else:
            columns, step = altered.after(change)
        steps.append(step)
    found = definition.evolved(columns, steps)
    # Checked here, where every replica decides alike, and not when ZooKeeper refuses the node.
    size = len(found.encode_columns())
    if size > COLUMNS_BYTES_MAX:
        raise BadInput(
            f"table {definition.name} would have {size:,} bytes of columns and their history, and at most "
            f"{COLUMNS_BYTES_MAX:,} are possible: copy it into a new table"
        )
    return found


def find_column(definition: TableDefinition, name: str) -> Column:
    """Give a column by its name, whatever the case of the letters.

    Raises
    ------
    BadInput
        There is none; names those there are.
    """
    return definition.columns[_Altered(definition, definition.columns, ()).place(name)]


# --- one change -----------------------------------------------------------------------------------------------------------


class _Altered:
    """The columns between two changes of one alter."""

    def __init__(self, definition: TableDefinition, columns: tuple[Column, ...], steps: tuple[ColumnStep, ...]) -> None:
        self.definition = definition
        self.columns = columns
        self.steps = steps

    def place(self, name: str) -> int:
        """Find a column's position by its name."""
        for place, column in enumerate(self.columns):
            if column.name.lower() == name.lower():
                return place
        names = ", ".join(column.name for column in self.columns[:20])
        # The parser took the dot for a path into the column before it.
        dotted = [column.name for column in self.columns if column.name.lower().startswith(f"{name.lower()}.")]
        hint = f" (a name with a dot stands in backquotes: `{dotted[0]}`)" if dotted else ""
        raise BadInput(f"table {self.definition.name} has no column {name!r}; it has {names}{hint}")

    def is_free(self, name: str) -> bool:
        """Tell whether no column has this name."""
        return all(column.name.lower() != name.lower() for column in self.columns)

    def uses(self, column: Column) -> str | None:
        """Say what needs a column for good, or None."""
        table = self.definition
        names = {known.id: known.name for known in table.columns}
        name = names.get(column.id)
        # By the definition's name: an earlier change of this alter may have renamed the column.
        if name in table.order_by:
            return "the order key"
        if name in {transform.column for transform in table.partition_by}:
            return "partition_by"
        return f"the policy {table.policy.text}" if name in table.policy.columns else None

    def partitions_by(self, column: Column) -> bool:
        """Tell whether a partition transform takes a column."""
        names = {transform.column for transform in self.definition.partition_by}
        return any(known.id == column.id and known.name in names for known in self.definition.columns)

    def stored_name(self, name: str) -> str:
        """Give a name in data files that no column has or had."""
        ever = columns_ever(self.columns, (*self.definition.history, *self.steps))
        return free_name(name, {column.stored_name.lower() for column in ever})

    def forms(self, column: Column) -> tuple[Column, ...]:
        """Give a column in all the forms that it has and had."""
        ever = columns_ever(self.columns, (*self.definition.history, *self.steps))
        return tuple(form for form in ever if form.id == column.id)

    def next_id(self) -> int:
        """Give an id that no column has or had."""
        # Over the history, too: the id of a dropped column would bring its values back.
        return 1 + max(column.id for column in columns_ever(self.columns, (*self.definition.history, *self.steps)))

    def after(  # noqa: C901, PLR0912 - one case for each kind of change
        self, change: Change
    ) -> tuple[tuple[Column, ...], ColumnStep]:
        """Give the columns after a change of a whole column, and the step of the history that undoes it."""
        if isinstance(change, AddColumn):
            return _add(self, change)
        place = self.place(change.name)
        column: Column | None = self.columns[place]
        assert column is not None
        match change:
            case DropColumn():
                use = self.uses(column)
                if use is not None:
                    raise BadInput(
                        f"column {column.name!r} can't be dropped: {use} needs it; copy the rows into a new table"
                    )
                column = None
            case RenameColumn(to=to):
                if column.name == to:
                    raise BadInput(f"column {to!r} has this name already")
                # A change of the case alone finds the column itself.
                if column.name.lower() != to.lower() and not self.is_free(to):
                    raise BadInput(f"table {self.definition.name} has a column {to!r} already")
                column = column.named(to)
            case WidenColumn():
                column = _widened(self, column, change)
            case SetDefault(default=default):
                column = _with_default(column, default)
            case DropDefault():
                if not column.has_default:
                    raise BadInput(f"column {column.name!r} has no default")
                column = msgspec.structs.replace(column, default=UNSET)
            case DropNotNull():
                if column.nullable:
                    raise BadInput(f"column {column.name!r} may be null already")
                column = msgspec.structs.replace(column, nullable=True)
            case _:
                assert_never(change)
        return self.with_changed(place, column)

    def with_added(self, place: int, column: Column) -> tuple[tuple[Column, ...], ColumnStep]:
        """Put a column in."""
        step = ColumnStep(self.definition.schema_version, place, None)
        return (*self.columns[:place], column, *self.columns[place:]), step

    def with_changed(self, place: int, column: Column | None) -> tuple[tuple[Column, ...], ColumnStep]:
        """Put another form of a column in its place, or take it out."""
        step = ColumnStep(self.definition.schema_version, place, self.columns[place])
        return (*self.columns[:place], *(() if column is None else (column,)), *self.columns[place + 1 :]), step


def _changed_inside(altered: _Altered, column: Column, change: _InnerChange) -> Column:
    match change:
        case AddColumn(inside=path):
            if not change.nullable or change.default is not None:
                raise BadInput(
                    f"{'.'.join((column.name, *path))!r} is inside a column: it may be null and has no default"
                )
            after, first = change.after, change.first
            _refuse_two_places(change)
            return add_inside(column, path, change.type, after=after, first=first, ever=altered.forms(column))
        case DropColumn(inside=path):
            return drop_inside(column, path)
        case RenameColumn(to=to, inside=path):
            return rename_inside(column, path, to)
        case WidenColumn(type=type_text, inside=path):
            return widen_inside(column, path, type_text)
    raise AssertionError(f"{type(change).__name__} is not about what is inside a column")


def _add(altered: _Altered, change: AddColumn) -> tuple[tuple[Column, ...], ColumnStep]:
    if not altered.is_free(change.name):
        raise BadInput(f"table {altered.definition.name} has a column {change.name!r} already")
    if not change.nullable and change.default is None:
        raise BadInput(
            f"column {change.name!r} needs a default: the rows that are there would be null, which it may not be"
        )
    _refuse_two_places(change)
    type_text = format_type(parse_type(change.type))
    since = altered.definition.schema_version + 1
    column = Column(altered.next_id(), altered.stored_name(change.name), type_text, change.nullable, since=since)
    if change.default is not None:
        column = _with_default(column, change.default)
        # Rows that are there show the default of today for ever, whatever the default becomes later.
        column = msgspec.structs.replace(column, initial=column.default)
    place = 0 if change.first else len(altered.columns)
    if change.after is not None:
        place = altered.place(change.after) + 1
    return altered.with_added(place, column.named(change.name))


def _refuse_two_places(change: AddColumn) -> None:
    if change.first and change.after is not None:
        name = ".".join((change.name, *change.inside))
        raise BadInput(f"column {name!r} can't be first and after {change.after!r}")


def _widened(altered: _Altered, column: Column, change: WidenColumn) -> Column:
    found, target = column.arrow_type, parse_type(change.type)
    wide = format_type(target)
    if found == target:
        raise BadInput(f"column {column.name!r} is {wide} already")
    if not can_widen(found, target):
        hint = "add a column of that type, and drop this one"
        if is_nested(found):
            hint = f"name what is inside, as in {column.name}.{children(found)[0].name}"
        raise BadInput(f"column {column.name!r} can't become {wide}: not every {column.type} is one; {hint}")
    if altered.partitions_by(column) and not keeps_partitions(found, target):
        raise BadInput(
            f"column {column.name!r} can't become {wide}: rows would belong to other partitions; a wider integer, or a decimal "
            "with the same scale, is possible"
        )
    # In the new type's JSON form: a decimal is text there, an integer a number.
    initial, default = column.initial_scalar.cast(target), column.default_scalar.cast(target)
    return msgspec.structs.replace(
        column,
        type=wide,
        initial=_unset_if_null(plain_of_scalar(initial)),
        default=_unset_if_null(plain_of_scalar(default)),
    )


def _unset_if_null(value: Plain | None) -> Any:
    return UNSET if value is None else value


def with_defaults(definition: TableDefinition, defaults: Mapping[str, str]) -> TableDefinition:
    """Return the definition of a new table with defaults of its columns.

    Parameters
    ----------
    definition
        Of a table that has no rows.
    defaults
        A literal of Spark SQL by the column's name.

    Raises
    ------
    BadInput
        There is no such column, or the text is not a literal of its type.
    """
    columns = {column.id: column for column in definition.columns}
    for name, text in defaults.items():
        column = find_column(definition, name)
        value = sql_default(text, column.type)
        if value is not None:
            columns[column.id] = _with_default(column, value)
    return replace(definition, columns=tuple(columns.values()))


def _with_default(column: Column, value: Plain) -> Column:
    """Give a column a default, in the one form that its type has for the value."""
    try:
        found = plain_of_scalar(msgspec.structs.replace(column, default=value).default_scalar)
    except (pa.ArrowException, ValueError, TypeError, ArithmeticError) as error:
        raise BadInput(f"column {column.name!r}: {value!r} can't be the default of a {column.type}: {error}") from error
    # Arrow cuts 1.5 to 1 without an error.
    if isinstance(found, int) and found != value:
        raise BadInput(f"column {column.name!r}: {value!r} can't be the default of a {column.type}")
    return msgspec.structs.replace(column, default=_unset_if_null(found))
