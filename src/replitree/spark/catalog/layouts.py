"""Layouts: which parts of older columns Spark's own Parquet scan reads as the columns of now.

===================================  =====================================================================================
a column that was added              as it is: a file that lacks it shows null, or the value in the field's metadata
a column that was dropped            as it is: no scan asks for it
renamed, widened, altered inside     not: `unreadable` says so, and ``format("replitree")`` reads the parts
===================================  =====================================================================================

A scan finds columns by name, so a column whose stored name is not its name can't be read by it: another column may have had
that name in the file.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC

import pyarrow as pa

from replitree.spark.session.types import spark_type
from replitree.storage.schema.columns import Column
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.schema.layout import layouts_of

EXISTENCE_DEFAULT = "EXISTS_DEFAULT"
"""Spark's name, in a field's metadata, of the value that files without the column show."""

INSERT_DEFAULT = "CURRENT_DEFAULT"
"""Spark's name, there too, of the value that an insert gets which leaves the column out."""


def unreadable(definition: TableDefinition, versions: Iterable[int]) -> str:
    """Return why Spark's scan can't read parts of these schema versions; "" when it can."""
    names = {
        origin.column.name
        for layout in layouts_of(definition, versions).values()
        for origin in layout
        # Of a column that the files lack, Spark shows the default, by the name that the column has in files.
        if not (origin.is_plain if origin.stored_type is not None else origin.column.stored_name == origin.column.name)
    }
    if not names:
        return ""
    return f'columns that were altered ({", ".join(sorted(names))}): read by format("replitree")'


def field_metadata(column: Column) -> dict[str, str]:
    """Return the metadata of a column's field for Spark: what older files show, and what inserts get that leave it out."""
    initial = column.initial_scalar
    shown = _literal(initial) if initial.is_valid else "NULL"
    if column.has_default:
        # Spark takes the one only with the other.
        return {EXISTENCE_DEFAULT: shown, INSERT_DEFAULT: _literal(column.default_scalar)}
    return {EXISTENCE_DEFAULT: shown} if initial.is_valid else {}


def _literal(value: pa.Scalar) -> str:
    """Return a value of a simple type as a constant of Spark's SQL, the same in every time zone."""
    kinds, arrow = pa.types, value.type
    if kinds.is_binary(arrow):
        return f"X'{value.as_py().hex()}'"
    if kinds.is_timestamp(arrow) and arrow.tz is not None:
        text = value.as_py().astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f+00:00")
    elif kinds.is_boolean(arrow):
        return str(value.as_py()).lower()
    else:
        text = str(value.as_py())
    quoted = "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return quoted if kinds.is_string(arrow) else f"CAST({quoted} AS {spark_type(arrow).simpleString()})"
