"""The replica's HTTP server: inserts, uploads, snapshots, part exchange, status, metrics.

Everything but `/health` and `/metrics` wants the cluster's token.  Errors are JSON (`errors_http`).  The handlers check, hand
over to the table replica, and wait without blocking the loop.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

import msgspec
import pyarrow as pa
import xxhash
from aiohttp import web

from replitree.errors import (
    BadInput,
    NotAuthorized,
    OutcomeUnknown,
    ReplicaUnavailable,
    ReplitreeError,
    SnapshotExpired,
    StoreError,
)
from replitree.protocol.parts import parse_part
from replitree.replica.errors_http import body_of, status_of
from replitree.replica.exchange import BUNDLE_INLINE_BYTES, BUNDLE_PARTS_MAX, FRAME, BundleHeader
from replitree.replica.group_commit import Pending
from replitree.replica.identity import machine_id
from replitree.replica.inserts import Upload, result_of
from replitree.replica.logs import Log
from replitree.replica.mailbox import Mailbox, Waiter
from replitree.replica.metrics import Metrics
from replitree.replica.table_replica import TableReplica
from replitree.storage.manifest import MANIFEST_FILE, PartManifest

INSERT_BYTES_MAX = 32 << 20
INLINE_PARSE_BYTES = 1 << 20
"""Bodies up to this size are parsed on the loop; handing them to a thread would cost more."""

WAIT_S_MAX = 300.0
CHUNK_BYTES = 1 << 20
SERVED_FILES_SUFFIX = ".parquet"

T = TypeVar("T")
_json = msgspec.json.Encoder(enc_hook=str).encode


class CommitBody(msgspec.Struct, frozen=True):
    """Body of an upload's commit: one manifest for each part."""

    manifests: tuple[PartManifest, ...]


class Tables(Protocol):
    """What the HTTP server needs of the server around it."""

    @property
    def metrics(self) -> Metrics:
        """The server's metrics."""

    @property
    def log(self) -> Log:
        """The server's log."""

    def table(self, name: str) -> TableReplica:
        """Return a hosted table, or raise TableNotFound."""

    def health(self) -> dict[str, object]:
        """Return the server's state in a word, and each table's."""

    def status(self) -> dict[str, object]:
        """Return the status of the server and of every table it hosts."""


def json_response(body: object, status: int = 200) -> web.Response:
    """Return a JSON answer."""
    return web.Response(body=_json(body), status=status, content_type="application/json")


class HttpApi:
    """The handlers.

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
        self._tables = tables
        self._token = token.encode()
        self._insert_timeout_s = insert_timeout_s
        self._mailbox = Mailbox()

    def application(self) -> web.Application:
        """Return the application with all routes."""
        app = web.Application(client_max_size=INSERT_BYTES_MAX)
        table, part = "/v1/tables/{table}", "/v1/tables/{table}/parts/{part}"
        routes = (
            web.get("/health", self._health),
            web.get("/metrics", self._metrics),
            web.get("/v1/status", self._status),
            web.get(f"{table}/status", self._table_status),
            web.post(f"{table}/insert", self._insert),
            web.post(f"{table}/uploads", self._open_upload),
            web.put(f"{table}/uploads/{{upload}}/{{partition}}/{{file}}", self._put_file),
            web.delete(f"{table}/uploads/{{upload}}", self._discard_upload),
            web.post(f"{table}/uploads/{{upload}}/commit", self._commit_upload),
            web.get(f"{table}/snapshot", self._snapshot),
            web.get(f"{table}/bundle", self._bundle),
            web.get(f"{part}/manifest", self._manifest),
            web.get(f"{part}/files/{{file}}", self._file),
            web.post(f"{part}/check", self._check),
        )
        app.add_routes([web.RouteDef(route.method, route.path, self._guarded(route.handler), {}) for route in routes])
        return app

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
                self._authorize(request)
            response: web.StreamResponse = await handler(request)
        except ReplitreeError as error:
            return json_response(body_of(error), status_of(error))
        except (web.HTTPException, asyncio.CancelledError, ConnectionError):
            raise
        except OSError as error:
            return json_response(body_of(StoreError(f"disk: {error.strerror or error}")), 507)
        except Exception as error:  # noqa: BLE001 - a defect of ours: say so, log it, keep serving
            self._tables.log.defect("request failed", path=request.path)
            return json_response({"error": "ReplitreeError", "message": f"defect: {error!r}"}, 500)
        return response

    def _authorize(self, request: web.Request) -> None:
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        if scheme != "Bearer" or not hmac.compare_digest(given.encode(), self._token):
            raise NotAuthorized("the token is missing or wrong: use the token of this cluster (REPLITREE_TOKEN)")

    def _table(self, request: web.Request) -> TableReplica:
        return self._tables.table(request.match_info["table"])

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

    async def _snapshot(self, request: web.Request) -> web.Response:
        table = self._table(request)
        index, parts = table.progress.visible()
        wanted = _number(request, "min_index", 0)
        if index < wanted:
            await self._wait_for_index(table, wanted, _seconds(request, "wait_s", 30.0))
            index, parts = table.progress.visible()
        body = await asyncio.to_thread(_snapshot_body, table, index, parts)
        return web.Response(body=body, content_type="application/json")

    async def _wait_for_index(self, table: TableReplica, wanted: int, wait_s: float) -> None:
        """Wait until everything below `wanted` is executed here."""
        event, loop = asyncio.Event(), asyncio.get_running_loop()
        listener = table.progress.listen(lambda: _call_soon(loop, event.set))
        try:
            deadline = loop.time() + wait_s
            while table.progress.index < wanted:
                await asyncio.wait_for(event.wait(), max(0.0, deadline - loop.time()))
                event.clear()
        except TimeoutError:
            raise ReplicaUnavailable(
                f"replica {table.replica.name} has executed the log up to {table.progress.index}, not yet to {wanted}, "
                f"after {wait_s:g} s; wait longer or ask another replica"
            ) from None
        finally:
            table.progress.unlisten(listener)

    # --- inserting ---

    async def _insert(self, request: web.Request) -> web.Response:
        table = self._table(request)
        await self._back_pressure(table)
        body = await request.read()
        token = request.query.get("token")
        waiter = self._mailbox.expect()
        if len(body) <= INLINE_PARSE_BYTES:
            pending = table.inserts.rows(_parse_arrow(body), token, waiter.deliver)
        else:
            pending = await asyncio.to_thread(lambda: table.inserts.rows(_parse_arrow(body), token, waiter.deliver))
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

    # --- uploads ---

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
        try:
            body = msgspec.json.decode(await request.read(), type=CommitBody)
        except msgspec.DecodeError as error:
            raise BadInput(f"the commit's body is not a list of manifests: {error}") from error
        upload = request.match_info["upload"]
        folder = await asyncio.to_thread(table.uploads.seal, upload, body.manifests, table.store)
        waiter = self._mailbox.expect()
        pending = table.inserts.upload(Upload(folder, body.manifests), token, waiter.deliver)
        return await self._answer(table, pending, waiter, token)

    # --- part exchange ---

    async def _bundle(self, request: web.Request) -> web.StreamResponse:
        table = self._table(request)
        parts = request.query.getall("part", [])
        if not 1 <= len(parts) <= BUNDLE_PARTS_MAX:
            raise BadInput(f"ask for 1 to {BUNDLE_PARTS_MAX} parts")
        for part in parts:
            parse_part(part)
        response = web.StreamResponse()
        response.content_type = "application/octet-stream"
        response.enable_chunked_encoding()
        await response.prepare(request)
        for part in parts:
            for piece in await asyncio.to_thread(_bundle_pieces, table, part):
                await response.write(piece)
        await response.write_eof()
        return response

    async def _manifest(self, request: web.Request) -> web.StreamResponse:
        return self._part_file(request, MANIFEST_FILE)

    async def _file(self, request: web.Request) -> web.StreamResponse:
        return self._part_file(request, request.match_info["file"])

    def _part_file(self, request: web.Request, file: str) -> web.FileResponse:
        part = request.match_info["part"]
        path = self._table(request).store.file_path(part, file)
        if not path.is_file():
            raise SnapshotExpired(f"part {part} is not here (any more); take a new snapshot")
        return web.FileResponse(path, chunk_size=CHUNK_BYTES)

    async def _check(self, request: web.Request) -> web.Response:
        part = request.match_info["part"]
        parse_part(part)
        whole = await asyncio.to_thread(self._table(request).suspect, part)
        return json_response({"part": part, "whole": whole})


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


def _snapshot_body(table: TableReplica, index: int, parts: tuple[str, ...]) -> bytes:
    """Return a snapshot as JSON; the manifests go in as they are on disk, never decoded."""
    rows = []
    for part in sorted(parts):
        manifest = msgspec.Raw(table.store.manifest_bytes(part))
        rows.append({"part": part, "path": str(table.store.part_path(part)), "manifest": manifest})
    head = {"index": index, "schema_version": table.definition.schema_version, "replica": table.replica.name}
    return _json({**head, "machine": machine_id(), "parts": rows})


def _bundle_pieces(table: TableReplica, part: str) -> list[bytes]:
    """Return one part of a bundle: header, manifest, and the files of a small part."""
    try:
        raw = table.store.manifest_bytes(part)
        manifest = table.store.manifest(part)
        inline = manifest.bytes <= BUNDLE_INLINE_BYTES
        folder = table.store.part_path(part)
        files = [(folder / file.name).read_bytes() for file in manifest.files] if inline else []
    except (ReplitreeError, OSError):
        raw, inline, files = b"", False, []
    header = json.dumps(msgspec.to_builtins(BundleHeader(part, len(raw), inline))).encode()
    return [b"".join((FRAME.pack(len(header)), header, raw, *files))]


def _number(request: web.Request, name: str, default: int) -> int:
    text = request.query.get(name, "")
    if not text:
        return default
    if not text.isdigit():
        raise BadInput(f"{name}={text!r} is not a number")
    return int(text)


def _seconds(request: web.Request, name: str, default: float) -> float:
    text = request.query.get(name, "")
    try:
        return min(WAIT_S_MAX, float(text)) if text else default
    except ValueError:
        raise BadInput(f"{name}={text!r} is not a number of seconds") from None


def _call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[[], Any]) -> None:
    """Call back on the loop from any thread; nothing to do when the loop has ended."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(callback)
