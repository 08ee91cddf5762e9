"""`replitree table detach|detached|attach|remove-detached|freeze|frozen|remove-frozen`: parts that are kept aside.

What lies aside, out of the table or beside it, lies on the disk of one replica: `--replica` says of which; without it, of one
that answers.  Nothing is deleted but where it was looked for: where several replicas have it, one must be named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from replitree.cli.change import Name, Partition, Yes, check_name, parts_text, show
from replitree.cli.options import WAIT_S, CommandId, Folder, Json, Url, Wait, connect
from replitree.cli.output import Output, byte_size, confirm
from replitree.errors import BadInput, ReplicaUnavailable, Unavailable

if TYPE_CHECKING:
    from pathlib import Path

    from replitree.client import Table

At = Annotated[
    str | None, typer.Option("--replica", metavar="NAME", help="On whose disk.", show_default="any that answers")
]
PartName = Annotated[str, typer.Argument(metavar="NAME", help="As `table detached` shows it.")]
FrozenName = Annotated[str, typer.Argument(metavar="NAME", help="What to call it.")]
OldFrozenName = Annotated[str, typer.Argument(metavar="NAME", help="As `table frozen` shows it.")]
Note = Annotated[str, typer.Option("--note", metavar="TEXT", help="Who froze it, and why.")]


def detach(
    table: Name,
    partition: Partition,
    wait: Wait = WAIT_S,
    command_id: CommandId = None,
    url: Url = None,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Take a partition out of the table, and keep its parts aside on every replica."""
    check_name(table)
    with connect(url, folder) as connection:
        result = connection.table(table).detach_partition(partition, command_id=command_id, timeout_s=wait)
    show(Output(as_json), table, result, f"partition {partition} detached: {parts_text(result.removed)}")


def detached(table: Name, replica: At = None, url: Url = None, folder: Folder = None, as_json: Json = False) -> None:
    """Show the parts that lie aside and can be attached."""
    import msgspec

    with _table(table, replica, url, folder) as found:
        parts = found.detached()
    value = {"table": table, "detached": msgspec.to_builtins(parts)}
    columns = ("name", "partition", "rows", "bytes", "replica")
    rows = [(part.name, part.partition, part.rows, byte_size(part.bytes), part.replica) for part in parts]
    Output(as_json).listing(value, f"detached parts of {table}", columns, rows)


def attach(
    table: Name, name: PartName, replica: At = None, url: Url = None, folder: Folder = None, as_json: Json = False
) -> None:
    """Insert the rows of a detached part again."""
    with _table(table, replica, url, folder) as found:
        result = found.attach(name)
    value = {"table": table, "outcome": result.outcome, "index": result.index, "rows": result.rows}
    Output(as_json).result(value, f"{result.rows:,} rows of {name} attached to {table}")


def remove_detached(
    table: Name,
    name: PartName,
    replica: At = None,
    yes: Yes = False,
    url: Url = None,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Delete a detached part for good, on one replica's disk."""
    with _holder(table, "detached part", name, replica, url, folder, _detached_names) as (found, who):
        confirm(f"Delete {name} on {who} for good?", yes=yes, as_json=as_json)
        found.remove_detached(name)
    Output(as_json).result({"table": table, "removed": name, "replica": who}, f"{name} of {table} deleted on {who}")


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
    value = {"table": table, "frozen": msgspec.to_builtins(snapshots)}
    columns = ("name", "index", "parts", "rows", "bytes", "replica", "note")
    rows = [(s.name, s.index, s.parts, s.rows, byte_size(s.bytes), s.replica, s.note) for s in snapshots]
    Output(as_json).listing(value, f"frozen snapshots of {table}", columns, rows)


def remove_frozen(
    table: Name,
    name: OldFrozenName,
    replica: At = None,
    yes: Yes = False,
    url: Url = None,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Delete a frozen snapshot, on one replica's disk; the table keeps its parts."""
    with _holder(table, "frozen snapshot", name, replica, url, folder, _frozen_names) as (found, who):
        confirm(f"Delete the frozen snapshot {name} on {who}?", yes=yes, as_json=as_json)
        found.remove_frozen(name)
    Output(as_json).result({"table": table, "removed": name, "replica": who}, f"{name} of {table} deleted on {who}")


COMMANDS: dict[str, Callable[..., None]] = {
    "detach": detach,
    "detached": detached,
    "attach": attach,
    "remove-detached": remove_detached,
    "freeze": freeze,
    "frozen": frozen,
    "remove-frozen": remove_frozen,
}


@contextmanager
def _table(name: str, replica: str | None, url: str | None, folder: Path | None) -> Iterator[Table]:
    check_name(name)
    with connect(url, folder) as connection:
        table = connection.table(name)
        yield table if replica is None else table.replica(replica)


@contextmanager
def _holder(
    name: str,
    kind: str,
    wanted: str,
    replica: str | None,
    url: str | None,
    folder: Path | None,
    names: Callable[[Table], list[str]],
) -> Iterator[tuple[Table, str]]:
    """Give the table at the one replica that has something aside, and the replica's name.

    Raises
    ------
    BadInput
        No replica has it, or several have it and none was named.
    ReplicaUnavailable
        A replica that may have it can't be asked.
    """
    with _table(name, None, url, folder) as table:
        asked = [replica] if replica is not None else [each.name for each in table.replicas()]
        there = {each: _names_at(table, each, names) for each in asked}
        holders = [each for each, found in there.items() if wanted in found]
        if not holders:
            known = "; ".join(f"{each} has {', '.join(found) or 'none'}" for each, found in there.items())
            raise BadInput(f"there is no {kind} {wanted!r} of {name}: {known}")
        if len(holders) > 1:
            raise BadInput(f"{' and '.join(holders)} have a {kind} {wanted!r} of {name}: say --replica NAME")
        yield table.replica(holders[0]), holders[0]


def _names_at(table: Table, replica: str, names: Callable[[Table], list[str]]) -> list[str]:
    try:
        return names(table.replica(replica))
    except Unavailable as error:
        raise ReplicaUnavailable(f"{replica} can't be asked ({error}): say --replica NAME, or try again") from error


def _detached_names(table: Table) -> list[str]:
    return [part.name for part in table.detached()]


def _frozen_names(table: Table) -> list[str]:
    return [snapshot.name for snapshot in table.frozen()]
