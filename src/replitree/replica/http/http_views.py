"""Materialised views over HTTP: create, drop, fill."""

from __future__ import annotations

import asyncio

import msgspec
from aiohttp import web

from replitree.replica.http.gate import WAIT_S_DEFAULT, seconds, wait_until
from replitree.replica.http.http_base import Handlers, json_response, read_body
from replitree.replica.http.snapshot_requests import version_here
from replitree.replica.parts.commands import outcome_of
from replitree.replica.table.views import ViewWish


class ViewBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of a creation; `backfill`: whether the rows that the source has already come, too."""

    name: str
    target: str
    select: dict[str, str]
    where: str = ""
    group_by: tuple[str, ...] = ()
    backfill: bool = True
    id: str | None = None


class DropViewBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of a drop."""

    id: str | None = None


class ViewHandlers(Handlers):
    """The handlers."""

    def routes(self) -> tuple[web.RouteDef, ...]:
        """Return the routes."""
        views = "/v1/tables/{table}/views"
        return (
            web.post(views, self._create),
            web.post(f"{views}/{{name}}/drop", self._drop),
            web.post(f"{views}/{{name}}/backfill", self._fill),
        )

    async def _create(self, request: web.Request) -> web.Response:
        table, wait_s = self._table(request), seconds(request.query, "wait_s", WAIT_S_DEFAULT)
        body = await read_body(request, ViewBody)
        wish = ViewWish(body.name, body.target, body.select, body.where, body.group_by, body.backfill)
        wanted, index = await asyncio.to_thread(table.views.create, wish, body.id)
        await wait_until(table, lambda: table.progress.is_executed(index), wait_s)
        return json_response({"id": wanted, **outcome_of(table.progress, index)})

    async def _drop(self, request: web.Request) -> web.Response:
        table, wait_s = self._table(request), seconds(request.query, "wait_s", WAIT_S_DEFAULT)
        body = await read_body(request, DropViewBody)
        wanted, index = await asyncio.to_thread(table.views.drop, request.match_info["name"], body.id)
        await wait_until(table, lambda: table.progress.is_executed(index), wait_s)
        return json_response({"id": wanted, **outcome_of(table.progress, index)})

    async def _fill(self, request: web.Request) -> web.Response:
        table, name = self._table(request), request.match_info["name"]
        wait_s = request.query.get("wait_s", str(WAIT_S_DEFAULT))
        created = await asyncio.to_thread(table.views.created_at, name)
        if created is None:
            return json_response({"outcome": "duplicate", "index": None, "rows": 0})
        await version_here(table, {"as_of": str(created), "wait_s": wait_s})
        return json_response(await asyncio.to_thread(table.views.fill, name, created))
