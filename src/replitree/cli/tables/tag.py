"""`replitree table tag|tags|delete-tag`: versions of a table that have names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from replitree.cli.options import ChangeOptions, Cluster, Name, check_name, on_cluster
from replitree.cli.output import byte_size, counted

if TYPE_CHECKING:
    from replitree.client.read.as_of import AsOf

Tag = Annotated[
    str, typer.Argument(metavar="TAG", help="Name of the tag: letters, digits, _, . and -, a letter first.")
]
When = Annotated[
    str | None,
    typer.Option("--as-of", metavar="VERSION", help="An index of the log, a time, or another tag.", show_default="now"),
]


@on_cluster
def tag(table: Name, name: Tag, how: ChangeOptions, as_of: When = None) -> None:
    """Give a version of a table a name; its parts stay until the tag is deleted."""
    import msgspec

    check_name(table)
    version: AsOf | None = int(as_of) if as_of is not None and as_of.isdecimal() else as_of
    with how.connect() as connection:
        made = connection.table(table).tag(name, version, command_id=how.command_id, timeout_s=how.wait)
    value = {"table": table, **msgspec.to_builtins(made)}
    how.out.result(value, f"tag {name}: version {made.index} of {table}, {counted(made.rows, 'row')}")


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
        # The version as text: it is copied into other commands.
        (t.name, f"{t.index}", f"{t.time:%Y-%m-%d %H:%M:%S}", t.replica, t.parts, t.rows, byte_size(t.bytes))
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


COMMANDS = {"tag": tag, "tags": tags, "delete-tag": delete_tag}
