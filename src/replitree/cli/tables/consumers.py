"""`replitree consumers list|create|move|drop`: the named readers of a table's change feed, and up to where each has read."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from replitree.cli.options import ChangeOptions, Cluster, Name, Yes, check_name, on_cluster
from replitree.cli.output import byte_size, confirm
from replitree.cli.plugins import CommandGroup

Consumer = Annotated[
    str, typer.Argument(metavar="CONSUMER", help="Its name: letters, digits, _, . and -, a letter first.")
]
Position = Annotated[
    str,
    typer.Argument(
        metavar="INDEX",
        help="Index of the first entry that it has not read; of a sharded table the cut up to which it has.",
    ),
]
From = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="START",
        help="What it reads first: latest, earliest, snapshot, an index of the log, a cut, a time, or a tag.",
    ),
]
Hold = Annotated[
    str, typer.Option("--hold", metavar="TIME", help='How long it holds when it does not move, as in "36h".')
]
Bytes = Annotated[
    int | None,
    typer.Option(
        "--bytes-max", metavar="BYTES", min=1, help="What a replica keeps for it alone.", show_default="64 GiB"
    ),
]

app = typer.Typer(
    cls=CommandGroup,
    help="List, create, move and drop the consumers of a table's change feed.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("list")
@on_cluster
def list_consumers(table: Name, at: Cluster) -> None:
    """List the consumers of a table, and where each stands."""
    import msgspec

    check_name(table)
    with at.connect() as connection:
        found = connection.table(table).consumers()
    value = {"table": table, "consumers": msgspec.to_builtins(found)}
    columns = ("consumer", "position", "moved (UTC)", "holds for", "bytes at most", "state")
    rows = [
        # The position as text: it is copied into other commands.
        (
            *(each.name, f"{each.position}", f"{each.time:%Y-%m-%d %H:%M:%S}", f"{each.hold_s / 3600:,.1f} h"),
            byte_size(each.bytes_max),
            f"expired: {each.expired}" if each.expired else "snapshot first" if each.snapshot is not None else "holds",
        )
        for each in found
    ]
    at.out.listing(value, f"consumers of {table}", columns, rows)


@app.command("create")
@on_cluster
def create_consumer(
    table: Name,
    consumer: Consumer,
    how: ChangeOptions,
    start: From = "latest",
    hold: Hold = "7 days",
    bytes_max: Bytes = None,
) -> None:
    """Create a consumer: replicas keep what it has not read."""
    import msgspec

    from replitree.protocol.upkeep.consumers import HOLD_BYTES_MAX

    check_name(table)
    with how.connect() as connection:
        made = connection.table(table).create_consumer(
            consumer,
            int(start) if start.removeprefix("-").isdecimal() else start,
            hold=hold,
            bytes_max=bytes_max or HOLD_BYTES_MAX,
            command_id=how.command_id,
            timeout_s=how.wait,
        )
    value = {"table": table, **msgspec.to_builtins(made)}
    how.out.result(value, f"consumer {consumer} of {table} begins at {made.position}")


@app.command("move")
@on_cluster
def move_consumer(table: Name, consumer: Consumer, index: Position, at: Cluster) -> None:
    """Say that a consumer has read everything below an index, or up to a cut."""
    check_name(table)
    position: Any = int(index) if index.isdecimal() else index
    with at.connect() as connection:
        connection.table(table).move_consumer(consumer, position)
    at.out.result(
        {"table": table, "consumer": consumer, "index": position},
        f"consumer {consumer} of {table} stands at {position}",
    )


@app.command("drop")
@on_cluster
def drop_consumer(table: Name, consumer: Consumer, at: Cluster, yes: Yes = False) -> None:
    """Drop a consumer: what only it has kept leaves the disks."""
    check_name(table)
    question = f"Drop consumer {consumer} of {table}?  What it has not read may be gone then."
    confirm(question, yes=yes, as_json=at.as_json, otherwise=f"consumer {consumer} was not dropped")
    with at.connect() as connection:
        connection.table(table).drop_consumer(consumer)
    at.out.result({"table": table, "dropped": consumer}, f"consumer {consumer} of {table} dropped")
