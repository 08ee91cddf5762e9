"""`replitree table log`: what happened to a table."""

from __future__ import annotations

from typing import Annotated

import typer

from replitree.cli.options import Cluster, Name, check_name, on_cluster
from replitree.cli.output import byte_size

Limit = Annotated[
    int, typer.Option("--limit", metavar="N", min=1, max=100_000, help="Entries to show at most, the newest ones.")
]


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
            # As text: numbers of rows get thousands separators, and an index is copied into other commands.
            f"{each.index}",
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
