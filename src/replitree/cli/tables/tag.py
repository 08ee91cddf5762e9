"""`replitree table tag|tags|delete-tag|restore-to`: versions of a table, their names, and the way back to one."""

from __future__ import annotations

from typing import Annotated

import typer

from replitree.cli.options import ChangeOptions, Cluster, Name, Yes, check_name, on_cluster
from replitree.cli.output import byte_size, confirm, counted

Tag = Annotated[
    str, typer.Argument(metavar="TAG", help="Name of the tag: letters, digits, _, . and -, a letter first.")
]
Version = Annotated[str, typer.Argument(metavar="VERSION", help="An index of the log, a tag, or a time.")]
When = Annotated[
    str | None,
    typer.Option("--as-of", metavar="VERSION", help="An index of the log, a time, or another tag.", show_default="now"),
]


@on_cluster
def tag(table: Name, name: Tag, how: ChangeOptions, as_of: When = None) -> None:
    """Give a version of a table a name; its parts stay until the tag is deleted."""
    import msgspec

    check_name(table)
    version = None if as_of is None else _version(as_of)
    with how.connect() as connection:
        made = connection.table(table).tag(name, version, command_id=how.command_id, timeout_s=how.wait)
    value = {"table": table, **msgspec.to_builtins(made)}
    how.out.result(value, f"tag {name}: version {made.version} of {table}, {counted(made.rows, 'row')}")


@on_cluster
def tags(table: Name, at: Cluster) -> None:
    """List the versions of a table that have names."""
    import msgspec

    check_name(table)
    with at.connect() as connection:
        found = connection.table(table).tags()
    value = {"table": table, "tags": msgspec.to_builtins(found)}
    columns = ("tag", "version", "made (UTC)", "replica", "parts", "rows", "bytes")
    rows = [
        (t.name, t.version, f"{t.time:%Y-%m-%d %H:%M:%S}", t.replica, t.parts, t.rows, byte_size(t.bytes))
        for t in found
    ]
    at.out.listing(value, f"tags of {table}", columns, rows)


@on_cluster
def delete_tag(table: Name, name: Tag, at: Cluster) -> None:
    """Delete a tag; what only it has kept leaves the disks."""
    check_name(table)
    with at.connect() as connection:
        connection.table(table).delete_tag(name)
    at.out.result({"table": table, "deleted": name}, f"tag {name} of {table} deleted")


@on_cluster
def restore_to(table: Name, version: Version, how: ChangeOptions, yes: Yes = False) -> None:
    """Make a table what it was at an earlier version; what came later leaves the table."""
    check_name(table)
    with how.connect() as connection:
        handle = connection.table(table)
        question = f"Drop what came into {table} after {version}, and bring back what left it?"
        confirm(question, yes=yes, as_json=how.as_json, otherwise=f"table {table} was not changed")
        result = handle.restore_to(_version(version), token=how.command_id, timeout_s=how.wait)
    value = {"table": table, "index": result.index, "rows": result.rows, "outcome": result.outcome}
    how.out.result(value, f"{table} is what it was at {version}: {counted(result.rows, 'row')}")


def _version(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


COMMANDS = {"tag": tag, "tags": tags, "delete-tag": delete_tag, "restore-to": restore_to}
