"""The replica's general HTTP server: what is around every request, and where each goes.

Everything but `/health` wants a token, whose role must be that of the route (`replitree.replica.http.roles`).  Errors are JSON
(`errors_http`).  The handlers check, hand over to the table replica, and wait without blocking the loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import HttpVersion11, web

from replitree.errors import NotAuthorized
from replitree.replica.http.gate import Gate, Tables
from replitree.replica.http.http_base import KNOWN_AS, Handlers, json_response, read_body, response
from replitree.replica.http.http_commands import CommandHandlers
from replitree.replica.http.http_exchange import ExchangeHandlers
from replitree.replica.http.http_insert import InsertHandlers
from replitree.replica.http.http_merges import MergeHandlers, RewriteHandlers
from replitree.replica.http.http_reads import ReadHandlers
from replitree.replica.http.insert_requests import InsertRequests
from replitree.replica.http.received import RECEIVED, Received
from replitree.replica.http.roles import permit
from replitree.replica.http.sharded.http_joint import JointHandlers
from replitree.replica.kit.tokens import Grant
from replitree.wire import tracing
from replitree.wire.ticket import Ticket


class StoreCheckBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of a check: a store's URL, and the table that is to lie there."""

    url: str
    table: str


class HttpApi(Handlers):
    """The application.

    Parameters
    ----------
    tables
        The server.
    gate
        Stands before every request.
    inserts
        Takes inserts.
    """

    def __init__(self, tables: Tables, gate: Gate, inserts: InsertRequests) -> None:
        super().__init__(tables)
        self._gate = gate
        self._received = Received(inserts.bodies.held)
        self._groups = (
            # First: aiohttp tries the paths of a table in this order, and every other replica fetches each small insert's part.
            ExchangeHandlers(tables),
            InsertHandlers(tables, inserts),
            JointHandlers(tables, inserts),
            ReadHandlers(tables),
            CommandHandlers(tables),
            MergeHandlers(tables),
            RewriteHandlers(tables),
        )

    def application(self) -> web.Application:
        """Return the application with all routes."""
        app = web.Application()
        app[RECEIVED] = self._received
        routes = [
            *(route for group in self._groups for route in group.routes()),
            web.get("/health", self._health),
            web.get("/metrics", self._metrics),
            web.get("/v1/status", self._status),
            web.post("/v1/stores/check", self._check_store),
            web.get("/v1/tables/{table}/status", self._status),
        ]
        expecting = {"expect_handler": _meet_expectation}
        app.add_routes(
            [web.RouteDef(route.method, route.path, self._guarded(route.handler), expecting) for route in routes]
        )
        found = app.router.resolve

        async def resolve(request: web.Request) -> web.UrlMappingMatchInfo:
            match = await found(request)
            # This is raised before aiohttp answers the `Expect` header of a request for an unknown path.
            if match.http_exception is not None:
                raise match.http_exception
            return match

        setattr(app.router, "resolve", resolve)  # noqa: B010 - no type checker lets a method be assigned
        return app

    # --- around every request ---

    def _guarded(self, handler: Callable[..., Any]) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """Return the handler with the token asked for and errors turned into answers (cheaper than a middleware)."""

        async def guarded(request: web.Request) -> web.StreamResponse:
            grant = None
            KNOWN_AS.set("")
            try:
                if request.path == "/health":
                    answer: web.StreamResponse = await handler(request)
                else:
                    grant, ticket = self._gate.admit(request.headers.get("Authorization", ""))
                    self._permit(request, grant, ticket)
                    with tracing.begin(
                        "request", kind="server", traceparent=tracing.traceparent_of(request.headers)
                    ) as span:
                        span.note(action=request.path.rpartition("/")[2], table=request.match_info.get("table"))
                        answer = await handler(request)
            except (web.HTTPException, asyncio.CancelledError):
                raise
            except ConnectionError:
                if request.transport is not None and not request.transport.is_closing():
                    raise
                # The client has closed the connection, so this answer is not read.
                return web.Response(status=400)
            except Exception as error:  # noqa: BLE001 - whatever it is, the client hears of it
                answer = response(self._gate.answer_to(error, request.path))
            finally:
                self._received.give_back(request)
            if grant is not None:
                known_as = KNOWN_AS.get() or request.query.get("token", "")
                table = request.match_info.get("table", "")
                self._gate.answered(grant, _route(request), table, known_as, answer.status)
            return answer

        return guarded

    def _permit(self, request: web.Request, grant: Grant, ticket: Ticket | None) -> None:
        """Raise `NotAuthorized` unless a token allows the route of a request, and the ticket, if it is one, opens it."""
        route = _route(request)
        permit(grant, route, request.match_info.get("table"))
        if ticket is not None and not ticket.opens(request.method, route[1], request.match_info, time.time()):
            raise NotAuthorized("the ticket of this Spark task is for something else, or too old: make the frame again")

    # --- looking ---

    async def _health(self, request: web.Request) -> web.Response:
        """Say in a word how the server is, or with `?ready` whether all tables serve reads."""
        return response(self._gate.health(asks_ready=request.query_string == "ready"))

    async def _metrics(self, _: web.Request) -> web.Response:
        """Return the metrics, for Prometheus."""
        return web.Response(body=self._tables.metrics.render(), headers={"Content-Type": "text/plain; charset=utf-8"})

    async def _check_store(self, request: web.Request) -> web.Response:
        """Try an object store before a table is created on it: otherwise a table would be left that no replica can serve."""
        body = await read_body(request, StoreCheckBody)
        return json_response(await asyncio.to_thread(self._tables.check_store, body.url, body.table))

    async def _status(self, request: web.Request) -> web.Response:
        """Return the status of the server, or of one table."""
        asked = self._table(request) if "table" in request.match_info else self._tables
        return json_response(await asyncio.to_thread(asked.status))


def _route(request: web.Request) -> tuple[str, str]:
    """Return the route of a request, as `ROLES` names it."""
    resource = request.match_info.route.resource
    return "GET" if request.method == "HEAD" else request.method, resource.canonical if resource is not None else ""


async def _meet_expectation(request: web.Request) -> None:
    """Let a client that waits for it send its body."""
    # aiohttp's own handler fails at a header that is not UTF-8.
    if request.version < HttpVersion11:
        return
    if request.headers.get("Expect", "").lower() != "100-continue":
        raise web.HTTPExpectationFailed(text="a replica meets no other expectation than 100-continue")
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    # aiohttp must not take this line for the beginning of the answer.
    request.writer.output_size = 0
