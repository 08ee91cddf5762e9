"""Part exchange over HTTP, the sending side: bundles of small parts, ranges of large ones, and a word about broken ones."""

from __future__ import annotations

import asyncio
import json

import msgspec
from aiohttp import web

from replitree.errors import BadInput, ReplitreeError, SnapshotExpired
from replitree.protocol.parts import parse_part
from replitree.replica.exchange import BUNDLE_INLINE_BYTES, BUNDLE_PARTS_MAX, FRAME, BundleHeader
from replitree.replica.http_base import CHUNK_BYTES, Handlers, json_response
from replitree.replica.table_replica import TableReplica
from replitree.storage.manifest import MANIFEST_FILE

BUNDLE_AT_ONCE = 4
"""Parts of a bundle that are read together; of a larger bundle the rest follows part by part, so that memory is bounded."""

PUBLISHED_S_MAX = 0.02
"""How long a part is waited for that an insert may be about to publish, in seconds."""


class ExchangeHandlers(Handlers):
    """The handlers."""

    def routes(self) -> tuple[web.RouteDef, ...]:
        """Return the routes."""
        part = "/v1/tables/{table}/parts/{part}"
        return (
            web.get("/v1/tables/{table}/bundle", self._bundle),
            web.get(f"{part}/manifest", self._manifest),
            web.get(f"{part}/files/{{file}}", self._file),
            web.post(f"{part}/check", self._check),
            web.post("/v1/tables/{table}/check", self._check_all),
            web.get("/v1/tables/{table}/check", self._last_check),
        )

    async def _bundle(self, request: web.Request) -> web.StreamResponse:
        table = self._table(request)
        parts = request.query.getall("part", [])
        if not 1 <= len(parts) <= BUNDLE_PARTS_MAX:
            raise BadInput(f"ask for 1 to {BUNDLE_PARTS_MAX} parts")
        for part in parts:
            parse_part(part)
        pieces = await asyncio.to_thread(_bundle_pieces, table, parts[:BUNDLE_AT_ONCE])
        if len(parts) <= BUNDLE_AT_ONCE:
            return web.Response(body=b"".join(pieces), content_type="application/octet-stream")
        response = web.StreamResponse()
        response.content_type = "application/octet-stream"
        response.enable_chunked_encoding()
        await response.prepare(request)
        await response.write(b"".join(pieces))
        for part in parts[BUNDLE_AT_ONCE:]:
            await response.write(await asyncio.to_thread(_bundle_piece, table, part))
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

    async def _check_all(self, request: web.Request) -> web.Response:
        """Check every part, or join the check that is running, and say what it has found."""
        report = await asyncio.shield(asyncio.wrap_future(self._table(request).checker.begin()))
        return json_response(report.as_json())

    async def _last_check(self, request: web.Request) -> web.Response:
        return json_response(self._table(request).checker.last.as_json())


def _bundle_pieces(table: TableReplica, parts: list[str]) -> list[bytes]:
    """Return the first parts of a bundle; a single one is often asked for in the moment in which it is published."""
    if len(parts) == 1:
        table.store_performer.await_published(parts[0], PUBLISHED_S_MAX)
    return [_bundle_piece(table, part) for part in parts]


def _bundle_piece(table: TableReplica, part: str) -> bytes:
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
    return b"".join((FRAME.pack(len(header)), header, raw, *files))
