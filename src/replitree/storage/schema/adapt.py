"""Rows in memory, brought from the columns of one schema version to those of another, or from stored names to shown ones.

Guarantees: those of `replitree.storage.schema.layout`, which says where a column's values are.

Absent on purpose: reading files; a scan puts the same into its projection (`replitree.storage.rewrite.read`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pyarrow as pa

from replitree.storage.schema.columns import Column
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.schema.layout import layout_of
from replitree.storage.schema.nested import reshape
from replitree.storage.schema.types import parse_type


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
