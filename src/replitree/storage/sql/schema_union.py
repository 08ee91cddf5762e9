"""Schema union: which alter would make a table take rows that it can't take now.

What ``mergeSchema`` means for a writer (Iceberg: union by name): columns that the table does not have are added at the end,
nullable and without a default; columns whose type is too narrow are widened; so are fields of structs, and what is in lists and
maps.  Nothing is ever dropped or renamed, and what the rows lack stays.

Guarantees: after the alter, rows of this schema can be conformed (`replitree.storage.parts.conform`) under the table's
names, but for single values that do not fit and nulls where none may be; the same schema then asks for no further alter.

Whole numbers are not made floating-point numbers or decimals by themselves, nor the other way round: that is for the user to
decide (``ALTER COLUMN a TYPE double``).

Absent on purpose: merging of rows, which is `replitree.storage.rewrite.merge`; new fields in the keys of maps.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from replitree.errors import BadInput, SchemaMismatch
from replitree.storage.parts.conform import conform
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.schema.nested import child_place, children
from replitree.storage.schema.types import format_type, is_nested, storable_type
from replitree.storage.schema.widen import common_type
from replitree.storage.sql.evolve import AddColumn, Alter, Change, WidenColumn, apply_alter


def union_by_name(schema: pa.Schema, definition: TableDefinition) -> Alter | None:
    """Give the alter after which a table takes rows of a schema.

    Parameters
    ----------
    schema
        Of the rows.  Columns are found by their names, whatever the case of the letters.

    Returns
    -------
    Alter or None
        None when the table takes them as it is.

    Raises
    ------
    SchemaMismatch
        No alter would do: types that have no common one, or a column that must be given.
    """
    by_name = {column.name.lower(): column for column in definition.columns}
    changes: list[Change] = []
    for field in schema:
        column = by_name.get(field.name.lower())
        try:
            found = storable_type(field.type)
        except BadInput as error:
            if column is None:
                raise SchemaMismatch(f"column {field.name!r}: {error}") from error
            continue  # values of such a type may fit all the same
        if column is None:
            changes.append(AddColumn(field.name, format_type(found)))
        else:
            changes += _inside(column.name, (), column.arrow_type, found)
    alter = Alter(tuple(changes)) if changes else None
    # With no row at all: what would refuse the rows for their schema shows here, before the alter is in the log.
    try:
        altered = definition if alter is None else apply_alter(definition, alter)
    except BadInput as error:
        raise SchemaMismatch(f"the rows do not fit table {definition.name}, and no alter would do: {error}") from error
    names = {column.name.lower(): column.name for column in altered.columns}
    conform(schema.empty_table().rename_columns([names[name.lower()] for name in schema.names]), altered)
    return alter


def _inside(name: str, path: tuple[str, ...], arrow: pa.DataType, found: pa.DataType) -> Iterator[Change]:
    """Give the changes of a column, or of what is at a path inside it, that values of another type need."""
    if not is_nested(arrow) or arrow.id != found.id:
        wide = common_type(arrow, found)
        if wide is not None and wide != arrow:
            yield WidenColumn(name, format_type(wide), inside=path)
        return
    # What the table has and the rows lack stays: only the rows' fields are looked at.
    for field in children(found):
        place = child_place(arrow, field.name)
        if place is None:
            yield AddColumn(name, format_type(field.type), inside=(*path, field.name))
        else:
            known = children(arrow)[place]
            yield from _inside(name, (*path, known.name), known.type, field.type)
