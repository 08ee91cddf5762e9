"""Whether this server can use an object store, asked before a table is created on it.

Without the question a table would be left behind that no replica can serve.
"""

from __future__ import annotations

import asyncio

import msgspec
from aiohttp import web

from replitree.replica.http.http_base import Handlers, json_response, read_body


class StoreCheckBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of a check: a store's URL, and the table that is to lie there."""

    url: str
    table: str


class StoreHandlers(Handlers):
    """The handler."""

    def routes(self) -> tuple[web.RouteDef, ...]:
        """Return the route."""
        return (web.post("/v1/stores/check", self._check),)

    async def _check(self, request: web.Request) -> web.Response:
        body = await read_body(request, StoreCheckBody)
        return json_response(await asyncio.to_thread(self._tables.check_store, body.url, body.table))
