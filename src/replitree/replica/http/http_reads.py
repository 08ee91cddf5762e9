"""Snapshots and their leases over HTTP; and which index of the log a time means, as far as the version log goes back."""

from __future__ import annotations

import asyncio

import msgspec
from aiohttp import web

from replitree.errors import BadInput
from replitree.protocol.core.effects import LogIndex
from replitree.replica.http.gate import JsonAnswer, number, seconds
from replitree.replica.http.http_base import Handlers, json_response, response
from replitree.replica.http.snapshot_requests import snapshot
from replitree.replica.kit.old_parts import LEASE_S_MAX


class ReadHandlers(Handlers):
    """The handlers."""

    def routes(self) -> tuple[web.RouteDef, ...]:
        """Return the routes."""
        table = "/v1/tables/{table}"
        return (
            web.get(f"{table}/snapshot", self._snapshot),
            web.get(f"{table}/written-by", self._written_by),
            web.post(f"{table}/leases/{{lease}}", self._renew),
            web.delete(f"{table}/leases/{{lease}}", self._release),
        )

    async def _snapshot(self, request: web.Request) -> web.Response:
        return response(JsonAnswer(200, await snapshot(self._table(request), request.query)))

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

    async def _renew(self, request: web.Request) -> web.Response:
        table, lease = self._table(request), request.match_info["lease"]
        lease_s = seconds(request.query, "lease_s", 60.0, LEASE_S_MAX)
        if not lease_s:
            raise BadInput("lease_s=0 keeps nothing; DELETE releases a lease")
        table.old_parts.renew(lease, lease_s)
        return json_response({"lease": lease, "lease_s": lease_s})

    async def _release(self, request: web.Request) -> web.Response:
        self._table(request).old_parts.release(request.match_info["lease"])
        return json_response({})
