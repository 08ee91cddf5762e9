"""Merges that a client makes, over HTTP: which parts to merge, and the results."""

from __future__ import annotations

import asyncio

import msgspec
from aiohttp import web

from replitree.errors import BadInput
from replitree.replica.http.gate import WAIT_S_DEFAULT, encode_json, seconds, wait_until
from replitree.replica.http.http_base import Handlers, json_response, read_body
from replitree.replica.http.snapshot_requests import readers_machine
from replitree.replica.kit.old_parts import LEASE_S_MAX
from replitree.replica.parts.commands import merge_outcome
from replitree.replica.parts.merges import OptimizeWish
from replitree.replica.parts.prepared import Planned, ResultWish
from replitree.replica.table.table_replica import TableReplica
from replitree.storage.parts.manifest import FileEntry, PartManifest


class PlanBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of a plan: what to merge, and for how many seconds its parts are kept after each renewal of the lease."""

    partition: str | None = None
    final: bool = False
    lease_s: float = 60.0


class ResultBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of a result, see `replitree.replica.parts.prepared.ResultWish`."""

    upload: str
    sources: tuple[str, ...]
    schema_version: int
    files: tuple[FileEntry, ...]
    manifest: PartManifest | None = None
    tags: dict[str, str] = {}


class MergeHandlers(Handlers):
    """The handlers."""

    def routes(self) -> tuple[web.RouteDef, ...]:
        """Return the routes."""
        table = "/v1/tables/{table}"
        return (web.post(f"{table}/merges/plan", self._plan), web.post(f"{table}/merges/result", self._result))

    async def _plan(self, request: web.Request) -> web.Response:
        """Choose merges among the parts that the table has now."""
        table, wait_s = self._table(request), seconds(request.query, "wait_s", WAIT_S_DEFAULT)
        body = await read_body(request, PlanBody)
        if not 0.0 < body.lease_s <= LEASE_S_MAX:
            raise BadInput(f"lease_s={body.lease_s:g}: a lease lasts up to {LEASE_S_MAX:g} s after each renewal")
        end = await table.end_of_log.ask(table.context.config.session_timeout_s)
        await wait_until(table, lambda: table.progress.index >= end, wait_s)
        wish = OptimizeWish(body.partition, body.final, end)
        planned = await asyncio.to_thread(table.prepared.plan, wish, body.lease_s)
        found = await asyncio.to_thread(_plan_body, table, planned, body.lease_s, wish)
        return web.Response(body=found, content_type="application/json")

    async def _result(self, request: web.Request) -> web.Response:
        """Take a result over, and answer when its merge is executed here, or when `wait_s` is over."""
        table, wait_s = self._table(request), seconds(request.query, "wait_s", WAIT_S_DEFAULT)
        body = await read_body(request, ResultBody)
        wish = ResultWish(body.upload, body.sources, body.schema_version, body.files, body.manifest, body.tags)
        index = await asyncio.to_thread(table.prepared.publish, wish, table.availability.epoch())
        await wait_until(table, lambda: table.progress.is_executed(index), wait_s)
        return json_response(merge_outcome(table.progress, index))


def _plan_body(table: TableReplica, planned: Planned, lease_s: float, wish: OptimizeWish) -> bytes:
    """Return a plan as JSON; the manifests go in as they are on disk."""
    chosen = frozenset(sources[0].partition for sources, _ in planned.merges)
    merges: list[dict[str, object]] = []
    for parts, version in planned.merges:
        sources = [
            {
                "part": name,
                "path": str(table.store.part_path(name)),
                "manifest": msgspec.Raw(table.store.manifest_bytes(name)),
            }
            for name in (part.name for part in parts)
        ]
        merges.append({"schema_version": version, "sources": sources})
    head = {
        "replica": table.replica.name,
        "machine": readers_machine(table),
        "schema_version": table.definition.schema_version,
    }
    lease = {} if planned.lease is None else {"lease": planned.lease, "lease_s": lease_s}
    return encode_json({**head, "merges": merges, "busy": sorted(table.merges.busy(wish) - chosen), **lease})
