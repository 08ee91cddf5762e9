"""Inserts and uploads over HTTP."""

from __future__ import annotations

import asyncio
import secrets

import msgspec
import xxhash
from aiohttp import web

from replitree.errors import BadInput
from replitree.replica.gate import Tables
from replitree.replica.http_base import CHUNK_BYTES, Handlers, json_response, read_body
from replitree.replica.identity import machine_id
from replitree.replica.insert_requests import InsertRequests, overwrite_of
from replitree.replica.inserts import result_of
from replitree.replica.payloads import Overwrite, Upload
from replitree.replica.quorums import Wish, wish_of
from replitree.replica.table_replica import TableReplica
from replitree.replica.upload_commits import Commits
from replitree.replica.upload_life import Writer
from replitree.replica.uploads import NoSuchUpload
from replitree.storage.manifest import PartManifest


class CommitBody(msgspec.Struct, frozen=True):
    """Body of an upload's commit: one manifest for each part."""

    manifests: tuple[PartManifest, ...]


class AttachBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of an attach: a name of `detached`."""

    name: str


class InsertHandlers(Handlers):
    """The handlers.

    Parameters
    ----------
    tables
        The server.
    inserts
        Takes them.
    """

    def __init__(self, tables: Tables, inserts: InsertRequests) -> None:
        super().__init__(tables)
        self._inserts = inserts
        self._commits = Commits()

    def routes(self) -> tuple[web.RouteDef, ...]:
        """Return the routes."""
        table = "/v1/tables/{table}"
        return (
            web.post(f"{table}/insert", self._insert),
            web.post(f"{table}/attach", self._attach),
            web.post(f"{table}/uploads", self._open_upload),
            web.put(f"{table}/uploads/{{upload}}/{{partition}}/{{file}}", self._put_file),
            web.post(f"{table}/uploads/{{upload}}", self._renew_upload),
            web.delete(f"{table}/uploads/{{upload}}", self._discard_upload),
            web.post(f"{table}/uploads/{{upload}}/commit", self._commit_upload),
        )

    async def _insert(self, request: web.Request) -> web.Response:
        table = self._table(request)
        body, query = await request.read(), request.query
        overwrite, wish = query.get("overwrite", ""), wish_of(query)
        return json_response(await self._inserts.insert(table, body, query.get("token"), overwrite, wish))

    # --- what is in files already ---

    async def _open_upload(self, request: web.Request) -> web.Response:
        table = self._table(request)
        await self._inserts.back_pressure(table)
        upload, folder = table.uploads.open(await read_body(request, Writer))
        return json_response({"upload": upload, "path": str(folder), "machine": machine_id()})

    async def _renew_upload(self, request: web.Request) -> web.Response:
        self._table(request).uploads.renew(request.match_info["upload"])
        return json_response({})

    async def _put_file(self, request: web.Request) -> web.Response:
        """Receive one data file; it counts only when its checksum is right."""
        info = request.match_info
        path = self._table(request).uploads.file_path(info["upload"], info["partition"], info["file"])
        hasher = xxhash.xxh3_128()
        partial = path.with_name(f"incoming-{secrets.token_hex(4)}-{path.name}")  # two tries may overlap
        try:
            with partial.open("wb") as out:
                async for chunk in request.content.iter_chunked(CHUNK_BYTES):
                    hasher.update(chunk)
                    out.write(chunk)
            if hasher.hexdigest() != request.query.get("checksum"):
                raise BadInput("the file arrived with another checksum than announced; send it again")
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
        return json_response({"bytes": path.stat().st_size})

    async def _discard_upload(self, request: web.Request) -> web.Response:
        table = self._table(request)
        await asyncio.to_thread(table.uploads.discard, request.match_info["upload"])
        return json_response({})

    async def _commit_upload(self, request: web.Request) -> web.Response:
        """Commit an upload once, however often it is asked for: who asks again hears what became of the first try."""
        table, upload = self._table(request), request.match_info["upload"]
        token, overwrite = request.query.get("token"), overwrite_of(request.query.get("overwrite", ""))
        body, wish = await read_body(request, CommitBody), wish_of(request.query)

        async def commit() -> dict[str, object]:
            with table.uploads.committing(upload):
                return await self._commit(table, upload, body.manifests, token, overwrite, wish)

        async with self._inserts.in_time(token or "", 0.0 if wish is None else wish.patience_s):
            return json_response(await self._commits.once((table.definition.table_id, upload), commit))

    async def _commit(
        self,
        table: TableReplica,
        upload: str,
        manifests: tuple[PartManifest, ...],
        token: str | None,
        overwrite: Overwrite,
        wish: Wish | None,
    ) -> dict[str, object]:
        """Commit an upload; one that is gone may have been committed before this process, or without an answer."""
        began = asyncio.get_running_loop().time()
        try:
            folder = await asyncio.to_thread(table.uploads.seal, upload, manifests, table.store)
        except NoSuchUpload:
            earlier = await asyncio.to_thread(table.inserts.earlier, manifests, token, overwrite)
            if earlier is None:
                raise
            return result_of(earlier, sum(manifest.rows for manifest in manifests), token or "")
        waiter = self._inserts.mailbox.expect()
        pending = await asyncio.to_thread(
            table.inserts.upload, Upload(folder, manifests), token, waiter.deliver, overwrite, wish
        )
        answer = await waiter.answer
        table.meter.answered(answer, pending.rows, asyncio.get_running_loop().time() - began)
        return result_of(answer, pending.rows, token or pending.block, waited=pending.waits)

    async def _attach(self, request: web.Request) -> web.Response:
        """Insert a detached part; the folder goes when its rows are in the table."""
        table = self._table(request)
        body = await read_body(request, AttachBody)
        detached = await asyncio.to_thread(table.commands.detached_part, body.name)
        attached = await self._inserts.submit(table, lambda deliver: table.inserts.attach(detached, deliver), None)
        await asyncio.to_thread(table.store.remove_detached, body.name)
        return json_response(attached)
