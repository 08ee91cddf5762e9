"""`replitree status`: the number line, how far each replica is, and what it waits for; judging is the doctor's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from replitree.cli.options import Cluster, check_hosted, on_cluster
from replitree.cli.output import Output, byte_size, counted, say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replitree.client.admin.moving import MovingTable
    from replitree.client.admin.status import ClusterStatus, ReplicaStatus, TableStatus
    from replitree.client.transport.answers import ExpiryStatus

EXIT_UNREADABLE = 1
"""A table's definition can't be read; the others are shown."""

LACKING_SHOWN_MAX = 3
"""Parts that are named; the doctor names more."""

_COLUMNS = ("replica", "address", "state", "pointer", "queue", "lag", "index", "parts", "rows", "bytes")


@on_cluster
def status(
    at: Cluster, table: Annotated[str | None, typer.Argument(metavar="TABLE", help="Only this table.")] = None
) -> None:
    """Show replicas, pointers, queues, parts and lag; the exit status is 1 when a table's definition can't be read."""
    import msgspec

    if table is not None:
        check_hosted(table)
    with at.connect() as connection:
        found = connection.status(table)
    out = at.out
    if at.as_json:
        out.json(msgspec.to_builtins(found))
    else:
        _print(found, out)
    if found.unreadable:
        raise typer.Exit(EXIT_UNREADABLE)


def _print(found: ClusterStatus, out: Output) -> None:
    say(f"cluster {found.url}")
    if not found.tables and not found.unreadable:
        say("no tables yet: `replitree table create` makes one")
    for table in found.tables:
        print()
        rows = "no replica says how many rows"
        if table.rows is not None:
            rows = f"{counted(table.rows, 'row')} in {counted(table.parts, 'part')}"
        placed = f", placed on {', '.join(table.placed_on)}" if table.placed_on else ""
        out.table(
            f"table {table.name}{placed}: log from {table.log_first:,} up to {table.log_tail:,}, {rows}",
            _COLUMNS,
            [
                (
                    each.name,
                    each.address,
                    each.state if each.mark == "good" else f"{each.state}, {each.mark}",
                    each.log_pointer,
                    each.queue,
                    each.lag,
                    each.index,
                    each.parts,
                    each.rows,
                    None if each.bytes is None else byte_size(each.bytes),
                )
                for each in table.replicas
            ],
        )
        for view in table.open_backfills:
            say(f"  the backfill of materialised view {view} is open: replitree view backfill {table.name} {view}")
        there = {replica.name for replica in table.replicas}
        for name in (name for name in table.placed_on if name not in there):
            say(f"  {name} is to host this shard and has not joined it: is its server running?")
        for replica in table.replicas:
            if table.placed_on and replica.name not in table.placed_on:
                say(f"  {replica.name} is not to host this shard any more: restart its server, then take it out with")
                say(f"    replitree drop-replica {table.name} {replica.name}")
            if replica.state != "active" and replica.reason:
                say(f"  {replica.name} is {replica.state}: {replica.reason}")
            for line in (*_place(table, replica), *_work(replica), *_removal(replica.expiry)):
                say(f"  {replica.name} {line}")

    for moving in found.moving:
        say(f"\nsharded table {moving.name}: {_moves_of(moving)}")
    for unreadable in found.unreadable:
        say(f"\ntable {unreadable.name} can't be read: {unreadable.problem}; `replitree doctor` says what to do")


def _moves_of(moving: MovingTable) -> str:
    """Say what moves in a sharded table, how far it is, and since when nothing has happened."""
    ways = ", ".join(f"{each.source} → {each.target}: {each.buckets:,}" for each in moving.moves)
    on_their_way = f", {moving.rows_on_their_way:,} on their way" if moving.rows_on_their_way else ""
    refused = f"; {moving.refused:,} refused: {moving.reason}" if moving.refused else ""
    return (
        f"{counted(moving.buckets, 'bucket')} to move ({ways}), {counted(moving.rows, 'row')} ({byte_size(moving.bytes)})"
        f" have arrived{on_their_way}, the last progress was {moving.idle_s:,.0f} s ago{refused}"
    )


def _place(table: TableStatus, replica: ReplicaStatus) -> Iterator[str]:
    """Say where a replica stands, when it is not simply somewhere in the log."""
    from replitree.client.transport.standing import entries_between

    behind = entries_between(replica.log_pointer or 0, table.log_first)
    if replica.mark == "half-dropped":
        yield f"is half-dropped: `replitree drop-replica {table.name} {replica.name}` finishes it"
    elif replica.mark != "good" and replica.active:
        yield f"is marked {replica.mark}: it takes over the state of another one"
    elif replica.mark != "good":
        yield f"is marked {replica.mark}: it will take over the state of another one when it starts"
    if behind > 0:
        yield f"has not pulled {behind:,} {'entry that is' if behind == 1 else 'entries that are'} gone from the log"


def _removal(expiry: ExpiryStatus | None) -> Iterator[str]:
    """Say which rows a replica removed last because their time is over, and why it removes none now."""
    if expiry is None:
        return
    if expiry.last is not None:
        gone = f"{counted(expiry.last.partitions_dropped, 'partition')} dropped"
        touched = f"rows of {counted(expiry.last.parts_touched, 'part')} deleted"
        yield f"looked at {expiry.last.at} for rows before {expiry.last.bound} ({expiry.ttl}): {gone}, {touched}"
    if expiry.reason:
        yield f"removes no rows by {expiry.ttl}: {expiry.reason}"


def _work(replica: ReplicaStatus) -> Iterator[str]:
    """Say what a replica lacks, what it does beside serving, and which entries it can't execute yet."""
    if replica.lacking:
        more = ", …" if len(replica.lacking) > LACKING_SHOWN_MAX else ""
        names = ", ".join(replica.lacking[:LACKING_SHOWN_MAX])
        count = counted(len(replica.lacking), "part")
        yield f"lacks {count}, broken or gone ({names}{more}): `replitree doctor` says what to do"
    if replica.without_checksums:
        left = counted(replica.without_checksums, "part")
        yield f"has {left} of an earlier version, not yet fully checksummed: `replitree check` does it now"
    if replica.without_digest:
        left = counted(replica.without_digest, "part")
        yield f"has {left} registered by an earlier version, by their rows alone, until they are merged or mutated"
    for making in replica.running:
        done = f"{making.rows_done:,} of {making.rows_total:,} rows"
        yield f"makes {making.result} ({making.kind} at {making.index}): {done}"
    moves = replica.moving
    if moves is not None and moves.problem:
        yield f"can't use the table's object store: {moves.problem}"
    if moves is not None and moves.parts_left:
        waits = f"; {moves.waiting[0].part} waits: {moves.waiting[0].reason}" if moves.waiting else ""
        to_move = f"{counted(moves.parts_left, 'part')} ({byte_size(moves.bytes_left)})"
        yield f"has {to_move} to move to where {moves.storage} has them{waits}"
    if replica.merges_paused:
        yield "merges nothing by itself: `replitree table resume-merges` lets it go on"
    if replica.old_parts:
        size = byte_size(replica.old_bytes or 0)
        left = f"{counted(replica.old_parts, 'part')} that left the table ({size})"
        packs = f", {replica.packed_parts:,} of them in {counted(replica.packs, 'pack')}" if replica.packs else ""
        yield f"keeps {left}{packs}, under {counted(replica.leases, 'lease')}"
    if replica.tagged_parts:
        tagged = f"{counted(replica.tagged_parts, 'part')} ({byte_size(replica.tagged_bytes or 0)})"
        yield f"keeps {tagged} of these for tags: `replitree table tags` lists them"
    for each in (each for each in replica.consumers if each.bytes):
        yield f"keeps {byte_size(each.bytes)} for consumer {each.name}: `replitree consumers list` shows where it stands"
    for waiting in replica.postponed:
        since = "" if waiting.since_s is None else f" for {waiting.since_s:,.0f} s"
        yield f"waits{since} with entry {waiting.index} ({waiting.tries:,} tries): {waiting.reason}"
