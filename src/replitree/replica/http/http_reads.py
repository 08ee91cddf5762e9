"""Snapshots, their leases and the change feed over HTTP; and what the version log knows: earlier entries, what a time means."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

import msgspec
from aiohttp import web

from replitree.errors import BadInput, CorruptPart, ReplicaBehind, ReplicaUnavailable
from replitree.protocol.core.effects import LogIndex
from replitree.protocol.core.stamps import BEFORE_ALL
from replitree.replica.http.gate import WAIT_S_DEFAULT, JsonAnswer, encode_json, number, seconds, wait_until
from replitree.replica.http.http_base import Handlers, json_response, response
from replitree.replica.http.sharded.cut_requests import feed_positions, linearizable_cut, seen, snapshot_at_cut
from replitree.replica.http.sharded.server_cuts import snapshots_of_shards
from replitree.replica.http.snapshot_requests import part_row, readers_machine, snapshot
from replitree.replica.kit.old_parts import LEASE_S_MAX
from replitree.replica.table.feeds import TakenFeed
from replitree.replica.table.table_replica import TableReplica
from replitree.wire.feed_errors import TableReplaced
from replitree.wire.remembered import PAGE_MAX, Earlier


class ReadHandlers(Handlers):
    """The handlers."""

    def routes(self) -> tuple[web.RouteDef, ...]:
        """Return the routes."""
        table = "/v1/tables/{table}"
        return (
            web.get(f"{table}/snapshot", self._snapshot),
            web.get(f"{table}/cut", self._seen),
            web.post(f"{table}/cut", self._clock),
            web.get(f"{table}/cut/snapshot", self._cut_snapshot),
            web.post(f"{table}/cut/shards", self._cut_shards),
            web.get(f"{table}/written-by", self._written_by),
            web.get(f"{table}/feed", self._feed),
            web.get(f"{table}/feed/end", self._feed_end),
            web.get(f"{table}/feed/positions", self._feed_positions),
            web.get(f"{table}/earlier", self._before),
            web.post(f"{table}/leases/{{lease}}", self._renew),
            web.delete(f"{table}/leases/{{lease}}", self._release),
        )

    async def _snapshot(self, request: web.Request) -> web.Response:
        """Take a snapshot: the parts that the table has at a level or an index, and a lease on them."""
        return response(JsonAnswer(200, await snapshot(self._table(request), request.query)))

    async def _seen(self, request: web.Request) -> web.Response:
        """Tell what this replica has seen of its log: it can show any cut up to there."""
        return json_response(await seen(self._table(request), request.query))

    async def _clock(self, request: web.Request) -> web.Response:
        """Write the clock of the sharded table that the table is a shard of; tell the cut."""
        return json_response(await linearizable_cut(self._table(request), request.query))

    async def _cut_snapshot(self, request: web.Request) -> web.Response:
        """Take a snapshot at a cut."""
        return response(JsonAnswer(200, await snapshot_at_cut(self._table(request), request.query)))

    async def _cut_shards(self, request: web.Request) -> web.Response:
        """Choose a cut, and take snapshots of several shards there."""
        body = await snapshots_of_shards(self._table(request), request.query, self._tables.table)
        return response(JsonAnswer(200, body))

    async def _feed(self, request: web.Request) -> web.Response:
        """Give a page of the change feed."""
        return response(JsonAnswer(200, await feed(self._table(request), request.query)))

    async def _feed_end(self, request: web.Request) -> web.Response:
        """Say up to which index the change feed can be read."""
        return response(JsonAnswer(200, await feed_end(self._table(request), request.query)))

    async def _feed_positions(self, request: web.Request) -> web.Response:
        """Tell where cuts lie in the log of a shard."""
        return json_response(await feed_positions(self._table(request), request.query))

    async def _written_by(self, request: web.Request) -> web.Response:
        """Find the last entry below ``below`` that was written at or before ``time_ms``."""
        query = request.query
        if missing := [name for name in ("time_ms", "below") if not query.get(name)]:
            raise BadInput(
                f"{missing[0]} is missing: give time_ms, in milliseconds since 1970, and below, an index of the log"
            )
        versions = self._table(request).local_parts.versions
        time_ms, below = number(query, "time_ms", 0), LogIndex(number(query, "below", 0))
        # Many segments may be read.
        reached = await asyncio.to_thread(versions.written_by, time_ms, below)
        return response(JsonAnswer(200, msgspec.json.encode(reached)))

    async def _before(self, request: web.Request) -> web.Response:
        """Return entries below ``below``, at most ``limit``."""
        query = request.query
        if not query.get("below"):
            raise BadInput("below is missing: give an index of the log, and limit, how many entries at most")
        versions = self._table(request).local_parts.versions
        below, limit = LogIndex(number(query, "below", 0)), min(number(query, "limit", PAGE_MAX), PAGE_MAX)
        # Several segments may be read.
        found = await asyncio.to_thread(versions.before, below, max(1, limit))
        return response(JsonAnswer(200, msgspec.json.encode(Earlier(tuple(found)))))

    async def _renew(self, request: web.Request) -> web.Response:
        """Renew a lease on a snapshot."""
        table, lease = self._table(request), request.match_info["lease"]
        lease_s = seconds(request.query, "lease_s", 60.0, LEASE_S_MAX)
        if not lease_s:
            raise BadInput("lease_s=0 keeps nothing; DELETE releases a lease")
        table.old_parts.renew(lease, lease_s)
        return json_response({"lease": lease, "lease_s": lease_s})

    async def _release(self, request: web.Request) -> web.Response:
        """End a lease on a snapshot."""
        self._table(request).old_parts.release(request.match_info["lease"])
        return json_response({})


# --- the change feed ---


async def feed(table: TableReplica, query: Mapping[str, str]) -> bytes:
    """Return what a range of the log feeds, as JSON.

    Parameters
    ----------
    query
        ``from``: the first entry; ``to``: the one after the last, by default what this replica has; ``at_least``: without
        ``to``, the lowest end; ``of``: of which table (`origin_of`), or its id alone; ``wait_s``: how long to wait for the
        end; ``lease_s``: how long the parts are kept.

    Raises
    ------
    FeedOff, OffsetExpired, FeedGap, TableReplaced
        See `replitree.replica.table.feeds`.
    ReplicaBehind
        This replica has not executed the log up to the end in time.
    """
    if not query.get("from"):
        raise BadInput("from is missing: it is the index of the first entry of the feed")
    start = LogIndex(number(query, "from", 0))
    end = LogIndex(number(query, "to", 0)) if "to" in query else None
    if end is not None and end < start:
        raise BadInput(f"the feed is asked for from {start} up to {end}, which is before that")
    until = time.monotonic() + seconds(query, "wait_s", WAIT_S_DEFAULT)
    of, origin = query.get("of", ""), origin_of(table)
    if of not in {"", origin, table.definition.table_id}:
        raise TableReplaced(
            f"the reader began with table {of}, and this is {origin}: table {table.definition.name} was dropped and created"
            " again, or restored. Start anew, from a snapshot"
        )
    least, progress = LogIndex(number(query, "at_least", 0)) if end is None else end, table.progress
    # What is executed is also in the journal.
    left_s = max(0.0, until - time.monotonic())
    if not await wait_until(table, lambda: (progress.executed_end or LogIndex(0)) >= least, left_s):
        raise ReplicaBehind(
            f"replica {table.replica.name} has executed the log up to {progress.executed_end}, and the feed is asked for up"
            f" to {least}: allow more time, or ask another replica"
        )
    taken = await asyncio.to_thread(_take, table, start, end, seconds(query, "lease_s", 0.0, LEASE_S_MAX))
    if taken.end < least:
        raise ReplicaBehind(f"replica {table.replica.name} has gone back to {taken.end}; try again")
    return await asyncio.to_thread(_body, table, taken, query)


async def feed_end(table: TableReplica, query: Mapping[str, str]) -> bytes:
    """Return as JSON up to where this replica can give the feed, and from where on, waiting for more than ``after``.

    Parameters
    ----------
    query
        ``after``: the answer is given as soon as the end is above it, or when ``wait_ms`` is over; ``earliest``: ``0`` leaves
        out from where on the feed can be given, for which every entry of the feed is looked at.

    Raises
    ------
    FeedOff
        The table keeps no feed.
    """
    after = LogIndex(number(query, "after", -1)) if "after" in query else LogIndex(-1)
    wait_s, is_short = number(query, "wait_ms", 0) / 1_000, query.get("earliest") == "0"
    feeds = table.feeds

    def is_there() -> bool:
        end = feeds.end
        return end is not None and end > after

    earliest = await asyncio.to_thread(_check if is_short else _earliest, table)
    # A reader that waits all the time must cost coordination nothing.
    await wait_until(table, is_there, wait_s, hurries=False)
    end = feeds.end
    if end is None:
        raise ReplicaUnavailable(f"{table.why_unreadable() or 'the replica reads its state'}; ask another replica")
    found = {} if earliest is None else {"feed_from": earliest}
    return encode_json({"end": end, **found, "origin": origin_of(table), "replica": table.replica.name})


def origin_of(table: TableReplica) -> str:
    """Return which table this is: its id, and its incarnation."""
    return f"{table.definition.table_id}.{table.replica.table.incarnation}"


def _earliest(table: TableReplica) -> LogIndex:
    table.definitions.catch_up()
    return table.feeds.earliest()


def _check(table: TableReplica) -> None:
    if table.definitions.is_behind:
        table.definitions.catch_up()
    table.feeds.check()


def _take(table: TableReplica, start: LogIndex, end: LogIndex | None, lease_s: float) -> TakenFeed:
    if table.definitions.is_behind:
        table.definitions.catch_up()
    return table.feeds.take_some(start, end, lease_s)


def _body(table: TableReplica, taken: TakenFeed, query: Mapping[str, str]) -> bytes:
    try:
        parts = [part_row(table, part) for part in sorted(taken.parts)]
    except (CorruptPart, ReplicaUnavailable) as error:
        if taken.lease is not None:
            table.old_parts.release(taken.lease)
        raise ReplicaUnavailable(f"{error}; ask another replica") from error
    units = [
        {
            "index": entry.index,
            "us": entry.timestamp_us,
            "type": unit.type,
            "part": unit.part.name,
            **({} if unit.before is None else {"before": unit.before.name}),
        }
        for entry in taken.entries
        for unit in entry.feed.units
    ]
    altered = [(entry.index, entry.feed.schema_version) for entry in taken.entries if entry.feed.schema_version]
    # In a shard each entry is told with its transaction.
    zxids = [(entry.index, entry.zxid) for entry in taken.entries if entry.zxid != BEFORE_ALL]
    stamps = {"zxids": zxids} if zxids else {}
    head = {
        "start": taken.start,
        "index": taken.reached,
        "end": taken.end,
        "origin": origin_of(table),
        "schema_version": table.definition.schema_version,
        "replica": table.replica.name,
        "machine": readers_machine(table),
    }
    lease = (
        {} if taken.lease is None else {"lease": taken.lease, "lease_s": seconds(query, "lease_s", 0.0, LEASE_S_MAX)}
    )
    return encode_json({**head, "units": units, "altered": altered, **stamps, "parts": parts, **lease})
