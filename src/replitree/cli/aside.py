"""`replitree table detach|detached|attach|freeze|frozen`: parts that are kept aside, out of the table or beside it.

What lies aside lies on the disk of one replica: `--replica` says of which; without it, of one that answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from replitree.cli.change import Name, Partition, check_name, parts_text, show
from replitree.cli.options import WAIT_S, Folder, Json, Url, Wait, connect
from replitree.cli.output import Output, byte_size

if TYPE_CHECKING:
    from pathlib import Path

    from replitree.client import Table

At = Annotated[
    str | None, typer.Option("--replica", metavar="NAME", help="On whose disk.", show_default="any that answers")
]
PartName = Annotated[str, typer.Argument(metavar="NAME", help="As `table detached` shows it.")]
FrozenName = Annotated[str, typer.Argument(metavar="NAME", help="What to call it.")]
Note = Annotated[str, typer.Option("--note", metavar="TEXT", help="Who froze it, and why.")]


def detach(
    table: Name,
    partition: Partition,
    wait: Wait = WAIT_S,
    url: Url = None,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Take a partition out of the table, and keep its parts aside on every replica."""
    check_name(table)
    with connect(url, folder) as connection:
        result = connection.table(table).detach_partition(partition, timeout_s=wait)
    show(Output(as_json), table, result, f"partition {partition} detached: {parts_text(result.removed)}")


def detached(table: Name, replica: At = None, url: Url = None, folder: Folder = None, as_json: Json = False) -> None:
    """Show the parts that lie aside and can be attached."""
    import msgspec

    with _table(table, replica, url, folder) as found:
        parts = found.detached()
    out = Output(as_json)
    if as_json:
        out.json({"table": table, "detached": msgspec.to_builtins(parts)})
        return
    rows = [(part.name, part.partition, part.rows, byte_size(part.bytes), part.replica) for part in parts]
    out.table(f"detached parts of {table}", ("name", "partition", "rows", "bytes", "replica"), rows)


def attach(
    table: Name, name: PartName, replica: At = None, url: Url = None, folder: Folder = None, as_json: Json = False
) -> None:
    """Insert the rows of a detached part again."""
    with _table(table, replica, url, folder) as found:
        result = found.attach(name)
    value = {"table": table, "outcome": result.outcome, "index": result.index, "rows": result.rows}
    Output(as_json).result(value, f"{result.rows:,} rows of {name} attached to {table}")


def freeze(
    table: Name,
    name: FrozenName,
    note: Note = "",
    replica: At = None,
    url: Url = None,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Keep the table as it is now under a name, as hard links on one replica's disk."""
    import msgspec

    with _table(table, replica, url, folder) as found:
        made = found.freeze(name, note)
    text = f"{table} frozen as {name}: {parts_text(made.parts)}, {made.rows:,} rows, {byte_size(made.bytes)} in {made.path}"
    Output(as_json).result({"table": table, **msgspec.to_builtins(made)}, text)


def frozen(table: Name, replica: At = None, url: Url = None, folder: Folder = None, as_json: Json = False) -> None:
    """Show what was frozen."""
    import msgspec

    with _table(table, replica, url, folder) as found:
        snapshots = found.frozen()
    out = Output(as_json)
    if as_json:
        out.json({"table": table, "frozen": msgspec.to_builtins(snapshots)})
        return
    columns = ("name", "index", "parts", "rows", "bytes", "replica", "note")
    rows = [(s.name, s.index, s.parts, s.rows, byte_size(s.bytes), s.replica, s.note) for s in snapshots]
    out.table(f"frozen snapshots of {table}", columns, rows)


COMMANDS: dict[str, Callable[..., None]] = {
    "detach": detach,
    "detached": detached,
    "attach": attach,
    "freeze": freeze,
    "frozen": frozen,
}


@contextmanager
def _table(name: str, replica: str | None, url: str | None, folder: Path | None) -> Iterator[Table]:
    check_name(name)
    with connect(url, folder) as connection:
        table = connection.table(name)
        yield table if replica is None else table.replica(replica)
