"""`replitree restore`: make a table anew from one replica's disk, when coordination has lost it.

It is run where the disk is, with the server's own configuration, while the server does not run.  It asks first, as it decides
whose rows the table's are; with ``--dry-run`` it reads everything and changes nothing.  The exit status is 0 only when the
table is there again.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replitree.cli.options import Json, Name, Yes, check_name
from replitree.cli.output import Output, byte_size, confirm, counted

if TYPE_CHECKING:
    from replitree.replica.restore import RestoreReport

Config = Annotated[
    Path, typer.Option("--config", metavar="FILE", help="Configuration of the server whose disk has the rows.")
]
TableId = Annotated[
    str | None, typer.Option("--id", metavar="ID", help="Which one, if the disk has several tables of this name.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Read every part and say what would be done; change nothing.")]

SHOWN_MAX = 5
"""Parts that are named on one line."""


def restore(
    table: Name,
    config: Config,
    table_id: TableId = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Make a table that coordination has lost anew, from one replica's disk."""
    import msgspec

    from replitree.replica.config import load_config
    from replitree.replica.restore import restore_table

    check_name(table)
    server = load_config(config)
    if not dry_run:
        question = f"Let the parts on the disk of {server.name} be the table {table}? What only others have is set aside there."
        confirm(question, yes=yes, as_json=as_json, otherwise="nothing was changed")
    done = restore_table(server, table, table_id, dry_run=dry_run, told=_told if sys.stderr.isatty() else None)
    Output(as_json).result({**msgspec.to_builtins(done), "dry_run": dry_run}, _text(done))


def _told(done: int, total: int) -> None:
    print(f"\rverified {done:,} of {total:,} parts", end="\n" if done == total else "", file=sys.stderr, flush=True)


def _text(done: RestoreReport) -> str:
    what = f"{counted(done.parts, 'part')}, {counted(done.rows, 'row')}, {byte_size(done.bytes)} in {done.folder}"
    if done.first is None:
        lines = [f"{done.table} would be restored from {done.replica}: {what}"]
    else:
        lines = [
            f"{done.table} restored from {done.replica}: {what}; its log goes on at {done.first:,}",
            f"start the server of {done.replica}, then the others: they take over its state, and set aside what only they have",
            "the ids of earlier inserts are gone: one that is repeated is inserted again",
        ]
    for part, problem in list(done.broken.items())[:SHOWN_MAX]:
        lines.append(f"broken, set aside: {part}: {problem}")
    if len(done.broken) > SHOWN_MAX:
        lines.append(f"and {len(done.broken) - SHOWN_MAX:,} more that are broken")
    if done.overlapping:
        lines.append(f"set aside, because they overlap others: {', '.join(done.overlapping[:SHOWN_MAX])}")
    if done.detached:
        lines.append(
            f"set aside, because they were detached and are kept so: {', '.join(done.detached[:SHOWN_MAX])};"
            f" `replitree table attach {done.table}` inserts them again"
        )
    return "\n".join(lines)
