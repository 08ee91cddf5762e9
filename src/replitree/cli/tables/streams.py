"""`replitree streams list|drop`: the streams that write into a table, and the last batch of each."""

from __future__ import annotations

from typing import Annotated

import typer

from replitree.cli.options import Cluster, Name, Yes, check_name, on_cluster
from replitree.cli.output import confirm
from replitree.cli.plugins import CommandGroup

StreamId = Annotated[str, typer.Argument(metavar="STREAM", help="Id of the stream, as `list` shows it.")]

app = typer.Typer(
    cls=CommandGroup,
    help="List and forget the streams that write into a table.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("list")
@on_cluster
def list_streams(table: Name, at: Cluster) -> None:
    """List the streams that write into a table."""
    import msgspec

    check_name(table)
    with at.connect() as connection:
        found = connection.table(table).streams()
    value = {"table": table, "streams": msgspec.to_builtins(found)}
    columns = ("stream", "query", "last batch", "written (UTC)")
    rows = [(each.id, each.query or "batch writes", each.batch, f"{each.time:%Y-%m-%d %H:%M:%S}") for each in found]
    at.out.listing(value, f"streams of {table}", columns, rows)


@app.command("drop")
@on_cluster
def drop_stream(table: Name, stream: StreamId, at: Cluster, yes: Yes = False) -> None:
    """Let a table forget a stream: a batch that is sent again is inserted again."""
    check_name(table)
    question = f"Forget stream {stream} of {table}?  A batch that is sent again would be inserted again."
    confirm(question, yes=yes, as_json=at.as_json, otherwise=f"stream {stream} was not forgotten")
    with at.connect() as connection:
        connection.table(table).drop_stream(stream)
    at.out.result({"table": table, "forgotten": stream}, f"{table} has forgotten stream {stream}")
