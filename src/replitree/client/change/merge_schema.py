"""Merge schema: alter a table so that it takes the rows that are about to be inserted.

Guarantees: one alter for all that is missing, or none; writers that want the same column at the same time end with one.
The insert comes after it and may still be refused; the columns stay.

What is altered, and what never is, says `replitree.storage.sql.schema_union`.
"""

from __future__ import annotations

from typing import Any, Protocol

import pyarrow as pa

from replitree.client.change.command import CommandResult
from replitree.errors import BadInput
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.sql.alter_text import statement
from replitree.storage.sql.schema_union import union_by_name

TRIES = 5
"""How often the columns are looked at when others alter the table at the same time."""


class Alterable(Protocol):
    """A table whose columns can be looked at and altered."""

    def refresh(self) -> TableDefinition:
        """Return the definition as it is now."""

    def alter(self, sql: str) -> CommandResult:
        """Change the columns."""


def merge_schema(table: Alterable, schema: pa.Schema) -> CommandResult | None:
    """Alter a table so that rows of a schema fit; return the alter, None when they fitted already.

    Parameters
    ----------
    table
        A `replitree.client.table.Table`.
    schema
        Of the rows.

    Raises
    ------
    SchemaMismatch
        No alter would do.
    BadInput
        Others alter the table all the time.
    """
    known = table.refresh()
    for _ in range(TRIES):
        alter = union_by_name(schema, known)
        if alter is None:
            return None
        try:
            return table.alter(statement(alter))
        except BadInput:
            again = table.refresh()
            if again.schema_version == known.schema_version:
                raise
            # Another client may have added the column a moment ago.
            known = again
    raise BadInput(f"others altered the table {TRIES} times meanwhile; insert again when they are done")


def schema_of(data: Any) -> pa.Schema:
    """Return the Arrow schema of whatever can be inserted, but for Spark frames; nothing is read of a stream.

    Raises
    ------
    BadInput
        The types of Python values can't be told.
    """
    if isinstance(data, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        return data.schema
    try:
        if hasattr(data, "__arrow_c_schema__"):
            return pa.schema(data)
        rows = pa.Table.from_pylist(list(data)) if isinstance(data, list | tuple) else pa.table(data)
    except (pa.ArrowException, AttributeError, TypeError, ValueError) as error:
        raise BadInput(f"the types of the rows can't be told: {error}; insert an Arrow table") from error
    return pa.schema([field for field in rows.schema if not pa.types.is_null(field.type)])
