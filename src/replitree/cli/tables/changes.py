"""`replitree table changes`: which rows came, left or changed, by which entry of a table's log."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from replitree.cli.options import Cluster, Name, check_name, on_cluster

Start = Annotated[
    int | None,
    typer.Argument(metavar="FROM", min=0, help="Index of the first entry of the log.", show_default="the consumer's"),
]
End = Annotated[
    int | None,
    typer.Argument(metavar="TO", min=0, help="Index after the last one.", show_default="the end of the log"),
]
Where = Annotated[
    str | None, typer.Option("--where", metavar="CONDITION", help="Which rows, as in SQL.", show_default="all")
]
Columns = Annotated[
    str | None, typer.Option("--columns", metavar="NAMES", help="Columns, with commas.", show_default="all")
]
Consumer = Annotated[
    str | None, typer.Option("--consumer", metavar="NAME", help="Instead of FROM: what this consumer has not read.")
]
Wait = Annotated[
    float, typer.Option("--wait", metavar="SECONDS", min=0.0, help="How long to wait for the log up to TO.")
]
ROWS_SHOWN_MAX = 1_000
"""Rows of a table that is printed for people; JSON has all of them."""


@on_cluster
def changes(
    table: Name,
    at: Cluster,
    start: Start = None,
    end: End = None,
    consumer: Consumer = None,
    columns: Columns = None,
    where: Where = None,
    wait: Wait = 30.0,
) -> None:
    """Show the changes of the rows by the entries of the log from FROM up to TO, not included."""
    check_name(table)
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    with (
        at.connect() as connection,
        connection.table(table).changes(
            start, end, consumer=consumer, columns=names, where=where, timeout_s=wait
        ) as found,
    ):
        rows = found.to_arrow()
        value: dict[str, Any] = {"table": table, "from": found.start, "to": found.end, "origin": found.origin}
    meta = ["_commit_version", "_commit_timestamp", "_change_type"]
    shown = rows.select([*meta, *(name for name in rows.schema.names if name not in meta)])
    if at.as_json:
        at.out.json({**value, "rows": shown.to_pylist()})
        return
    title = f"changes of {table} from {found.start} up to {found.end}: {rows.num_rows:,} rows"
    title += f", the first {ROWS_SHOWN_MAX:,}" if rows.num_rows > ROWS_SHOWN_MAX else ""
    some = [tuple(row.values()) for row in shown.slice(0, ROWS_SHOWN_MAX).to_pylist()]
    # The version as text: it is copied into other commands.
    at.out.table(title, shown.schema.names, [(f"{row[0]}", f"{row[1]:%Y-%m-%d %H:%M:%S.%f}", *row[2:]) for row in some])


COMMANDS = {"changes": changes}
