"""Changes of a table's columns.

Absent on purpose: changes of settings, order key and partitioning: make another table and copy.
"""

from __future__ import annotations

from replitree.client.arguments import check_arguments
from replitree.client.change.changing import ChangingTable
from replitree.client.change.command import COMMAND_S, CommandResult
from replitree.storage.files.names import format_path


@check_arguments
class TableColumns(ChangingTable):
    """The half of `replitree.client.table.Table` that changes its columns."""

    def alter(self, sql: str, *, command_id: str | None = None, timeout_s: float = COMMAND_S) -> CommandResult:
        """Change the columns; parts stay as they are and are read with the new ones.

        Parameters
        ----------
        sql
            As in ``ADD COLUMN x int DEFAULT 0, DROP COLUMN y``, with or without ``ALTER TABLE name``; see
            `replitree.storage.sql.alter_parser`.
        command_id, timeout_s
            As `delete`; errors too.
        """
        result = self._command("alter", {"sql": sql}, command_id, timeout_s)
        if result.schema_version is not None:
            self._known(result.schema_version)
        return result

    def add_column(self, name: str, kind: str, default: str | None = None) -> CommandResult:
        """Add a column that may be null; rows that are there get the default.

        Parameters
        ----------
        name, kind
            Its name, or the path of a new field inside a column, as in ``"a.b"`` or ``"points.element.z"``; and its type as in
            Spark's DDL.  A name with a dot stands in backquotes.
        default
            A literal of Spark SQL, as in ``"0"`` or ``"'none'"``; null without.
        """
        from replitree.storage.schema.types import format_type, parse_type

        text = f" DEFAULT {default}" if default is not None else ""
        return self.alter(f"ADD COLUMN {_path(name)} {format_type(parse_type(kind))}{text}")

    def drop_column(self, name: str) -> CommandResult:
        """Remove a column, or a field inside one; `name` as `add_column`."""
        return self.alter(f"DROP COLUMN {_path(name)}")

    def rename_column(self, name: str, to: str) -> CommandResult:
        """Give a column, or a field inside one, another name; `name` as `add_column`, `to` without a path."""
        return self.alter(f"RENAME COLUMN {_path(name)} TO {format_path((to,))}")

    def widen_column(self, name: str, kind: str) -> CommandResult:
        """Give a column, or a field inside one, a type that holds all of its values, such as bigint for int."""
        from replitree.storage.schema.types import format_type, parse_type

        return self.alter(f"ALTER COLUMN {_path(name)} TYPE {format_type(parse_type(kind))}")


def _path(text: str) -> str:
    """Write a path as statements have it: as it is when it has backquotes, else with those that its names need."""
    return text if "`" in text else format_path(text.split("."))
