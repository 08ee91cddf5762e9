"""`replitree table log`, what happened to a table, and `replitree table changes`: which rows came, left or changed by it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from replitree.cli.options import Cluster, Name, check_name, on_cluster
from replitree.cli.output import byte_size

Start = Annotated[
    str | None,
    typer.Argument(
        metavar="FROM",
        help="Index of the first entry of the log; of a sharded table a cut, a time, or 0.",
        show_default="the consumer's",
    ),
]
End = Annotated[
    str | None,
    typer.Argument(
        metavar="TO", help="Index after the last one; of a sharded table a cut, or a time.", show_default="the end"
    ),
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
Limit = Annotated[
    int, typer.Option("--limit", metavar="N", min=1, max=100_000, help="Entries to show at most, the newest ones.")
]
ROWS_SHOWN_MAX = 1_000
"""Rows of a table that is printed for people; JSON has all of them."""


@on_cluster
def log(table: Name, at: Cluster, limit: Limit = 20) -> None:
    """Show the entries of a table's log, as far back as ZooKeeper keeps them or replicas remember them: the newest first."""
    import msgspec

    check_name(table)
    with at.connect() as connection:
        found = connection.table(table).history(limit)
    value = {"table": table, "entries": msgspec.to_builtins(found)}
    columns = ("index", "time (UTC)", "kind", "replica", "rows", "bytes", "seconds", "ids", "command")
    rows = [
        (
            each.version,
            "unknown" if each.time is None else f"{each.time:%Y-%m-%d %H:%M:%S.%f}"[:-3],
            each.kind,
            each.replica or "-",
            "-" if each.rows is None else each.rows,
            "-" if each.bytes is None else byte_size(each.bytes),
            "-" if each.duration_s is None else f"{each.duration_s:.3f}",
            ", ".join(each.ids) or "-",
            each.command or "-",
        )
        for each in found
    ]
    at.out.listing(value, f"log of {table}", columns, rows)


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
    """Show the changes of the rows by the entries of the log from FROM up to TO, not included; or between two cuts."""
    check_name(table)
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    # A table refuses what it can't begin at.
    points: list[Any] = [int(each) if each is not None and each.isdecimal() else each for each in (start, end)]
    with (
        at.connect() as connection,
        connection.table(table).changes(
            *points, consumer=consumer, columns=names, where=where, timeout_s=wait
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


COMMANDS = {"changes": changes, "log": log}
