"""Inserts and uploads over HTTP."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import pyarrow as pa
import xxhash
from aiohttp import web

from replitree.errors import BadInput, OutcomeUnknown, SchemaMismatch
from replitree.replica.group_commit import Pending
from replitree.replica.http_base import CHUNK_BYTES, Handlers, Tables, json_response, read_body
from replitree.replica.identity import machine_id
from replitree.replica.inserts import Deliver, result_of
from replitree.replica.mailbox import Mailbox, Waiter
from replitree.replica.payloads import Overwrite, Upload
from replitree.replica.table_replica import TableReplica
from replitree.replica.upload_commits import Commits
from replitree.replica.upload_life import Writer
from replitree.replica.uploads import NoSuchUpload
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
        self.insert_timeout_s = insert_timeout_s
        self.mailbox = Mailbox()
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
        return await self.insert(table, body, query.get("token"), query.get("overwrite", ""))

    async def insert(self, table: TableReplica, body: bytes, token: str | None, overwrite: str) -> web.Response:
        """Insert the rows of an Arrow IPC stream, wait for the answer, and return it.

        Raises
        ------
        ReplitreeError
            The rows can't be taken, or what became of them is not known.
        """
        await self._back_pressure(table)
        waiter = self.mailbox.expect()

        def take() -> Pending:
            return self.take(table, body, token, overwrite, waiter.deliver)

        try:
            pending = take() if len(body) <= INLINE_PARSE_BYTES else await asyncio.to_thread(take)
        except SchemaMismatch:
            if not await asyncio.to_thread(_has_changed, table):
                raise
            pending = await asyncio.to_thread(take)
        return await self._answer(table, pending, waiter, token)

    @staticmethod
    def take(table: TableReplica, body: bytes, token: str | None, overwrite: str, deliver: Deliver) -> Pending:
        """Queue the rows of an Arrow IPC stream for the next group.  Raises as `Inserts.rows`."""
        return table.inserts.rows(_parse_arrow(body), token, deliver, _overwrite(overwrite))

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
        async with self._timeout(known_as):
            answer = await waiter.answer
        table.meter.answered(answer, pending.rows, loop.time() - began)
        return json_response(result_of(answer, pending.rows, known_as))

    # --- what is in files already ---

    async def _open_upload(self, request: web.Request) -> web.Response:
        table = self._table(request)
        await self._back_pressure(table)
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
        token, overwrite = request.query.get("token"), _overwrite(request.query.get("overwrite", ""))
        body = await read_body(request, CommitBody)

        async def commit() -> dict[str, object]:
            with table.uploads.committing(upload):
                return await self._commit(table, upload, body.manifests, token, overwrite)

        async with self._timeout(token or ""):
            return json_response(await self._commits.once((table.definition.table_id, upload), commit))

    async def _commit(
        self,
        table: TableReplica,
        upload: str,
        manifests: tuple[PartManifest, ...],
        token: str | None,
        overwrite: Overwrite,
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
        waiter = self.mailbox.expect()
        pending = await asyncio.to_thread(
            table.inserts.upload, Upload(folder, manifests), token, waiter.deliver, overwrite
        )
        answer = await waiter.answer
        table.meter.answered(answer, pending.rows, asyncio.get_running_loop().time() - began)
        return result_of(answer, pending.rows, token or pending.block)

    @asynccontextmanager
    async def _timeout(self, known_as: str) -> AsyncIterator[None]:
        """Say "outcome unknown" when it takes longer than the configuration allows."""
        try:
            async with asyncio.timeout(self.insert_timeout_s):
                yield
        except TimeoutError:
            raise OutcomeUnknown(
                f"no answer within {self.insert_timeout_s:g} s; repeat the insert with the same token", known_as
            ) from None

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
        waiter = self.mailbox.expect()
        pending = await asyncio.to_thread(take, waiter.deliver)
        return await self._answer(table, pending, waiter, token)


def _overwrite(text: str) -> Overwrite:
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
