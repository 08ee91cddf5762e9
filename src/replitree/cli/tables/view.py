"""`replitree view create|list|backfill|drop`: materialised views of a table."""

from __future__ import annotations

from typing import Annotated

import typer

from replitree.cli.options import Cluster, CommandId, Name, Yes, check_name, on_cluster
from replitree.cli.output import confirm
from replitree.cli.plugins import CommandGroup
from replitree.errors import BadInput

ViewName = Annotated[
    str, typer.Argument(metavar="VIEW", help="Name of the view: letters, digits and _, a letter first.")
]

app = typer.Typer(
    cls=CommandGroup,
    help="Create, list, fill and drop materialised views.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("create")
@on_cluster
def create_view(  # noqa: PLR0913, PLR0917 - each is an option of the command
    table: Name,
    view: ViewName,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The table that it writes to.")],
    at: Cluster,
    select: Annotated[
        list[str],
        typer.Option(
            metavar="COLUMN=EXPRESSION",
            help="Column of the target and its value; COLUMN alone takes the source's column of that name. Give it often.",
        ),
    ],
    where: Annotated[str, typer.Option(metavar="CONDITION", help="Which rows of the source.", show_default="all")] = "",
    group_by: Annotated[
        str,
        typer.Option(metavar="NAMES", help="Columns of the target that make groups, with commas.", show_default="none"),
    ] = "",
    backfill: Annotated[
        bool, typer.Option("--backfill/--no-backfill", help="Also insert what the view makes of the rows of TABLE.")
    ] = True,
    command_id: CommandId = None,
) -> None:
    """Create a view: an insert into TABLE then also writes to TARGET, in the same commit."""
    check_name(table)
    chosen = dict[str, str]()
    for each in select:
        column, _, expression = (text.strip() for text in each.partition("="))
        if column in chosen:
            raise BadInput(f"column {column!r} is selected twice")
        chosen[column] = expression or column
    with at.connect() as connection:
        handle = connection.table(table)
        made = handle.create_view(
            view, target, chosen, where=where, group_by=group_by, backfill=backfill, command_id=command_id
        )
    value = {"table": table, "view": view, "target": target, "id": made.id, "index": made.index, "backfilled": backfill}
    at.out.result(value, f"{view} writes to {target} what is inserted into {table} above {made.index}")


@app.command("list")
@on_cluster
def list_views(table: Name, at: Cluster) -> None:
    """List the materialised views of a table."""
    import msgspec

    check_name(table)
    with at.connect() as connection:
        found = connection.table(table).views()
    value = {"table": table, "views": msgspec.to_builtins(found)}
    columns = ("view", "target", "select", "where", "group by", "backfill open")
    rows = [
        (
            each.name,
            each.target,
            ", ".join(f"{column}={text}" for column, text in each.select.items()),
            each.where or "all rows",
            ", ".join(each.group_by) or "none",
            not each.is_filled,
        )
        for each in found
    ]
    at.out.listing(value, f"materialised views of {table}", columns, rows)


@app.command("backfill")
@on_cluster
def backfill_view(table: Name, view: ViewName, at: Cluster) -> None:
    """Insert the rows from before a view, unless that was done."""
    check_name(table)
    with at.connect() as connection:
        filled = connection.table(table).backfill_view(view)
    value = {"table": table, "view": view, "outcome": filled.outcome, "rows": filled.rows, "index": filled.index}
    done = (
        f"{filled.rows:,} rows were inserted"
        if filled.outcome == "inserted"
        else "nothing to do, as it was filled before or created with --no-backfill"
    )
    at.out.result(value, f"{view} of {table}: {done}")


@app.command("drop")
@on_cluster
def drop_view(table: Name, view: ViewName, at: Cluster, yes: Yes = False, command_id: CommandId = None) -> None:
    """Drop a view; what it has written stays in its target."""
    check_name(table)
    question = f"Drop the materialised view {view} of {table}?  Later inserts would not be in its target."
    confirm(question, yes=yes, as_json=at.as_json, otherwise=f"view {view} was not dropped")
    with at.connect() as connection:
        dropped = connection.table(table).drop_view(view, command_id=command_id)
    at.out.result({"table": table, "dropped": view, "index": dropped.index}, f"{table} has no view {view} any more")
