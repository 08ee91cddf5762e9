"""Layout: where a reader's columns are in the files of a part that was written with an older schema version.

Guarantees: rows of any older version become rows of the definition that is asked for: a column that was renamed is found by its
stored name, one that was widened is cast without loss, one that was dropped is left out, and one that was added since shows the
default that it was added with.  So are the fields inside structs; one that was added since is null.  Nothing depends on what a
file happens to contain: the part's schema version decides.

Two versions that differ only in columns' names have equal layouts, so their parts are read as one.

`adapt` is for rows in memory (merges, mutations); scans put the same into their projections and filters
(`replitree.storage.rewrite.read`), and Spark into its own (`replitree.spark.read.read`).

Absent on purpose: newer versions than the definition's.  A caller that meets one reads the definition again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from replitree.errors import StoreError
from replitree.storage.schema.columns import Column
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.schema.nested import field_inside, reshape, stored_path
from replitree.storage.schema.types import is_nested, parse_type

if TYPE_CHECKING:
    import pyarrow.compute as pc


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the values of one column come from.

    Attributes
    ----------
    column
        The column as readers see it.
    stored_type
        Text form of the type that it has in the files, under its stored name; None: it is not in them, and every row shows the
        column's `initial`.
    """

    column: Column
    stored_type: str | None

    @property
    def is_plain(self) -> bool:
        """Whether the files have exactly this column."""
        return (
            self.stored_type == self.column.type
            and self.column.stored_name == self.column.name
            and not self.is_reshaped
        )

    @property
    def is_reshaped(self) -> bool:
        """Whether the files have the column with other fields inside, or with other names or types of them."""
        if self.stored_type is None or not is_nested(self.column.arrow_type):
            return False
        return not self.stored_type == self.column.stored_type == self.column.type

    @property
    def stored_field(self) -> pa.Field | None:
        """The column as the files have it, or None."""
        if self.stored_type is None:
            return None
        return pa.field(self.column.stored_name, parse_type(self.stored_type))

    def expression(self, inside: Sequence[str] = ()) -> pc.Expression:
        """Give the column, or a field inside its structs, for Arrow's scanner of the files.

        What is nested comes as it is in the files: where `is_reshaped`, `shown` makes the column of it.
        """
        import pyarrow.compute as pc

        column = self.column
        arrow = field_inside(column.arrow_type, inside)
        assert arrow is not None
        if self.stored_type is None:
            # A field inside has no default of its own, and the default of a nested column can only be null.
            return pc.scalar(pa.scalar(None, arrow) if inside else column.initial_scalar)
        path = stored_path(column.arrow_type, parse_type(column.stored_type), inside)
        found = field_inside(parse_type(self.stored_type), path)
        if found is None:  # added later
            return pc.scalar(pa.scalar(None, arrow))
        field = pc.field(column.stored_name, *path)
        # The scanner can't cast what is nested: `shown` does it after the scan.
        return field if found == arrow or is_nested(arrow) else field.cast(arrow)

    def shown(self, values: pa.Array) -> pa.Array:
        """Give a column as readers see it from one of files that `is_reshaped`."""
        return reshape(values, parse_type(self.column.stored_type), self.column.arrow_type)


Layout: TypeAlias = tuple[Origin, ...]
"""One origin per column of the definition, in its order."""


def layout_of(definition: TableDefinition, written: int) -> Layout:
    """Say where a table's columns are in the files of a part.

    Parameters
    ----------
    definition
        The table as readers want it; with `TableDefinition.stored`, the columns keep their stored names.
    written
        The part's schema version.

    Raises
    ------
    StoreError
        The part is newer than the definition.
    """
    # A newer version may have dropped or added anything: a guess would show wrong rows.
    if written > definition.schema_version:
        raise StoreError(
            f"a part of table {definition.name} has schema version {written}, and {definition.schema_version} is known here: "
            "read the table's definition again"
        )
    # By id, not by name: a column that was dropped and added again is another one.
    then = {column.id: column.stored_type for column in definition.at(written).columns}
    return tuple(Origin(column, then.get(column.id)) for column in definition.columns)


def layouts_of(definition: TableDefinition, versions: Iterable[int]) -> dict[int, Layout]:
    """Give the layout of each of these schema versions."""
    return {version: layout_of(definition, version) for version in sorted(set(versions))}


def is_plain(layout: Layout) -> bool:
    """Tell whether files of this layout have all columns as readers see them."""
    return all(origin.is_plain for origin in layout)


def has_other_names(definition: TableDefinition) -> bool:
    """Tell whether data files have a column, or a field inside one, under another name than readers see.

    A column that has the name of one that was dropped is such a column.
    """
    return any(column.stored_name != column.name or column.stored_type != column.type for column in definition.columns)


def stored_schema(layout: Layout) -> pa.Schema:
    """Give the schema of the files as far as readers need it; every column may be null, as Parquet readers have it."""
    return pa.schema([field for origin in layout if (field := origin.stored_field) is not None])


def adapt(rows: pa.Table, written: int, definition: TableDefinition, names: Sequence[str] | None = None) -> pa.Table:
    """Bring rows, as a part's files have them, to a table's columns.

    Parameters
    ----------
    rows
        With the stored names and types of the schema version `written`; columns that were dropped since may be missing.
    written
        The part's schema version.
    definition
        The table; the result has its schema.  `definition.stored` gives rows for writing a part.
    names
        Only these columns, in the table's order; all by default.

    Raises
    ------
    StoreError
        The part is newer than the definition.

    Examples
    --------
    A merge of parts of several versions adapts each, with ``target = definition.at(version).stored``::

        table = adapt(pa.Table.from_batches([batch]), manifest.schema_version, target)
    """
    layout = [origin for origin in layout_of(definition, written) if names is None or origin.column.name in names]
    schema = pa.schema([definition.arrow_schema.field(origin.column.name) for origin in layout])
    columns = []
    for origin in layout:
        arrow = origin.column.arrow_type
        if origin.stored_type is None:
            # The part is older than the column: every row shows the default that the column was added with.
            columns.append(pa.chunked_array([pa.repeat(origin.column.initial_scalar, rows.num_rows)]))
            continue
        values = rows.column(origin.column.stored_name)
        if origin.is_reshaped:
            values = every_chunk(values, arrow, origin.shown)
        elif values.type != arrow:
            values = values.cast(arrow)
        columns.append(values)
    return pa.Table.from_arrays(columns, schema=schema)


def stored_rows(rows: pa.Table, definition: TableDefinition) -> pa.Table:
    """Give rows in a table's schema the names that columns and fields have in data files: `TableDefinition.stored`'s schema."""
    if not definition.history:
        return rows
    schema = definition.stored.arrow_schema
    columns = [
        every_chunk(values, field.type, partial(stored_values, column))
        for values, field, column in zip(rows.columns, schema, definition.columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def shown_rows(rows: pa.Table, columns: Sequence[Column]) -> pa.Table:
    """Give these columns of rows, as files of this version have them, with the names and types that readers see."""
    values = [every_chunk(rows.column(c.stored_name), c.arrow_type, partial(shown_values, c)) for c in columns]
    return pa.Table.from_arrays(values, schema=pa.schema([pa.field(c.name, c.arrow_type, c.nullable) for c in columns]))


def every_chunk(values: pa.ChunkedArray, arrow: pa.DataType, change: Callable[[pa.Array], pa.Array]) -> pa.ChunkedArray:
    """Change every chunk, which then has the type `arrow`."""
    return pa.chunked_array([change(chunk) for chunk in values.chunks], type=arrow)


def stored_values(column: Column, values: pa.Array) -> pa.Array:
    """Give values of a column with the names that the fields inside have in data files."""
    if column.stored_type == column.type:
        return values
    return reshape(values, column.arrow_type, parse_type(column.stored_type))


def shown_values(column: Column, values: pa.Array) -> pa.Array:
    """Give values of a column, as files of this version have them, with the names that readers see."""
    if column.stored_type == column.type:
        return values
    return reshape(values, parse_type(column.stored_type), column.arrow_type)
