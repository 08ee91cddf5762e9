"""`replitree restore`: make a table anew from one replica's disk, when coordination has lost it.

A sharded table is there again when all its shards are restored; it is run on each machine that has some of them.

It is run where the disk is, with the server's own configuration, while the server does not run.  It asks first, as it decides
whose rows the table's are; with ``--dry-run`` it reads everything and changes nothing.  The exit status is 0 only when the
table is there again; of a sharded table: when its last shard is restored.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replitree.cli.options import Json, Yes, check_hosted
from replitree.cli.output import Output, byte_size, confirm, counted
from replitree.errors import BadInput, ReplitreeError

if TYPE_CHECKING:
    from replitree.replica.kit.config import ServerConfig
    from replitree.replica.rescue.restore import RestoreReport
    from replitree.replica.rescue.restore_sharded import ShardedRestoreReport

Config = Annotated[
    Path, typer.Option("--config", metavar="FILE", help="Configuration of the server whose disk has the rows.")
]
TableId = Annotated[
    str | None, typer.Option("--id", metavar="ID", help="Which one, if the disk has several tables of this name.")
]
OneName = Annotated[str | None, typer.Argument(metavar="TABLE", help="Name of the table.")]
Every = Annotated[
    bool, typer.Option("--all", help="Every table that is on the disk and that coordination does not have.")
]
Torn = Annotated[
    bool,
    typer.Option("--torn", help="Even if inserts and changes of the last moments may be in some shards only."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Read every part and say what would be done; change nothing.")]

SHOWN_MAX = 5
"""Parts that are named on one line."""


def restore(
    config: Config,
    table: OneName = None,
    every: Every = False,
    table_id: TableId = None,
    dry_run: DryRun = False,
    torn: Torn = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Make a table that coordination has lost anew, from one replica's disk."""
    import msgspec

    from replitree.replica.kit.config import load_config

    if (table is None) != every or (every and table_id is not None):
        raise BadInput("say which table, or --all, which takes no --id")
    if table is None:
        _restore_all(config, dry_run=dry_run, torn=torn, yes=yes, as_json=as_json)
        return
    check_hosted(table)
    server = load_config(config)
    if not dry_run:
        question = f"Let the parts on the disk of {server.name} be the table {table}? What only others have is set aside there."
        confirm(question, yes=yes, as_json=as_json, otherwise="nothing was changed")
    done = _restore_one(server, table, table_id, dry_run=dry_run, torn=torn)
    Output(as_json).result(
        {**msgspec.to_builtins(done), "dry_run": dry_run}, "\n".join((_text(done), *_next_steps(done)))
    )
    if not dry_run and not _is_there(done):
        raise typer.Exit(1)


def _restore_one(
    server: ServerConfig, name: str, table_id: str | None, *, dry_run: bool, torn: bool
) -> RestoreReport | ShardedRestoreReport:
    from replitree.replica.rescue.restore import is_sharded, kept_tables, restore_table
    from replitree.replica.rescue.restore_sharded import restore_sharded

    told = _told if sys.stderr.isatty() else None
    if "~" not in name and is_sharded(name, kept_tables(Path(server.data) / "tables")):
        return restore_sharded(server, name, table_id, dry_run=dry_run, torn=torn, told=told)
    return restore_table(server, name, table_id=table_id, dry_run=dry_run, told=told)


def _restore_all(config: Path, *, dry_run: bool, torn: bool, yes: bool, as_json: bool) -> None:
    """Restore every table that is on the disk and that coordination has not, one after the other; go on after a failure."""
    import msgspec

    from replitree.replica.kit.config import load_config
    from replitree.replica.rescue.restore import lost_tables

    server = load_config(config)
    names = lost_tables(server)
    if names and not dry_run:
        question = (
            f"Let the parts on the disk of {server.name} be the tables {', '.join(names)}? "
            "Tables that were dropped while this server was away come back, too."
        )
        confirm(question, yes=yes, as_json=as_json, otherwise="nothing was changed")
    done: list[RestoreReport | ShardedRestoreReport] = []
    failed: dict[str, str] = {}
    for name in names:
        try:
            done.append(_restore_one(server, name, None, dry_run=dry_run, torn=torn))
        except ReplitreeError as error:
            failed[name] = str(error)
    lines = [_text(each) for each in done] + [f"{name} is not restored: {why}" for name, why in failed.items()]
    # Most tables have the same next steps, so each line is printed once.
    lines += dict.fromkeys(line for each in done for line in _next_steps(each))
    value = {"tables": [msgspec.to_builtins(each) for each in done], "failed": failed, "dry_run": dry_run}
    Output(as_json).result(
        value, "\n".join(lines) or f"coordination has every table that is on the disk of {server.name}"
    )
    if failed or (not dry_run and not all(map(_is_there, done))):
        raise typer.Exit(1)


def _is_there(done: RestoreReport | ShardedRestoreReport) -> bool:
    from replitree.replica.rescue.restore import RestoreReport

    return isinstance(done, RestoreReport) or done.shown


def _told(done: int, total: int) -> None:
    print(f"\rverified {done:,} of {total:,} parts", end="\n" if done == total else "", file=sys.stderr, flush=True)


def _next_steps(done: RestoreReport | ShardedRestoreReport) -> list[str]:
    from replitree.replica.rescue.restore import RestoreReport

    if not isinstance(done, RestoreReport):
        return _next_steps_of_shards(done)
    if done.first is None:
        return []
    if done.already:
        return [f"start the server of {done.replica}, then the others"]
    return [
        f"start the server of {done.replica}, then the others: they take over its state, and set aside what only they have",
        "the ids of earlier inserts are gone: one that is repeated is inserted again",
    ]


def _next_steps_of_shards(done: ShardedRestoreReport) -> list[str]:
    name = done.table
    if done.missing:
        where = f"run `replitree restore {name}` on a machine whose server has them, and start no server before"
        return [f"{name} is not there yet: {', '.join(done.missing)} must be restored, too; {where}"]
    if done.not_one_cut:
        why = "so an insert or a change of the last moments before the loss may be in some shards only"
        other = f"stop all servers, drop {name}, which leaves the disks of stopped servers alone"
        return [
            f"{name} is not there: no moment is known at which all shards were what the disks have, {why}",
            *(f"{shard}: {standing}" for shard, standing in done.not_one_cut.items()),
            f"`replitree restore {name} --torn` shows it all the same; or {other}, and begin again with other disks",
        ]
    if not done.shown:
        return []
    return [
        "start all servers: those from which nothing was restored take over the state of the others",
        "the ids of earlier inserts and the last batches of streams are gone: one that is repeated is inserted again",
        "tags, consumers and materialised views of the table are gone: create them again",
    ]


def _text(done: RestoreReport | ShardedRestoreReport) -> str:
    from replitree.replica.rescue.restore import RestoreReport

    if not isinstance(done, RestoreReport):
        lines = [_text(each) for each in done.shards]
        lines += [f"{shard} was restored before" for shard in done.before]
        return "\n".join((*lines, *([f"{done.table} is there again"] if done.shown else [])))
    what = f"{counted(done.parts, 'part')}, {counted(done.rows, 'row')}, {byte_size(done.bytes)} in {done.folder}"
    if done.first is None:
        lines = [f"{done.table} would be restored from {done.replica}: {what}"]
    elif done.already:
        lines = [f"{done.table} is restored already from {done.replica}, nothing was changed: {what}"]
    else:
        lines = [f"{done.table} restored from {done.replica}: {what}; its log goes on at {done.first:,}"]
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
