"""Inserts and uploads over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pyarrow as pa
import xxhash
from aiohttp import web

from replitree.errors import BadInput, OutcomeUnknown, SchemaMismatch
from replitree.replica.group_commit import Pending
from replitree.replica.http_base import CHUNK_BYTES, Handlers, Tables, json_response, read_body
from replitree.replica.identity import machine_id
from replitree.replica.inserts import Deliver, Overwrite, Upload, result_of
from replitree.replica.mailbox import Mailbox, Waiter
from replitree.replica.table_replica import TableReplica
from replitree.storage.manifest import PartManifest

INLINE_PARSE_BYTES = 1 << 20
"""Bodies up to this size are parsed on the loop; handing them to a thread would cost more."""


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
    insert_timeout_s
        Seconds after which a client hears "outcome unknown".
    """

    def __init__(self, tables: Tables, insert_timeout_s: float) -> None:
        super().__init__(tables)
        self._insert_timeout_s = insert_timeout_s
        self._mailbox = Mailbox()

    def routes(self) -> tuple[web.RouteDef, ...]:
        """Return the routes."""
        table = "/v1/tables/{table}"
        return (
            web.post(f"{table}/insert", self._insert),
            web.post(f"{table}/attach", self._attach),
            web.post(f"{table}/uploads", self._open_upload),
            web.put(f"{table}/uploads/{{upload}}/{{partition}}/{{file}}", self._put_file),
            web.delete(f"{table}/uploads/{{upload}}", self._discard_upload),
            web.post(f"{table}/uploads/{{upload}}/commit", self._commit_upload),
        )

    async def _insert(self, request: web.Request) -> web.Response:
        table = self._table(request)
        await self._back_pressure(table)
        body = await request.read()
        token, overwrite = request.query.get("token"), _overwrite(request)
        waiter = self._mailbox.expect()

        def take() -> Pending:
            return table.inserts.rows(_parse_arrow(body), token, waiter.deliver, overwrite)

        try:
            pending = take() if len(body) <= INLINE_PARSE_BYTES else await asyncio.to_thread(take)
        except SchemaMismatch:
            if not await asyncio.to_thread(_has_changed, table):
                raise
            pending = await asyncio.to_thread(take)
        return await self._answer(table, pending, waiter, token)

    async def _back_pressure(self, table: TableReplica) -> None:
        delay_s = table.inserts.delay_s()
        if delay_s:
            await asyncio.sleep(delay_s)
            table.inserts.delay_s()

    async def _answer(self, table: TableReplica, pending: Pending, waiter: Waiter, token: str | None) -> web.Response:
        """Wait for an insert's answer as long as the configuration allows."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        known_as = token or pending.block
        try:
            async with asyncio.timeout(self._insert_timeout_s):
                answer = await waiter.answer
        except TimeoutError:
            raise OutcomeUnknown(
                f"no answer within {self._insert_timeout_s:g} s; repeat the insert with the same token", known_as
            ) from None
        table.meter.answered(answer, pending.rows, loop.time() - began)
        return json_response(result_of(answer, pending.rows, known_as))

    # --- what is in files already ---

    async def _open_upload(self, request: web.Request) -> web.Response:
        table = self._table(request)
        await self._back_pressure(table)
        upload, folder = table.uploads.open()
        return json_response({"upload": upload, "path": str(folder), "machine": machine_id()})

    async def _put_file(self, request: web.Request) -> web.Response:
        """Receive one data file; it counts only when its checksum is right."""
        info = request.match_info
        path = self._table(request).uploads.file_path(info["upload"], info["partition"], info["file"])
        hasher = xxhash.xxh3_128()
        partial = path.with_name(f"incoming-{path.name}")
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
        table, token = self._table(request), request.query.get("token")
        overwrite = _overwrite(request)
        body = await read_body(request, CommitBody)
        upload = request.match_info["upload"]
        folder = await asyncio.to_thread(table.uploads.seal, upload, body.manifests, table.store)

        def take(deliver: Deliver) -> Pending:
            return table.inserts.upload(Upload(folder, body.manifests), token, deliver, overwrite)

        return await self._take(table, take, token)

    async def _attach(self, request: web.Request) -> web.Response:
        """Insert a detached part; the folder goes when its rows are in the table."""
        table = self._table(request)
        body = await read_body(request, AttachBody)
        detached = await asyncio.to_thread(table.commands.detached_part, body.name)
        response = await self._take(table, lambda deliver: table.inserts.attach(detached, deliver), None)
        await asyncio.to_thread(table.store.remove_detached, body.name)
        return response

    async def _take(self, table: TableReplica, take: Callable[[Deliver], Pending], token: str | None) -> web.Response:
        """Queue an insert in a thread, because it may have to read the table's definition, and wait for its answer."""
        waiter = self._mailbox.expect()
        pending = await asyncio.to_thread(take, waiter.deliver)
        return await self._answer(table, pending, waiter, token)


def _overwrite(request: web.Request) -> Overwrite:
    text = request.query.get("overwrite", "")
    try:
        return Overwrite(text)
    except ValueError:
        raise BadInput(f"overwrite={text!r}: say all or partitions, or leave it out") from None


def _has_changed(table: TableReplica) -> bool:
    """Read the table's definition again; whether it is another one."""
    known = table.definition
    return table.definitions.refresh() is not known


def _parse_arrow(body: bytes) -> pa.Table:
    """Read an Arrow IPC stream.

    Raises
    ------
    BadInput
        It is not one.
    """
    try:
        return pa.ipc.open_stream(body).read_all()
    except (pa.ArrowInvalid, OSError, EOFError) as error:
        raise BadInput(f"the body is not an Arrow IPC stream: {error}") from error
