"""`replitree table detach|detached|attach|remove-detached|freeze|frozen|remove-frozen`: parts that are kept aside.

What lies aside, out of the table or beside it, lies on the disk of one replica: `--replica` says of which.  Without it, lists
are of all replicas, those that can't be asked are named, and a part is attached where it lies.  Nothing is deleted but where it
was looked for: where several replicas have it, one must be named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from replitree.cli.options import ChangeOptions, Cluster, Name, Yes, check_name, on_cluster
from replitree.cli.output import byte_size, confirm, counted, say
from replitree.cli.tables.change import Partition, no_partition, show
from replitree.errors import BadInput, ReplicaUnavailable, Unavailable

if TYPE_CHECKING:
    from replitree.client import Table
    from replitree.client.change.change_results import DetachedPart, Frozen

T = TypeVar("T", "DetachedPart", "Frozen")
At = Annotated[
    str | None,
    typer.Option("--replica", metavar="NAME", help="Only what is on this replica's disk.", show_default="all replicas"),
]
Freezing = Annotated[
    str | None,
    typer.Option("--replica", metavar="NAME", help="On whose disk to keep it.", show_default="one that answers"),
]
PartName = Annotated[str, typer.Argument(metavar="NAME", help="As `table detached` shows it.")]
FrozenName = Annotated[str, typer.Argument(metavar="NAME", help="What to call it.")]
OldFrozenName = Annotated[str, typer.Argument(metavar="NAME", help="As `table frozen` shows it.")]
Note = Annotated[str, typer.Option("--note", metavar="TEXT", help="Who froze it, and why.")]


@on_cluster
def detach(table: Name, partition: Partition, how: ChangeOptions) -> None:
    """Take a partition out of the table, and keep its parts aside on every replica."""
    check_name(table)
    with how.connect() as connection:
        result = connection.table(table).detach_partition(partition, command_id=how.command_id, timeout_s=how.wait)
    done = f"partition {partition} detached: {counted(result.removed, 'part')}"
    show(how.out, table, result, done, no_partition(table, partition))


@on_cluster
def detached(table: Name, at: Cluster, replica: At = None) -> None:
    """Show the parts that lie aside and can be attached."""
    import msgspec

    with _table(table, replica, at) as found:
        parts, silent = found.detached_everywhere()
    value = {"table": table, "detached": msgspec.to_builtins(parts), "not_asked": silent}
    columns = ("name", "partition", "rows", "bytes", "replica")
    rows = [(part.name, part.partition, part.rows, byte_size(part.bytes), part.replica) for part in parts]
    at.out.listing(value, f"detached parts of {table}", columns, rows)
    _name_silent(silent, at)


@on_cluster
def attach(table: Name, name: PartName, at: Cluster, replica: At = None) -> None:
    """Insert the rows of a detached part again."""
    from replitree.client.sharded.sharded_table import ShardedTable

    with _table(table, replica, at) as found:
        owner = found
        if replica is None and not isinstance(found, ShardedTable):
            # If no replica is known to have it, any one is asked: its error says what is wrong.
            parts, _ = found.detached_everywhere()
            owner = next((found.replica(part.replica) for part in parts if part.name == name), found)
        result = owner.attach(name)
    value = {"table": table, "outcome": result.outcome, "index": result.index, "rows": result.rows}
    at.out.result(value, f"{counted(result.rows, 'row')} of {name} attached to {table}")


@on_cluster
def remove_detached(table: Name, name: PartName, at: Cluster, replica: At = None, yes: Yes = False) -> None:
    """Delete a detached part for good, on one replica's disk."""
    with _holder(table, "detached part", name, replica, at, lambda asked: asked.detached()) as (found, who):
        confirm(f"Delete {name} on {who} for good?", yes=yes, as_json=at.as_json)
        found.remove_detached(name)
    at.out.result({"table": table, "removed": name, "replica": who}, f"{name} of {table} deleted on {who}")


@on_cluster
def freeze(table: Name, name: FrozenName, at: Cluster, note: Note = "", replica: Freezing = None) -> None:
    """Keep the table as it is now under a name, as hard links on one replica's disk; of a sharded one, in each shard."""
    import msgspec

    from replitree.client.sharded.sharded_aside import ShardedFrozen

    with _table(table, replica, at) as found:
        made = found.freeze(name, note)
    what = f"{counted(made.parts, 'part')}, {counted(made.rows, 'row')}, {byte_size(made.bytes)}"
    where = f"at the cut {made.cut}" if isinstance(made, ShardedFrozen) else f"in {made.path} on {made.replica}"
    text = f"{table} frozen as {name}: {what} {where}"
    at.out.result({"table": table, **msgspec.to_builtins(made)}, text)


@on_cluster
def frozen(table: Name, at: Cluster, replica: At = None) -> None:
    """Show what was frozen."""
    import msgspec

    with _table(table, replica, at) as found:
        snapshots, silent = found.frozen_everywhere()
    value = {"table": table, "frozen": msgspec.to_builtins(snapshots), "not_asked": silent}
    columns = ("name", "index", "parts", "rows", "bytes", "replica", "note")
    rows = [
        (
            s.name,
            s.index,
            s.parts,
            s.rows,
            byte_size(s.bytes),
            f"{s.replica} ({s.shard})" if s.shard else s.replica,
            s.note,
        )
        for s in snapshots
    ]
    at.out.listing(value, f"frozen snapshots of {table}", columns, rows)
    _name_silent(silent, at)


@on_cluster
def remove_frozen(table: Name, name: OldFrozenName, at: Cluster, replica: At = None, yes: Yes = False) -> None:
    """Delete a frozen snapshot, on one replica's disk, or in all shards; the table keeps its parts."""
    with _holder(table, "frozen snapshot", name, replica, at, lambda asked: asked.frozen()) as (found, who):
        confirm(f"Delete the frozen snapshot {name} on {who}?", yes=yes, as_json=at.as_json)
        found.remove_frozen(name)
    at.out.result({"table": table, "removed": name, "replica": who}, f"{name} of {table} deleted on {who}")


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
def _table(name: str, replica: str | None, at: Cluster) -> Iterator[Table]:
    check_name(name)
    with at.connect() as connection:
        table = connection.table(name)
        yield table if replica is None else table.replica(replica)


@contextmanager
def _holder(
    name: str, kind: str, wanted: str, replica: str | None, at: Cluster, look: Callable[[Table], tuple[T, ...]]
) -> Iterator[tuple[Table, str]]:
    """Give the table at the one replica that has something aside, and the replica's name.

    Raises
    ------
    BadInput
        No replica has it, or several have it and none was named.
    ReplicaUnavailable
        A replica that may have it can't be asked.
    """
    from replitree.client.sharded.sharded_table import ShardedTable

    with _table(name, None, at) as table:
        if isinstance(table, ShardedTable):
            if replica is not None:
                table.replica(replica)
            if wanted not in {found.name for found in look(table)}:
                raise BadInput(f"there is no {kind} {wanted!r} of {name}")
            yield table, "every replica"
            return
        asked = [replica] if replica is not None else [each.name for each in table.replicas()]
        there: dict[str, list[str]] = {}
        for each in asked:
            try:
                there[each] = [found.name for found in look(table.replica(each))]
            except Unavailable as error:
                raise ReplicaUnavailable(
                    f"{each} can't be asked ({error}): try again, or name another one with --replica"
                ) from error
        holders = [each for each, found in there.items() if wanted in found]
        if not holders:
            known = "; ".join(f"{each} has {', '.join(found) or 'none'}" for each, found in there.items())
            raise BadInput(f"there is no {kind} {wanted!r} of {name}: {known}")
        if len(holders) > 1:
            raise BadInput(f"{' and '.join(holders)} have a {kind} {wanted!r} of {name}: say --replica NAME")
        yield table.replica(holders[0]), holders[0]


def _name_silent(silent: dict[str, str], at: Cluster) -> None:
    if not at.as_json:
        for name, problem in silent.items():
            say(f"not asked: {name}: {problem}")
