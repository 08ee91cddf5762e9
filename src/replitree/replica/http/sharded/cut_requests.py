"""Requests for cuts over shards: what a replica has seen, the clock, and a snapshot at a cut (`protocol.sharded.cut`).

``GET …/cut``
    ``{"cut", "index"}``: the highest cut that the replica can show, and where its log ended; ``written=`` an index: also
    ``written``, the transaction from which on a cut has the entry there
``POST …/cut``
    ``{"cut"}``: a cut that has everything which was acknowledged before the request
``GET …/cut/snapshot?at=``
    a snapshot as of ``GET …/snapshot``, with its lease; ``clock=1``: the cut is one of ``POST …/cut``
``GET …/feed/positions?cuts=``
    ``{"positions"}``: where cuts, with commas between them, lie in the log of the shard, for readers of its change feed;
    ``entry=``: also ``transaction``, that which has appended the entry;
    ``earliest=1``: also ``earliest``, the first transaction from which on this replica has the feed; null: from now on

Where the log ends, the clock and the id of the ensemble are asked for once for all readers that come at once
(`replitree.replica.table.cuts`).  The procedures run in threads but for the waits for the executor, which hold none.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import TypeVar, cast

from replitree.errors import BadInput, ReplicaBehind, SnapshotExpired, TableNotFound
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.sharded.cut import (
    AwaitExecuted,
    Cut,
    CutEnd,
    CutGone,
    CutNotYet,
    index_at,
    parse_cut,
    position_at,
    seen_here,
)
from replitree.protocol.sharded.places import is_shard_name, sharded_name
from replitree.replica.http.gate import WAIT_S_DEFAULT, number, seconds
from replitree.replica.http.snapshot_requests import snapshot_below, wait_executed
from replitree.replica.table.table_replica import TableReplica

T = TypeVar("T")


async def seen(table: TableReplica, query: Mapping[str, str]) -> dict[str, object]:
    """Return what this replica has seen of its log, when everything in it is executed.

    Parameters
    ----------
    query
        ``wait_s``: how long to wait for that; ``written``: the index of an entry that must be in the reader's cut, and ``of``:
        the id of the table that has it.  Then the answer has the transaction from which on a cut has it.

    Raises
    ------
    TableNotFound
        The entry is of an earlier table of this name.
    ReplicaBehind
        It is not executed in time, or the replica does not find the entry yet.
    CoordinationUnavailable
        Coordination does not answer.
    """
    if query.get("of", "") not in ("", table.definition.table_id):
        name = sharded_name(table.definition.name)
        raise TableNotFound(f"table {name!r} was dropped and created again: open it again")
    wait_s = seconds(query, "wait_s", WAIT_S_DEFAULT)
    until, session = time.monotonic() + wait_s, await table.cuts.end(wait_s)
    written = fx.LogIndex(number(query, "written", 0)) if "written" in query else None
    procedure = seen_here(table.progress.replica.table, written, session.end)
    end = await _run(table, procedure, until, session.session)
    if isinstance(end, CutNotYet):
        what = "the log of its table" if written is None else f"the entry at {written} of its log"
        raise ReplicaBehind(f"replica {table.replica.name} does not find {what}; ask another replica")
    told = {"cut": str(Cut(session.ensemble, end.seen)), "index": end.index, "replica": table.replica.name}
    return told if written is None else {**told, "written": end.written}


async def linearizable_cut(table: TableReplica, query: Mapping[str, str]) -> dict[str, object]:
    """Return a cut that has everything which was acknowledged before.

    Parameters
    ----------
    query
        ``wait_s``: how long to wait for coordination.

    Raises
    ------
    CoordinationUnavailable
        Coordination does not answer, or the table is no shard.
    """
    at = await table.cuts.clock(seconds(query, "wait_s", WAIT_S_DEFAULT))
    return {"cut": str(at), "replica": table.replica.name}


async def snapshot_at_cut(table: TableReplica, query: Mapping[str, str]) -> bytes:
    """Return a snapshot at a cut as JSON.

    Parameters
    ----------
    query
        ``at``: the cut; ``clock``: 1 when it is one of `linearizable_cut`; ``wait_s``: how long to wait until everything below
        is executed; others as of `snapshot_below`.

    Raises
    ------
    BadInput
        ``at`` is no cut.
    ReplicaBehind
        This replica does not have that much in time.
    SnapshotExpired
        The cut is of another ensemble, or what the table was there is not known any more.
    CoordinationUnavailable
        Coordination does not answer.
    """
    at, wait_s = parse_cut(query.get("at", "")), seconds(query, "wait_s", WAIT_S_DEFAULT)
    until, by_clock = time.monotonic() + wait_s, query.get("clock") == "1"
    known = await table.cuts.known(at, wait_s, by_clock=by_clock)
    shard = table.progress.replica.table
    procedure = position_at(shard, at.zxid, known.end, layout.sharded_of(shard) if by_clock else None)
    position = await _run(table, procedure, until, known.session)
    match position:
        case CutNotYet():
            raise ReplicaBehind(f"replica {table.replica.name} has not heard of the cut {at} yet; try again")
        case CutGone():
            raise SnapshotExpired(
                f"replica {table.replica.name} can't tell any more what the table was at {at}: entries of its log were"
                " removed, or it was made anew; take a new snapshot"
            )
    return await asyncio.to_thread(snapshot_below, table, query, position)


def snapshot_now(table: TableReplica, query: Mapping[str, str], at: Cut, end: CutEnd) -> bytes | None:
    """Return a snapshot at a cut as JSON; None: what is below is not executed, or not known any more.

    Parameters
    ----------
    query
        As of `snapshot_at_cut`.
    at
        The cut.
    end
        Where the log ended when everything up to the cut was in it.

    Raises
    ------
    SnapshotExpired, CoordinationUnavailable
        As of `snapshot_at_cut`.
    """
    position = table.cuts.run(index_at(table.progress.replica.table, end, at.zxid))
    if isinstance(position, CutGone) or not table.progress.is_readable(position):
        return None
    return snapshot_below(table, query, position)


async def feed_positions(table: TableReplica, query: Mapping[str, str]) -> dict[str, object]:
    """Return where cuts lie in the log of a shard: what is below is executed, and is in the cut.

    Parameters
    ----------
    query
        ``cuts``: the cuts, with commas between them; ``wait_s``: how long to wait until everything below is executed;
        ``earliest``: 1 when the answer is to tell from where on this replica has the feed; ``entry``: the index of an entry
        whose transaction it is to tell.

    Raises
    ------
    BadInput
        One of them is no cut, or the table is no shard.
    FeedOff
        The table keeps no feed.
    ReplicaBehind
        This replica does not have that much in time.
    OffsetExpired, SnapshotExpired
        Where a cut lies is not known any more; it is of another ensemble.
    CoordinationUnavailable
        Coordination does not answer.
    """
    name, shard = table.replica.name, table.progress.replica.table
    if not is_shard_name(shard.name):
        raise BadInput(f"table {shard.name} is no shard: its feed is read from an index of its log on")
    cuts = [parse_cut(each) for each in query.get("cuts", "").split(",") if each]
    wait_s = seconds(query, "wait_s", WAIT_S_DEFAULT)
    until = time.monotonic() + wait_s
    found = list[int]()
    for at in cuts:
        known = await table.cuts.known(at, wait_s, by_clock=False)
        position = await _run(table, position_at(shard, at.zxid, known.end), until, known.session)
        match position:
            case CutNotYet():
                raise ReplicaBehind(f"replica {name} has not heard of the cut {at} yet; try again")
            case CutGone() if known.end is not None and known.end.seen >= at.zxid:
                found.append(await asyncio.to_thread(table.feeds.position, at.zxid, known.end.index))
            case CutGone():
                raise ReplicaBehind(f"replica {name} has not heard of the cut {at} yet; try again")
            case _:
                found.append(position)
    told: dict[str, object] = {"positions": found, "replica": name}
    if query.get("earliest") == "1":
        await asyncio.to_thread(table.definitions.catch_up)
        told["earliest"] = await asyncio.to_thread(table.feeds.earliest_cut)
    if "entry" in query:
        entry = fx.LogIndex(number(query, "entry", 0))
        told["transaction"] = await asyncio.to_thread(table.feeds.transaction, entry)
    return told


async def _run(table: TableReplica, procedure: fx.Procedure[T], until: float, session: int) -> T:
    """Run a procedure to its end; what it waits for is there until then (monotonic seconds), or `ReplicaBehind` is raised.

    So it is when the session has changed: an answer of another session may be of another ensemble.
    """
    outcome: object = None
    waits_s = table.context.metrics.cut_waits_s.labels(table.replica.table.name)

    def advance() -> AwaitExecuted | None:
        """Perform effects up to the next wait; None: the procedure has ended, with `outcome`."""
        nonlocal outcome
        try:
            while not isinstance(effect := procedure.send(outcome), AwaitExecuted):
                outcome = table.cuts.perform(effect)
        except StopIteration as stop:
            outcome = stop.value
            return None
        return effect

    try:
        while (awaited := await asyncio.to_thread(advance)) is not None:
            with waits_s.time():
                await wait_executed(table, awaited.index, until)
            outcome = table.progress.pointer
    finally:
        procedure.close()
    if table.cuts.session != session:
        raise ReplicaBehind(f"the session of replica {table.replica.name} with coordination has changed; try again")
    return cast("T", outcome)
