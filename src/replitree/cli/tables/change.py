"""`replitree table alter|storage|keep|feed|ttl|bloom|partitions|drop-partition|drop-blocks|truncate|mutations|…`: what changes.

A change is one entry of the log.  The exit status is 0 when it was finished, and 3 when it is in the log and was not finished
in time: it goes on, and `replitree table mutations` shows how far it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from replitree.cli.options import WAIT_S, ChangeOptions, Cluster, Name, Wait, Yes, check_name, on_cluster
from replitree.cli.output import Output, byte_size, confirm, counted
from replitree.errors import BadInput
from replitree.storage.schema.retention import ttl_text

if TYPE_CHECKING:
    from replitree.client import CommandResult, Table
    from replitree.client.change.change_results import TtlPlan
    from replitree.client.read.partitions import PartitionInfo
    from replitree.storage.schema.definition import TableDefinition

PARTITIONS_SHOWN = 10
"""Partitions that a plan names."""

Partition = Annotated[
    str, typer.Argument(metavar="PARTITION", help="Id of the partition, as `table partitions` shows it.")
]
Statement = Annotated[
    str, typer.Argument(metavar="STATEMENT", help='As in "ADD COLUMN x int DEFAULT 0" or "RENAME COLUMN a TO b".')
]
Storage = Annotated[
    str | None,
    typer.Argument(metavar="STORAGE", help="local, the URL of an object store, or tiered(URL, older=7d, free=100GB)."),
]
Keep = Annotated[
    str | None,
    typer.Argument(metavar="TIME", help='As in "7 days" or 36h; default: old_parts_lifetime_s of each replica.'),
]
Feed = Annotated[str | None, typer.Argument(metavar="TIME", help='As in 24h or "7 days"; off: no change feed is kept.')]
Ttl = Annotated[
    str | None,
    typer.Argument(
        metavar="TTL",
        help='As in "at + 90 days": a column of the order key or the partitioning, and a time; off: never.',
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be removed now; change nothing.")]
Bloom = Annotated[str | None, typer.Argument(metavar="COLUMNS", help="With commas between them; off: none.")]
Mutated = Annotated[
    str,
    typer.Argument(metavar="INDEX", help="Of the mutation, as `table mutations` shows it; of a sharded table its id."),
]
First = Annotated[int, typer.Argument(metavar="FIRST", min=0, help="Log index of the first insert.")]
Last = Annotated[int, typer.Argument(metavar="LAST", min=0, help="Log index of the last insert, itself included.")]
OnlyPartition = Annotated[
    str | None, typer.Option("--partition", metavar="PARTITION", help="Only there.", show_default="all")
]


@on_cluster
def alter(table: Name, statement: Statement, how: ChangeOptions) -> None:
    """Change the columns: add, drop, rename, widen, defaults."""
    check_name(table)
    if not statement.strip():
        raise BadInput('the statement is empty: replitree table alter events "ADD COLUMN x int DEFAULT 0"')
    with how.connect() as connection:
        result = connection.table(table).alter(statement, command_id=how.command_id, timeout_s=how.wait)
    show(how.out, table, result, f"columns changed, now version {result.schema_version}")


@on_cluster
def storage(table: Name, how: ChangeOptions, policy: Storage = None) -> None:
    """Change where the rows lie, or show it, and what each replica has still to move."""
    import msgspec

    check_name(table)
    with how.connect() as connection:
        if policy is not None:
            result = connection.table(table).set_storage(policy, command_id=how.command_id, timeout_s=how.wait)
            show(how.out, table, result, "storage changed; its parts move there one by one")
            return
        shown = connection.status(table).tables
        now = connection.table(table).definition.storage
    # Of a sharded table each shard has parts of its own to move.
    moves = [
        (replica.name if len(shown) == 1 else f"{each.name} {replica.name}", replica.moving)
        for each in shown
        for replica in each.replicas
    ]
    value = {
        "table": table,
        "storage": now,
        "replicas": {name: None if each is None else msgspec.to_builtins(each) for name, each in moves},
    }
    rows = [
        (name, each.parts_left, byte_size(each.bytes_left), each.problem or next((w.reason for w in each.waiting), ""))
        for name, each in moves
        if each is not None
    ]
    how.out.listing(value, f"storage of {table}: {now}", ("replica", "to move", "bytes", "why it waits"), rows)


@on_cluster
def keep(table: Name, how: ChangeOptions, time: Keep = None) -> None:
    """Change how long parts that leave the table can be read by --as-of, or show it."""
    check_name(table)
    with how.connect() as connection:
        handle = connection.table(table)
        if time is None:
            now = handle.definition.keep
            how.out.result({"table": table, "keep": now}, now or "default: old_parts_lifetime_s of each replica")
            return
        wanted = None if time == "default" else time
        result = handle.set_keep(wanted, command_id=how.command_id, timeout_s=how.wait)
    show(how.out, table, result, f"keeps parts that leave it {'as each replica does' if wanted is None else wanted}")


@on_cluster
def feed(table: Name, how: ChangeOptions, time: Feed = None) -> None:
    """Change how long the change feed is kept, for `table changes`, or show it."""
    check_name(table)
    with how.connect() as connection:
        handle = connection.table(table)
        if time is None:
            now = handle.definition.feed
            how.out.result({"table": table, "feed": now}, now or "off")
            return
        result = handle.set_feed(time, command_id=how.command_id, timeout_s=how.wait)
    show(how.out, table, result, "keeps no change feed" if time == "off" else f"keeps its change feed for {time}")


@on_cluster
def ttl(table: Name, how: ChangeOptions, when: Ttl = None, dry_run: DryRun = False) -> None:
    """Change when rows are removed by themselves, or show it."""
    check_name(table)
    with how.connect() as connection:
        handle = connection.table(table)
        if dry_run:
            _show_plan(how.out, table, handle.plan_ttl(when))
            return
        if when is None:
            now = ttl_text(handle.definition.ttl)
            how.out.result({"table": table, "ttl": now}, now or "off")
            return
        result = handle.set_ttl(when, command_id=how.command_id, timeout_s=how.wait)
    show(how.out, table, result, "keeps all rows" if when == "off" else f"removes rows by {when}")


def _show_plan(out: Output, table: str, plan: TtlPlan) -> None:
    import msgspec

    named = ", ".join(plan.partitions[:PARTITIONS_SHOWN])
    more = ", …" if len(plan.partitions) > PARTITIONS_SHOWN else ""
    whole = f"{counted(len(plan.partitions), 'partition')} with {counted(plan.rows_dropped, 'row')}"
    lines = [
        f"{table}: rows before {plan.bound} would be removed now",
        f"dropped: {whole}{f' ({named}{more})' if named else ''}",
        f"deleted: rows of {counted(plan.parts_touched, 'part')} where {plan.where}",
    ]
    if plan.unread:
        lines.append(f"not judged: {counted(plan.unread, 'part')} that the replica does not have whole")
    out.result({"table": table, **msgspec.to_builtins(plan)}, "\n".join(lines))


@on_cluster
def bloom(table: Name, how: ChangeOptions, columns: Bloom = None) -> None:
    """Change which columns get Bloom filters in data files, or show it."""
    check_name(table)
    with how.connect() as connection:
        handle = connection.table(table)
        if columns is None:
            now = handle.definition.bloom
            how.out.result({"table": table, "bloom": list(now)}, ", ".join(now) or "off")
            return
        result = handle.set_bloom(columns, command_id=how.command_id, timeout_s=how.wait)
    done = "writes no Bloom filters" if columns == "off" else f"writes Bloom filters of {columns} from now on"
    show(how.out, table, result, done)


@on_cluster
def partitions(table: Name, at: Cluster) -> None:
    """Show the partitions: parts, rows, bytes, merges behind them."""
    import msgspec

    check_name(table)
    with at.connect() as connection:
        target = connection.table(table)
        found = target.partitions()
    value = {"table": table, "partitions": [_jsonable(msgspec.structs.asdict(each)) for each in found]}
    columns = ("partition", "values", "parts", "rows", "bytes", "level", "blocks")
    rows = [
        (
            p.partition,
            _named_values(target.definition, p),
            p.parts,
            p.rows,
            byte_size(p.bytes),
            p.level,
            f"{p.block_min} to {p.block_max}",
        )
        for p in found
    ]
    at.out.listing(value, f"partitions of {table}", columns, rows)


@on_cluster
def drop_partition(table: Name, partition: Partition, how: ChangeOptions, yes: Yes = False) -> None:
    """Remove everything that is in a partition."""
    check_name(table)
    with how.connect() as connection:
        confirm(f"Remove all rows of partition {partition} of {table}?", yes=yes, as_json=how.as_json)
        result = connection.table(table).drop_partition(partition, command_id=how.command_id, timeout_s=how.wait)
    done = f"partition {partition} dropped: {counted(result.removed, 'part')}"
    show(how.out, table, result, done, no_partition(table, partition))


@on_cluster
def drop_blocks(
    table: Name, first: First, last: Last, how: ChangeOptions, partition: OnlyPartition = None, yes: Yes = False
) -> None:
    """Remove the rows of a range of inserts, by their log indexes; all of them, or none when a part has others' rows too.

    `table partitions` shows the blocks of each partition; an insert says its index.
    """
    check_name(table)
    if last < first:
        raise BadInput(f"blocks {first} to {last} are no range: the lower index comes first")
    where = "" if partition is None else f" in partition {partition}"
    with how.connect() as connection:
        confirm(f"Remove the rows of inserts {first} to {last} of {table}{where}?", yes=yes, as_json=how.as_json)
        result = connection.table(table).drop_blocks(
            first, last, partition, command_id=how.command_id, timeout_s=how.wait
        )
    nothing = (
        f"nothing was dropped{where}: inserts {first} to {last} have no rows there, or a part has rows of other inserts too; "
        f"`replitree table partitions {table}` shows the blocks"
    )
    show(how.out, table, result, f"blocks {first} to {last} dropped: {counted(result.removed, 'part')}", nothing)


@on_cluster
def truncate(table: Name, how: ChangeOptions, yes: Yes = False) -> None:
    """Remove everything that is in the table."""
    check_name(table)
    with how.connect() as connection:
        confirm(f"Remove all rows of {table}?", yes=yes, as_json=how.as_json)
        result = connection.table(table).truncate(command_id=how.command_id, timeout_s=how.wait)
    show(how.out, table, result, f"emptied: {counted(result.removed, 'part')}")


@on_cluster
def mutations(table: Name, at: Cluster) -> None:
    """Show the mutations that a replica has not finished, and the last ones that it has."""
    import msgspec

    from replitree.storage.sql.mutation import as_statement

    check_name(table)
    with at.connect() as connection:
        handle = connection.table(table)
        found, is_sharded = handle.mutations(), _is_sharded(handle)
    value = {"table": table, "mutations": msgspec.to_builtins(found)}
    columns = ("id" if is_sharded else "index", "partition", "command", "done", "left", "tries", "finished", "reason")
    rows = [
        (
            m.id if is_sharded else f"{m.index}",
            m.partition,
            as_statement(m.command, table),
            m.parts_done,
            m.parts_left,
            m.tries,
            m.finished,
            m.reason or "-",
        )
        for m in found
    ]
    at.out.listing(value, f"mutations of {table}", columns, rows)


@on_cluster
def kill_mutation(table: Name, index: Mutated, at: Cluster, wait: Wait = WAIT_S) -> None:
    """Let the parts that a mutation has not reached stay as they are."""
    check_name(table)
    with at.connect() as connection:
        handle = connection.table(table)
        if not _is_sharded(handle) and not (index.isascii() and index.isdigit()):
            raise BadInput(f"{index!r} is not the index of a mutation: `replitree table mutations {table}` lists them")
        wanted: Any = index if _is_sharded(handle) else int(index)
        killed = handle.kill_mutation(wanted, timeout_s=wait)
    state = "" if killed.finished else "; not finished yet"
    text = f"mutation {index} of {table} killed: {counted(killed.killed, 'part')} left as they were{state}"
    value = {"table": table, "index": killed.index, "killed": killed.killed, "finished": killed.finished}
    at.out.done(value, text, finished=killed.finished)


@on_cluster
def pause_merges(table: Name, at: Cluster) -> None:
    """Stop merging by itself, on every replica, until `resume-merges` or a restart."""
    check_name(table)
    with at.connect() as connection:
        names = connection.table(table).pause_merges()
    at.out.result({"table": table, "paused": list(names)}, f"merges of {table} paused on {_listed(names)}")


@on_cluster
def resume_merges(table: Name, at: Cluster) -> None:
    """Merge again."""
    check_name(table)
    with at.connect() as connection:
        names = connection.table(table).resume_merges()
    at.out.result({"table": table, "resumed": list(names)}, f"merges of {table} resumed on {_listed(names)}")


COMMANDS: dict[str, Callable[..., None]] = {
    "alter": alter,
    "storage": storage,
    "keep": keep,
    "feed": feed,
    "ttl": ttl,
    "bloom": bloom,
    "partitions": partitions,
    "drop-partition": drop_partition,
    "drop-blocks": drop_blocks,
    "truncate": truncate,
    "mutations": mutations,
    "kill-mutation": kill_mutation,
    "pause-merges": pause_merges,
    "resume-merges": resume_merges,
}


def show(out: Output, table: str, result: CommandResult, what: str, nothing: str = "nothing to change") -> None:
    """Print what became of a command.

    Parameters
    ----------
    what
        What it did, if it is finished.
    nothing
        What to say when there was nothing to do.
    """
    from dataclasses import asdict

    if not result.finished:
        reason = f": {result.reason}" if result.reason else ""
        where = f"logs of {counted(len(result.shards), 'shard')}" if result.shards else f"log at {result.index}"
        text = f"{table}: in the {where}, not finished yet{reason}"
    else:
        # The shards have number lines of their own; the id names the command in all of them.
        where = f"command {result.id}" if result.shards else f"log index {result.index}"
        text = f"{table}: {what if result.applied else nothing} ({where})"
    value = {name: found for name, found in asdict(result).items() if found is not None or name == "applied"}
    if shards := value.pop("shards"):
        value["shards"] = [{"shard": shard, "index": index} for shard, index in shards]
    out.done({"table": table, **value}, text, finished=result.finished)


def no_partition(table: str, partition: str) -> str:
    """Return what to say when there was nothing in a partition."""
    return f"nothing to change: partition {partition} has no parts; `replitree table partitions {table}` shows those that have"


def _is_sharded(table: Table) -> bool:
    from replitree.client.sharded.sharded_table import ShardedTable

    return isinstance(table, ShardedTable)


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "no replica"


def _named_values(definition: TableDefinition, partition: PartitionInfo) -> str:
    """Return the values that all rows of a partition have, with their columns: its id may be a hash of them.

    A calendar unit stands in the id as text, and is left out here.

    Examples
    --------
    >>> from replitree.client.read.partitions import PartitionInfo
    >>> from replitree.storage.schema.definition import define_table
    >>> definition = define_table("t", "d date, s string", partition_by=["month(d)", "s"])
    >>> _named_values(definition, PartitionInfo("202611-~h2748dd", (682, "[bold]x"), 1, 5, 900, 0, 0, 0))
    's=[bold]x'
    """
    from replitree.storage.schema.definition import TransformKind

    pairs = zip(definition.partition_by, partition.values, strict=True) if partition.values else ()
    return ", ".join(
        f"{transform.column}={'null' if value is None else value}"
        for transform, value in pairs
        if transform.kind is TransformKind.IDENTITY
    )


def _jsonable(value: Any) -> Any:
    """Return values of partitions as JSON has them: what it has no form for becomes text."""
    if isinstance(value, dict):
        return {key: _jsonable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(inner) for inner in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)
