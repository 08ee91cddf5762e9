"""Columns: what one is, and how a table's columns were before each change.

A column has a *name*, which users see and may change, and a *stored name*, which it has in data files and manifests for good.
The two are equal until the column is renamed, or when another column had the name before.  Stored names are unique over a
table's whole history, whatever the case of their letters, so a file can never be misread: what it calls ``price`` is what the
table has called that in files since it was created.  Fields inside structs have stored names likewise; they are in the column's
*stored type* (see `replitree.storage.schema.nested`).

The history is a list of steps, each of which undoes one change.  It costs a line per change, not a schema per version, and
`columns_before` walks back to any version.

Guarantees: a column that was never altered is written as it always was (the fields that altering needs are left out); ids and
stored names are never used twice.

Absent on purpose: which changes are allowed; see `replitree.storage.sql.evolve`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from replitree.errors import BadInput
from replitree.storage.schema.bounds import Bound, bound_of

if TYPE_CHECKING:
    import pyarrow as pa

UTC = "UTC"
"""The zone of timestamps that name none."""

Plain: TypeAlias = bool | int | float | str
"""A value in JSON, as manifests write them: dates in days, timestamps in microseconds, decimals and bytes as text."""


class Column(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One column.

    Attributes
    ----------
    id
        Names the column for good, from 1 on.
    name
        Unique in the table, whatever the case of its letters: Spark does not tell upper from lower case.
    type
        Text form, see `replitree.storage.schema.types`.
    nullable
        Whether a row may have no value here.
    stored
        Its name in data files, where that is another one; see `stored_name`.
    stored_as
        Its type in data files, where fields inside have other names there; see `stored_type`.
    since
        The schema version that it was added with; the first if unset.
    initial
        What rows show that were written before the column was added; null if unset.
    default
        What an insert that leaves the column out gets; null if unset.
    """

    id: int
    name: str
    type: str
    nullable: bool = True
    stored: str | UnsetType = UNSET
    since: int | UnsetType = UNSET
    initial: Plain | UnsetType = UNSET
    default: Plain | UnsetType = UNSET
    stored_as: str | UnsetType = UNSET

    @property
    def arrow_type(self) -> pa.DataType:
        """The Arrow type of the values."""
        from replitree.storage.schema.types import parse_type

        return parse_type(self.type)

    @property
    def stored_name(self) -> str:
        """The column's name in data files and manifests, which never changes."""
        return self.name if isinstance(self.stored, UnsetType) else self.stored

    @property
    def stored_type(self) -> str:
        """Text form of the column's type in data files: the fields inside have their stored names."""
        return self.type if isinstance(self.stored_as, UnsetType) else self.stored_as

    @property
    def initial_scalar(self) -> pa.Scalar:
        """The value that rows show which were written before the column was added."""
        return self._scalar(self.initial)

    @property
    def default_scalar(self) -> pa.Scalar:
        """The value in an insert that leaves the column out."""
        return self._scalar(self.default)

    @property
    def has_default(self) -> bool:
        """Whether an insert may leave the column out and get a value."""
        return not isinstance(self.default, UnsetType)

    def is_in(self, version: int) -> bool:
        """Tell whether parts of a schema version have this column, unless it was dropped by then."""
        return isinstance(self.since, UnsetType) or self.since <= version

    def named(self, name: str) -> Column:
        """Return this column under another name; the stored name stays."""
        stored = self.stored_name
        return msgspec.structs.replace(self, name=name, stored=UNSET if name == stored else stored)

    def typed(self, shown: str, stored: str) -> Column:
        """Return this column with another type, and that in data files, in text form."""
        return msgspec.structs.replace(self, type=shown, stored_as=UNSET if shown == stored else stored)

    def as_stored(self) -> Column:
        """Return this column as data files have it."""
        return self.named(self.stored_name).typed(self.stored_type, self.stored_type)

    def _scalar(self, value: Plain | UnsetType) -> pa.Scalar:
        import pyarrow as pa

        if isinstance(value, UnsetType):
            return pa.scalar(None, self.arrow_type)
        bound = bound_of(self.type, value)
        assert bound is not None
        return arrow_scalar(self.arrow_type, bound)


def arrow_scalar(arrow: pa.DataType, value: Bound) -> pa.Scalar:
    """Give a value of a column's kind as a scalar of exactly its type."""
    import pyarrow as pa

    if pa.types.is_date(arrow):
        # Through the stored integer: Python's `date` ends at the year 9999, a column's does not.
        return pa.scalar(value, pa.int32()).cast(arrow)
    if pa.types.is_timestamp(arrow):
        return pa.scalar(value, pa.int64()).cast(arrow)
    return pa.scalar(value, arrow)


class ColumnStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One change of a table's columns, as the way back.

    Attributes
    ----------
    version
        The schema version that it changed; several steps may share one.
    position
        Where the change is, counted from 0.
    before
        The column that was there: in place of the one of the same id, or, when there is none of this id, between the others.
        None: there was none, and the one that is there now was added.
    """

    version: int
    position: int
    before: Column | None


History: TypeAlias = tuple[ColumnStep, ...]
"""Oldest first."""


def columns_before(columns: Sequence[Column], step: ColumnStep) -> tuple[Column, ...]:
    """Undo one step.

    Raises
    ------
    BadInput
        The step does not fit these columns.
    """
    at, before = step.position, step.before
    present = {column.id: place for place, column in enumerate(columns)}
    if before is not None and before.id not in present:
        # A history from coordination is not trusted: a position
        # outside would put a column somewhere else without an error.
        if 0 <= at <= len(columns):
            return (*columns[:at], before, *columns[at:])
    elif 0 <= at < len(columns) and (before is None or present[before.id] == at):
        return (*columns[:at], *(() if before is None else (before,)), *columns[at + 1 :])
    raise BadInput(f"the columns' history contradicts itself at schema version {step.version}")


def columns_ever(columns: Sequence[Column], history: History) -> tuple[Column, ...]:
    """Give all columns that a table has and had, in all their forms."""
    return (*columns, *(step.before for step in history if step.before is not None))
