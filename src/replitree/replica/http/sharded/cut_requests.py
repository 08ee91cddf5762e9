"""Requests for cuts over shards: what a replica has seen, the clock, and a snapshot at a cut (`protocol.sharded.cut`).

``GET …/cut``
    ``{"cut", "index"}``: the highest cut that the replica can show, and where its log ended; ``written=`` an index: also
    ``written``, the transaction from which on a cut has the entry there
``POST …/cut``
    ``{"cut"}``: a cut that has everything which was acknowledged before the request
``GET …/cut/snapshot?at=``
    a snapshot as of ``GET …/snapshot``, with its lease; ``clock=1``: the cut is one of ``POST …/cut``

The procedures run on the event loop: an effect that asks coordination is performed by a thread, and a wait for the executor
holds none.

Absent on purpose: metrics, and one question for all readers that come at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, TypeVar, cast
from uuid import uuid4

from replitree.coordination.stamped import StampedCoordination
from replitree.errors import CoordinationUnavailable, ReplicaBehind, SnapshotExpired
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.sharded.cut import (
    AwaitExecuted,
    Cut,
    CutGone,
    CutNotYet,
    advance_clock,
    name_ensemble,
    parse_cut,
    position_at,
    seen_here,
)
from replitree.replica.http.gate import WAIT_S_DEFAULT, number, seconds
from replitree.replica.http.snapshot_requests import snapshot_below, wait_executed
from replitree.replica.table.table_replica import TableReplica

T = TypeVar("T")

CLOCK_ATTEMPTS_MAX = 3
"""How often the clock is written when the answer is lost, before the reader hears that coordination is not to be had."""


async def seen(table: TableReplica, query: Mapping[str, str]) -> dict[str, object]:
    """Return what this replica has seen of its log, when everything in it is executed.

    Parameters
    ----------
    query
        ``wait_s``: how long to wait for that; ``written``: the index of an entry that must be in the reader's cut.  Then the
        answer has the transaction from which on a cut has it.

    Raises
    ------
    ReplicaBehind
        It is not executed in time, or the replica does not find the entry yet.
    CoordinationUnavailable
        Coordination does not answer.
    """
    until = time.monotonic() + seconds(query, "wait_s", WAIT_S_DEFAULT)
    ensemble = await _ensemble(table)
    written = fx.LogIndex(number(query, "written", 0)) if "written" in query else None
    end = await _run(table, seen_here(table.progress.replica.table, written), until)
    if isinstance(end, CutNotYet):
        what = "the log of its table" if written is None else f"the entry at {written} of its log"
        raise ReplicaBehind(f"replica {table.replica.name} does not find {what}; ask another replica")
    told = {"cut": str(Cut(ensemble, end.seen)), "index": end.index, "replica": table.replica.name}
    return told if written is None else {**told, "written": end.written}


async def linearizable_cut(table: TableReplica) -> dict[str, object]:
    """Return a cut that has everything which was acknowledged before.

    Raises
    ------
    CoordinationUnavailable
        Coordination does not answer, or the table is no shard.
    """
    ensemble, place = await _ensemble(table), layout.sharded_of(table.replica.table)
    for _ in range(CLOCK_ATTEMPTS_MAX):
        zxid = await _run(table, advance_clock(place), time.monotonic())
        if zxid is not None:
            return {"cut": str(Cut(ensemble, zxid)), "replica": table.replica.name}
    raise CoordinationUnavailable(
        f"the clock at {place} could not be written: {CLOCK_ATTEMPTS_MAX} times the answer was lost, or the table is no"
        " shard of a sharded table; try again, or ask another replica"
    )


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
    at, until = parse_cut(query.get("at", "")), time.monotonic() + seconds(query, "wait_s", WAIT_S_DEFAULT)
    if at.ensemble != await _ensemble(table):
        raise SnapshotExpired(f"the cut {at} is of an ensemble that was replaced since; take a new snapshot")
    shard = table.progress.replica.table
    place = layout.sharded_of(shard) if query.get("clock") == "1" else None
    position = await _run(table, position_at(shard, at.zxid, None, place), until)
    match position:
        case CutNotYet():
            raise ReplicaBehind(f"replica {table.replica.name} has not heard of the cut {at} yet; try again")
        case CutGone():
            raise SnapshotExpired(
                f"replica {table.replica.name} can't tell any more what the table was at {at}: entries of its log were"
                " removed, or it was made anew; take a new snapshot"
            )
    return await snapshot_below(table, query, position)


async def _ensemble(table: TableReplica) -> str:
    """Return the id of the ensemble that this process has its session with."""
    # Asked each time: below one address another ensemble may answer a later session.
    root = layout.root_of(table.replica.table)
    named = await _run(table, name_ensemble(root, uuid4().hex), time.monotonic())
    if named is None:
        raise CoordinationUnavailable(f"the id of the ensemble at {root} could not be read; try again")
    return named


async def _run(table: TableReplica, procedure: fx.Procedure[T], until: float) -> T:
    """Run a procedure to its end; what it waits for is there until then (monotonic seconds), or `ReplicaBehind` is raised."""
    # Every provider of coordination tells transaction numbers.
    session, outcome = cast("StampedCoordination", table.coordination()), cast("Any", None)
    try:
        while True:
            effect: Any = procedure.send(outcome)
            match effect:
                case AwaitExecuted(index):
                    await wait_executed(table, index, until)
                    outcome = table.progress.pointer
                case fx.CurrentSession():
                    outcome = session.session_id
                case _:
                    outcome = await asyncio.to_thread(session.perform, effect)
    except StopIteration as stop:
        return cast("T", stop.value)
    finally:
        procedure.close()
