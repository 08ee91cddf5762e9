"""Snapshots and their leases over HTTP."""

from __future__ import annotations

import asyncio

import msgspec
from aiohttp import web

from replitree.errors import BadInput, CorruptPart, ReplicaUnavailable, SnapshotExpired
from replitree.protocol.effects import LogIndex
from replitree.replica.http_base import (
    WAIT_S_DEFAULT,
    Handlers,
    encode_json,
    json_response,
    number,
    seconds,
    wait_until,
)
from replitree.replica.identity import machine_id
from replitree.replica.old_parts import LEASE_S_MAX
from replitree.replica.snapshots import Taken, take_snapshot
from replitree.replica.table_replica import TableReplica


class ReadHandlers(Handlers):
    """The handlers."""

    def routes(self) -> tuple[web.RouteDef, ...]:
        """Return the routes."""
        table = "/v1/tables/{table}"
        return (
            web.get(f"{table}/snapshot", self._snapshot),
            web.post(f"{table}/leases/{{lease}}", self._renew),
            web.delete(f"{table}/leases/{{lease}}", self._release),
        )

    async def _snapshot(self, request: web.Request) -> web.Response:
        """Wait for what the reader must see, then take a snapshot."""
        table = self._table(request)
        if table.recovery.unreadable is not None:  # nobody waits for that: another replica has the rows
            raise ReplicaUnavailable(f"{table.why_unreadable()}; ask another replica")
        wait_s = seconds(request, "wait_s", WAIT_S_DEFAULT)
        as_of = LogIndex(number(request, "as_of", 0)) if "as_of" in request.query else None
        wanted = max(number(request, "min_index", 0), as_of or 0)
        mutated = number(request, "mutated", -1) if as_of is None else as_of - 1
        await self._wait(table, wanted, LogIndex(mutated), wait_s)
        lease_s = seconds(request, "lease_s", 0.0, LEASE_S_MAX) or None
        body = await asyncio.to_thread(_snapshot_body, table, as_of, lease_s)
        return web.Response(body=body, content_type="application/json")

    async def _wait(self, table: TableReplica, wanted: int, mutated: LogIndex, wait_s: float) -> None:
        """Wait until every insert and drop below `wanted`, and every mutation up to `mutated`, is executed here."""
        progress = table.progress

        def is_there() -> bool:
            return progress.index >= wanted and (mutated < 0 or progress.is_mutated(mutated))

        if not await wait_until(table, is_there, wait_s):
            raise ReplicaUnavailable(
                f"replica {table.replica.name} has executed the log up to {progress.index}, not yet to "
                f"{max(wanted, mutated + 1)}, after {wait_s:g} s; wait longer or ask another replica"
            )

    async def _renew(self, request: web.Request) -> web.Response:
        table, lease = self._table(request), request.match_info["lease"]
        lease_s = seconds(request, "lease_s", 60.0, LEASE_S_MAX)
        if not lease_s:
            raise BadInput("lease_s=0 keeps nothing; DELETE releases a lease")
        table.old_parts.renew(lease, lease_s)
        return json_response({"lease": lease, "lease_s": lease_s})

    async def _release(self, request: web.Request) -> web.Response:
        self._table(request).old_parts.release(request.match_info["lease"])
        return json_response({})


def _snapshot_body(table: TableReplica, as_of: LogIndex | None, lease_s: float | None) -> bytes:
    """Take a snapshot and return it as JSON; the manifests go in as they are on disk, never decoded."""
    taken = take_snapshot(table, as_of, lease_s)
    try:
        rows = [_row(table, part) for part in sorted(taken.parts)]
    except CorruptPart as error:
        if taken.lease is not None:
            table.old_parts.release(taken.lease)
        raise SnapshotExpired(f"{error}; take a new snapshot") from error
    head = {"index": taken.index, "schema_version": table.definition.schema_version, "replica": table.replica.name}
    return encode_json({**head, "machine": machine_id(), "parts": rows, **_lease(taken, lease_s)})


def _row(table: TableReplica, part: str) -> dict[str, object]:
    manifest = msgspec.Raw(table.store.manifest_bytes(part))
    return {"part": part, "path": str(table.store.part_path(part)), "manifest": manifest}


def _lease(taken: Taken, lease_s: float | None) -> dict[str, object]:
    return {} if taken.lease is None else {"lease": taken.lease, "lease_s": lease_s}
