"""`replitree recover|drop-replica|check`: what an operator does about replicas that are lost or gone, and about broken parts.

`recover` and `drop-replica` decide what becomes of rows, so they ask first: on a terminal with a question, otherwise for
``--yes``.  The exit status is 0 only when it was done, and of `check` only when every part that was looked at is whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from replitree.cli.options import Cluster, Name, Yes, check_hosted, on_cluster
from replitree.cli.output import confirm, counted
from replitree.errors import BadInput, ReplitreeError

if TYPE_CHECKING:
    from replitree.client import Connection
    from replitree.client.admin.repair import PartCheck

EXIT_BROKEN = 1
"""Of `check`: a part is broken, or a replica could not be asked.  Of `drop-replica`: some table still has it."""

From = Annotated[str, typer.Option("--from", metavar="REPLICA", help="Whose state becomes the table's.")]
HalfBuilt = Annotated[
    bool,
    typer.Option("--half-built", help="Even if it was taking over another replica's state: its own is a mixture then."),
]
Behind = Annotated[
    bool, typer.Option("--behind", help="Even if another replica that is whole has seen more of the log.")
]
TableAndReplica = Annotated[
    list[str], typer.Argument(metavar="TABLE REPLICA", help="Which replica of which table; with --all-tables: REPLICA.")
]
AllTables = Annotated[bool, typer.Option("--all-tables", help="Out of every table that has it.")]
MaybeTable = Annotated[str | None, typer.Argument(metavar="TABLE", help="Only this table.", show_default="all tables")]
At = Annotated[str | None, typer.Option("--replica", metavar="NAME", help="Only there.", show_default="all replicas")]


@on_cluster
def recover(
    table: Name, source: From, at: Cluster, half_built: HalfBuilt = False, behind: Behind = False, yes: Yes = False
) -> None:
    """When all replicas are lost: let the table go on from one of them."""
    check_hosted(table)
    _check_replica_name(source)
    with at.connect() as connection:
        question = f"Let {table} go on from the state of {source}? What only others have is set aside there."
        confirm(question, yes=yes, as_json=at.as_json, otherwise="nothing was changed")
        done = connection.recover_from(table, source, half_built=half_built, behind=behind)
    missed = done.missed_to - done.missed_from
    entries = f"{missed:,} {'entry' if missed == 1 else 'entries'}"
    lost = f"{entries} from index {done.missed_from:,} on are missing for good" if missed else "it has missed no entry"
    value = {"table": table, "from": source, "missed_from": done.missed_from, "missed_to": done.missed_to}
    text = f"{table} goes on from {source}: {lost}; start its server, and the others recover from it by themselves"
    at.out.result(value, text)


@on_cluster
def drop_replica(words: TableAndReplica, at: Cluster, all_tables: AllTables = False, yes: Yes = False) -> None:
    """Take a replica that will not come back out of a table."""
    if len(words) != (1 if all_tables else 2):
        raise BadInput("say which replica of which table: drop-replica TABLE REPLICA, or --all-tables REPLICA")
    name = words[-1]
    _check_replica_name(name)
    if not all_tables:
        check_hosted(words[0])
    with at.connect() as connection:
        shards = () if all_tables else _shards_of(connection, words[0])
        tables = _tables_with(connection, name, shards) if all_tables or shards else (words[0],)
        confirm(f"Drop replica {name} of {', '.join(tables)} for good?", yes=yes, as_json=at.as_json)
        if not all_tables and not shards:
            connection.drop_replica(words[0], name)
            at.out.result({"table": words[0], "dropped": name}, f"replica {name} of {words[0]} dropped")
            return
        # One table that can't be dropped does not keep the others from it.
        failed: dict[str, str] = {}
        for each in tables:
            try:
                connection.drop_replica(each, name)
            except ReplitreeError as error:
                failed[each] = str(error)
    done = [table for table in tables if table not in failed]
    text = [f"replica {name} of {table} dropped" for table in done]
    text += [f"replica {name} of {table} was not dropped: {problem}" for table, problem in failed.items()]
    at.out.result({"dropped": name, "tables": done, "failed": failed}, "\n".join(text))
    if failed:
        raise typer.Exit(EXIT_BROKEN)


@on_cluster
def check(at: Cluster, table: MaybeTable = None, replica: At = None) -> None:
    """Read every part and compare it with its checksums; broken ones are fetched again."""
    import msgspec

    if table is not None:
        check_hosted(table)
    if replica is not None:
        _check_replica_name(replica)
    with at.connect() as connection:
        shards = () if table is None else _shards_of(connection, table)
        if table is not None and not shards:
            checks = connection.check_parts(table, replica)
        elif shards:
            names = shards if replica is None else _tables_with(connection, replica, shards)
            checks = tuple(found for name in names for found in connection.check_parts(name, replica))
        else:
            names = connection.catalog.hosted_names() if replica is None else _tables_with(connection, replica)
            checks = tuple(found for name in names for found in connection.check_parts(name, replica))
    well = all(found.is_well for found in checks)
    text = "\n".join(map(_check_text, checks)) or "there is nothing to check"
    at.out.result({"whole": well, "checks": msgspec.to_builtins(checks)}, text)
    if not well:
        raise typer.Exit(EXIT_BROKEN)


COMMANDS: dict[str, Callable[..., None]] = {"recover": recover, "drop-replica": drop_replica, "check": check}


def _check_replica_name(name: str) -> None:
    from replitree.protocol.core.layout import check_replica_name

    check_replica_name(name)


def _shards_of(connection: Connection, table: str) -> tuple[str, ...]:
    """Return the names of the shards of a sharded table; of another table nothing."""
    from replitree.client.sharded.sharded_catalog import find_sharded
    from replitree.protocol.sharded.places import is_shard_name

    found = None if is_shard_name(table) else find_sharded(connection.catalog, table)
    return () if found is None else found.names


def _tables_with(connection: Connection, replica: str, among: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the tables that have a replica of this name; among some tables, if they are given.

    Raises
    ------
    BadInput
        None has.
    """
    from replitree.client.admin.repair import replica_names

    catalog = connection.catalog
    names = among or catalog.hosted_names()
    tables = tuple(table for table in names if replica in replica_names(catalog, table))
    if not tables:
        which = "no shard of the table" if among else "no table"
        raise BadInput(f"{which} has a replica {replica!r}; `replitree status` shows them")
    return tables


def _check_text(found: PartCheck) -> str:
    where = f"{found.table} on {found.replica}"
    if found.problem:
        return f"{where}: not checked: {found.problem}"
    aside = [f"  {each.part} is damaged: {each.problem}" for each in found.aside]
    if not found.broken:
        return "\n".join([f"{where}: {counted(found.parts, 'part')}, all whole", *aside])
    what = f"{len(found.broken):,} of {counted(found.parts, 'part')} broken"
    lines = [f"{where}: {what}: set aside, and fetched from others if they have it"]
    return "\n".join([*lines, *(f"  {each.part}: {each.problem}" for each in found.broken), *aside])
