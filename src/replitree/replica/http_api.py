"""The replica's HTTP server: what is around every request, and where each goes.

Everything but `/health` and `/metrics` wants the cluster's token.  Errors are JSON (`errors_http`).  The handlers check, hand
over to the table replica, and wait without blocking the loop.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from replitree.errors import NotAuthorized, ReplitreeError, StoreError
from replitree.replica.errors_http import body_of, status_of
from replitree.replica.fast_path import FastPath
from replitree.replica.http_base import Handlers, Tables, json_response
from replitree.replica.http_commands import CommandHandlers
from replitree.replica.http_exchange import ExchangeHandlers
from replitree.replica.http_insert import InsertHandlers
from replitree.replica.http_merges import MergeHandlers
from replitree.replica.http_reads import ReadHandlers
from replitree.replica.table_replica import TableReplica

INSERT_BYTES_MAX = 32 << 20


class HttpApi(Handlers):
    """The application.

    Parameters
    ----------
    tables
        The server.
    token
        The cluster's shared secret.
    insert_timeout_s
        Seconds after which a client hears "outcome unknown".
    """

    def __init__(self, tables: Tables, token: str, insert_timeout_s: float) -> None:
        super().__init__(tables)
        self._token = token.encode()
        self.inserts = InsertHandlers(tables, insert_timeout_s)
        self._groups = (
            self.inserts,
            ReadHandlers(tables),
            CommandHandlers(tables),
            MergeHandlers(tables),
            ExchangeHandlers(tables),
        )

    def application(self) -> web.Application:
        """Return the application with all routes."""
        app = web.Application(client_max_size=INSERT_BYTES_MAX)
        routes = [
            web.get("/health", self._health),
            web.get("/metrics", self._metrics),
            web.get("/v1/status", self._status),
            web.get("/v1/tables/{table}/status", self._table_status),
            *(route for group in self._groups for route in group.routes()),
        ]
        app.add_routes([web.RouteDef(route.method, route.path, self._guarded(route.handler), {}) for route in routes])
        return app

    def fast_path(self) -> FastPath:
        """Return what listens: it serves small inserts, and hands everything else over to the application."""
        return FastPath(self, self.inserts.mailbox, self.inserts.insert_timeout_s)

    # --- around every request ---

    def _guarded(self, handler: Callable[..., Any]) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """Return the handler with the token asked for and errors turned into answers (cheaper than a middleware)."""

        async def guarded(request: web.Request) -> web.StreamResponse:
            return await self._errors(request, handler)

        return guarded

    async def _errors(self, request: web.Request, handler: Callable[..., Any]) -> web.StreamResponse:
        """Ask for the token, run the handler, and turn errors into answers."""
        try:
            if request.path not in ("/health", "/metrics"):
                self.authorize(request.headers.get("Authorization", ""))
            response: web.StreamResponse = await handler(request)
        except (web.HTTPException, asyncio.CancelledError):
            raise
        except ConnectionError:
            if request.transport is not None and not request.transport.is_closing():
                raise
            return web.Response(status=400)  # who asked has gone; nobody hears this
        except Exception as error:  # noqa: BLE001 - whatever it is, the client hears of it
            return self.answer_to(error, request.path)
        return response

    def answer_to(self, error: Exception, path: str) -> web.Response:
        """Return the answer to a request that failed; a defect of ours is logged, and the server lives on."""
        if isinstance(error, ReplitreeError):
            return json_response(body_of(error), status_of(error))
        if isinstance(error, OSError):
            return json_response(body_of(StoreError(f"disk: {error.strerror or error}")), 507)
        self._tables.log.defect("request failed", path=path)
        return json_response({"error": "ReplitreeError", "message": f"defect: {error!r}"}, 500)

    def find(self, table: str) -> TableReplica:
        """Return a hosted table, or raise `TableNotFound`."""
        return self._tables.table(table)

    def authorize(self, header: str) -> None:
        """Raise `NotAuthorized` unless an ``Authorization`` header has the cluster's token."""
        scheme, _, given = header.partition(" ")
        if scheme != "Bearer" or not hmac.compare_digest(given.encode(), self._token):
            raise NotAuthorized("the token is missing or wrong: use the token of this cluster (REPLITREE_TOKEN)")

    # --- looking ---

    async def _health(self, _: web.Request) -> web.Response:
        health = self._tables.health()
        return json_response(health, 200 if health["state"] == "ok" else 503)

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=self._tables.metrics.render(), content_type="text/plain", charset="utf-8")

    async def _status(self, _: web.Request) -> web.Response:
        return json_response(await asyncio.to_thread(self._tables.status))

    async def _table_status(self, request: web.Request) -> web.Response:
        return json_response(await asyncio.to_thread(self._table(request).status))
