"""Merges and rewrites that a client makes, over HTTP: which parts, and what was made of them."""

from __future__ import annotations

import asyncio

import msgspec
from aiohttp import web

from replitree.errors import BadInput, ReplicaBehind
from replitree.protocol.core.entries import Unchanged
from replitree.replica.http.gate import WAIT_S_DEFAULT, Tables, encode_json, seconds, wait_until
from replitree.replica.http.http_base import Handlers, json_response, read_body
from replitree.replica.http.snapshot_requests import readers_machine
from replitree.replica.kit.old_parts import LEASE_S_MAX
from replitree.replica.parts.became import merge_outcome, outcome_of
from replitree.replica.parts.merges import OptimizeWish
from replitree.replica.parts.prepared import Planned, ResultWish
from replitree.replica.table.rewrites import BegunRewrite, RewriteWish, SentFiles
from replitree.replica.table.table_replica import TableReplica
from replitree.replica.uploads.upload_commits import UploadCommits
from replitree.replica.uploads.uploads import NoSuchUpload
from replitree.storage.parts.manifest import FileEntry, PartManifest


def check_lease_s(lease_s: float) -> None:
    """Raise `BadInput` unless a lease of this length may be granted; in seconds."""
    if not 0.0 < lease_s <= LEASE_S_MAX:
        raise BadInput(f"lease_s={lease_s:g}: a lease lasts up to {LEASE_S_MAX:g} s after each renewal")


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
        check_lease_s(body.lease_s)
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


# --- rewrites ----------------------------------------------------------------------------------------------------------------

MERGES_S = 5.0
"""How long a rewrite waits for merges of its parts that are under way."""


class BeginBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of a begin: the parts, or the partitions, and for how many seconds they are kept after each renewal of the lease."""

    sources: tuple[str, ...] | None = None
    partitions: tuple[str, ...] | None = None
    lease_s: float = 60.0


class AdoptBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of an adoption, see `replitree.replica.table.rewrites.SentFiles`."""

    upload: str
    schema_version: int
    hashes: dict[str, str]
    files: dict[str, tuple[str, ...]]
    new: tuple[str, ...] = ()
    is_stored: bool = False


class RewriteBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of a commit, see `replitree.replica.table.rewrites.RewriteWish`."""

    upload: str
    id: str
    schema_version: int
    results: dict[str, PartManifest | None]
    inserts: tuple[PartManifest, ...] = ()
    unchanged: Unchanged | None = None
    tags: dict[str, dict[str, str]] = {}


class RewriteHandlers(Handlers):
    """The handlers.

    Parameters
    ----------
    tables
        The server.
    """

    def __init__(self, tables: Tables) -> None:
        super().__init__(tables)
        self._commits = UploadCommits()

    def routes(self) -> tuple[web.RouteDef, ...]:
        """Return the routes."""
        table = "/v1/tables/{table}"
        return (
            web.post(f"{table}/rewrites/begin", self._begin),
            web.post(f"{table}/rewrites/adopt", self._adopt),
            web.post(f"{table}/rewrites/commit", self._commit),
        )

    async def _begin(self, request: web.Request) -> web.Response:
        """Reserve parts of the table as it is now."""
        table, wait_s = self._table(request), seconds(request.query, "wait_s", WAIT_S_DEFAULT)
        body = await read_body(request, BeginBody)
        check_lease_s(body.lease_s)
        rewrites, sources, partitions = table.rewrites, body.sources, body.partitions
        await wait_until(table, lambda: rewrites.is_merged(sources, partitions), min(wait_s, MERGES_S))
        end = await table.end_of_log.ask(table.context.config.session_timeout_s)
        if not await wait_until(table, lambda: table.progress.is_readable(end), wait_s):
            raise ReplicaBehind(
                f"replica {table.replica.name} has not executed the log up to {end} yet: nothing was begun; wait longer, or ask"
                " another replica"
            )
        begun = await asyncio.to_thread(rewrites.begin, end, sources, partitions, body.lease_s)
        found = await asyncio.to_thread(_begun_body, table, begun, body.lease_s)
        return web.Response(body=found, content_type="application/json")

    async def _adopt(self, request: web.Request) -> web.Response:
        """Make parts of the files that tasks of a statement have sent; they count when they are committed."""
        table, body = self._table(request), await read_body(request, AdoptBody)
        wish = SentFiles(body.upload, body.schema_version, body.hashes, body.files, body.new, body.is_stored)
        made = await asyncio.to_thread(table.rewrites.adopt, wish)
        return web.Response(body=msgspec.json.encode(made), content_type="application/json")

    async def _commit(self, request: web.Request) -> web.Response:
        """Commit a rewrite once, and answer when it is executed here, or when `wait_s` is over."""
        table, wait_s = self._table(request), seconds(request.query, "wait_s", WAIT_S_DEFAULT)
        body = await read_body(request, RewriteBody)
        wish = RewriteWish(
            body.upload, body.id, body.schema_version, body.results, body.inserts, body.unchanged, body.tags
        )

        async def commit() -> dict[str, object]:
            try:
                index = await asyncio.to_thread(table.rewrites.commit, wish, wait_s)
            except NoSuchUpload:
                # An earlier process may have committed it, or without an answer to the client.
                earlier = await asyncio.to_thread(table.rewrites.earlier, wish, wait_s)
                if earlier is None:
                    raise
                index = earlier
            await wait_until(table, lambda: table.progress.is_executed(index), wait_s)
            return {"id": body.id, **outcome_of(table.progress, index), "applied": True}

        return json_response(await self._commits.once((table.definition.table_id, f"{body.upload} {body.id}"), commit))


def _begun_body(table: TableReplica, begun: BegunRewrite, lease_s: float) -> bytes:
    """Return what was begun as JSON; the manifests go in as they are on disk."""
    sources = [
        {
            "part": name,
            "path": str(table.store.part_path(name)),
            "manifest": msgspec.Raw(table.store.manifest_bytes(name)),
        }
        for name in begun.parts
    ]
    return encode_json(
        {
            "replica": table.replica.name,
            "machine": readers_machine(table),
            "schema_version": table.definition.schema_version,
            "index": begun.index,
            "opened": begun.opened,
            "sources": sources,
            "lease": begun.lease,
            "lease_s": lease_s,
            # Earlier versions take no rewrites whose files are in a store, although uploads name one.
            "takes_stored": True,
        }
    )
