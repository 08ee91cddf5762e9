"""Part exchange over HTTP, the sending side: bundles of small parts, ranges of large ones, and a word about broken ones."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import suppress

import msgspec
from aiohttp import web

from replitree.errors import (
    BadInput,
    CorruptPart,
    ReplicaUnavailable,
    ReplitreeError,
    RowsUnavailable,
    SnapshotExpired,
    Unavailable,
)
from replitree.protocol.core.parts import parse_part
from replitree.replica.http.gate import whole_number
from replitree.replica.http.http_base import CHUNK_BYTES, Handlers, json_response
from replitree.replica.http.http_stored_ranges import RANGE, answer_range, find_stored
from replitree.replica.perform.exchange import (
    BUNDLE_INLINE_BYTES,
    BUNDLE_PARTS_MAX,
    FRAME,
    SHARES,
    SHARES_VERSION,
    SHARES_VERSION_BORROWING,
    BundleHeader,
)
from replitree.replica.table.table_replica import TableReplica
from replitree.storage.files.durable import file_sums
from replitree.storage.files.sums import is_summed, read_sums
from replitree.storage.parts.manifest import MANIFEST_FILE, FileEntry

CHECKSUM = "checksum"
"""Parameter of a request for a data file: the checksum that its manifest has in the reader's snapshot."""

BUNDLE_AT_ONCE = 4
"""Parts of a bundle that are read together; of a larger bundle the rest follows part by part, so that memory is bounded."""

SHORT_RANGE_BYTES = 1 << 20
"""A range of a data file of at most so many bytes is read as a whole before it is sent."""

REGISTERED_S_MAX = 0.05
"""How long a part of a share is waited for that this replica is about to register, in seconds; two replicas may wait for each
other."""

PUBLISHED_S_MAX = 0.25
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
            web.get(f"{part}/files/{{file}}/sums", self._sums),
            web.post(f"{part}/check", self._check),
            web.post("/v1/tables/{table}/check", self._check_all),
            web.get("/v1/tables/{table}/check", self._last_check),
            web.get("/v1/tables/{table}/shares", self._shares),
        )

    async def _bundle(self, request: web.Request) -> web.StreamResponse:
        """Send several small parts, with their manifests, in one answer."""
        table = self._table(request)
        parts = request.query.getall("part", [])
        if not 1 <= len(parts) <= BUNDLE_PARTS_MAX:
            raise BadInput(f"ask for 1 to {BUNDLE_PARTS_MAX} parts")
        for part in parts:
            parse_part(part)
        # The newest form of shares that the other replica can take over; 0: it takes none, or this replica gives none.
        version = whole_number(request.query.get(SHARES_VERSION, "")) or 0
        gives = table.sharing is not None and table.context.config.zero_copy
        shares = version if gives and request.query.get(SHARES) == "1" else 0
        if table.old_parts.packed.packs:
            await asyncio.to_thread(table.old_parts.unpack, parts)
        if len(parts) == 1:
            # A single part is often asked for in the moment in which it is published; the other replica would ask again, and
            # ZooKeeper who else has it.
            with table.store_performer.publishing(parts[0]) as published:
                await asyncio.wait({asyncio.wrap_future(published)}, timeout=PUBLISHED_S_MAX)
        pieces = await asyncio.to_thread(_bundle_pieces, table, parts[:BUNDLE_AT_ONCE], shares=shares)
        if len(parts) <= BUNDLE_AT_ONCE:
            whole = web.Response(body=b"".join(pieces), content_type="application/octet-stream")
            _say_shares(whole, shares=shares)
            return whole
        response = web.StreamResponse()
        response.content_type = "application/octet-stream"
        _say_shares(response, shares=shares)
        response.enable_chunked_encoding()
        await response.prepare(request)
        await response.write(b"".join(pieces))
        for part in parts[BUNDLE_AT_ONCE:]:
            await response.write(await asyncio.to_thread(_bundle_piece, table, part, shares=shares))
        await response.write_eof()
        return response

    async def _manifest(self, request: web.Request) -> web.StreamResponse:
        """Send the manifest of a part."""
        table, part = self._table(request), request.match_info["part"]
        if part in table.lacking:
            manifest = await asyncio.to_thread(table.sources.salvage.manifest_of, part)
            if manifest is not None:
                return web.Response(body=manifest.encode(), content_type="application/octet-stream")
        await _unpack(table, part)
        return self._part_file(request, MANIFEST_FILE)

    async def _file(self, request: web.Request) -> web.StreamResponse:
        """Send a data file of a part, or a range of it."""
        table, part, file = self._table(request), request.match_info["part"], request.match_info["file"]
        await _unpack(table, part)
        if CHECKSUM in request.query:
            entry, found = await asyncio.to_thread(_short_range, table, part, file, request)
            table.meter.asked_for(_asked_bytes(request, entry.bytes))
            if found is not None:
                return found
        if table.sharing is not None and table.store.has_part(part):
            stored = await asyncio.to_thread(find_stored, table, part, file) if RANGE in request.headers else None
            if stored is not None:
                # If the object is missing, the replica looks for the file on its disk below.
                with suppress(SnapshotExpired):
                    return await answer_range(request, stored)
            await asyncio.to_thread(_bring, table, part, file)
        copy = await asyncio.to_thread(table.sources.salvage.copy_of, part, file) if part in table.lacking else None
        return web.FileResponse(copy, chunk_size=CHUNK_BYTES) if copy is not None else self._part_file(request, file)

    async def _sums(self, request: web.Request) -> web.Response:
        """Send the block checksums of a data file, with which a reader verifies the ranges that it asks for."""
        table, part, file = self._table(request), request.match_info["part"], request.match_info["file"]
        await _unpack(table, part)
        sums = await asyncio.to_thread(_sums_of, table, part, file, request.query.get(CHECKSUM, ""))
        table.meter.asked_for(len(sums))
        return web.Response(body=sums, content_type="application/octet-stream")

    async def _shares(self, request: web.Request) -> web.Response:
        """Say what this replica has of shares: `replitree fsck` asks."""
        table = self._table(request)
        sharing = table.sharing
        if sharing is None:
            raise BadInput("the table is on local disks: it has no shares")
        return json_response(await asyncio.to_thread(lambda: sharing.references(table.sources.salvage.manifests())))

    def _part_file(self, request: web.Request, file: str) -> web.FileResponse:
        table, part = self._table(request), request.match_info["part"]
        path = table.store.file_path(part, file)
        if not path.is_file() and part in table.lacking:
            why = table.mending.why_lacking(part) or "its files are gone"
            told = f"replica {table.replica.name} lacks part {part}: {why}"
            is_searched = table.sources.salvage.why_undecided(part) is None
            raise RowsUnavailable(told) if is_searched else ReplicaUnavailable(told)
        if not path.is_file():
            raise SnapshotExpired(f"part {part} is not here (any more); take a new snapshot")
        return web.FileResponse(path, chunk_size=CHUNK_BYTES)

    async def _check(self, request: web.Request) -> web.Response:
        """Verify one part now, and say whether it is whole."""
        part = request.match_info["part"]
        parse_part(part)
        whole = await asyncio.to_thread(self._table(request).suspect, part)
        return json_response({"part": part, "whole": whole})

    async def _check_all(self, request: web.Request) -> web.Response:
        """Check every part, or join the check that is running, and say what it has found."""
        report = await asyncio.shield(asyncio.wrap_future(self._table(request).checker.begin()))
        return json_response(report.as_json())

    async def _last_check(self, request: web.Request) -> web.Response:
        """Say how far the check of all parts is, or what the last one has found."""
        return json_response(self._table(request).checker.last.as_json())


async def _unpack(table: TableReplica, part: str) -> None:
    """Give a packed part its folder again; one that has a folder costs a look at it."""
    if not table.store.part_path(part).is_dir() and table.old_parts.is_old(part):
        await asyncio.to_thread(table.old_parts.unpack, (part,))


def _asked_bytes(request: web.Request, size: int) -> int:
    """Return how many bytes a request wants of a file of this size; none if its range is none, which is refused later."""
    try:
        first, end, _ = request.http_range.indices(size)
    except ValueError:
        return 0
    return max(0, end - first)


def _short_range(
    table: TableReplica, part: str, file: str, request: web.Request
) -> tuple[FileEntry, web.Response | None]:
    """Return what the manifest says of a data file, and the answer to a request for a short range of it on this disk.

    A reader asks for many: opening, reading and closing the file in one thread costs half of what `web.FileResponse` does.
    None: the range is long, there is none, or the file is not just here.  Raises as `_entry`.
    """
    entry = _entry(table, part, file, request.query[CHECKSUM])
    if RANGE not in request.headers or table.sharing is not None or part in table.lacking:
        return entry, None
    try:
        first, end, _ = request.http_range.indices(entry.bytes)
        if not 0 < end - first <= SHORT_RANGE_BYTES:
            return entry, None
        with table.store.file_path(part, file).open("rb", buffering=0) as opened:
            data = os.pread(opened.fileno(), end - first, first)
    except (ValueError, OSError):
        return entry, None
    if len(data) < end - first:
        return entry, None
    headers = {"Content-Range": f"bytes {first}-{end - 1}/{entry.bytes}", "Accept-Ranges": "bytes"}
    return entry, web.Response(status=206, body=data, headers=headers, content_type="application/octet-stream")


def _entry(table: TableReplica, part: str, file: str, checksum: str) -> FileEntry:
    """Return what the manifest of a part says of a data file.

    Raises
    ------
    SnapshotExpired
        The part, or this file of it, is not here, or has other bytes here than the reader's snapshot says.
    """
    entries = table.store.manifest(part).files if table.store.has_part(part) else ()
    entry = next((each for each in entries if (each.name, each.checksum) == (file, checksum)), None)
    if entry is None:
        raise SnapshotExpired(f"{file} of part {part} is not here (any more) with these bytes; take a new snapshot")
    return entry


def _sums_of(table: TableReplica, part: str, file: str, checksum: str) -> bytes:
    """Return the block checksums of a data file, encoded; of a small one, or where they are missing, they are made now.

    Raises
    ------
    SnapshotExpired
        As `_entry`.
    CorruptPart
        The file has changed.
    """
    entry = _entry(table, part, file, checksum)
    _bring(table, part, file)
    path = table.store.file_path(part, file)
    found = read_sums(path, entry.bytes, entry.checksum) if is_summed(entry.bytes) else None
    if found is not None:
        return found.encoded
    try:
        read, sums = file_sums(path)
    except FileNotFoundError as error:
        raise SnapshotExpired(f"part {part} is not here (any more); take a new snapshot") from error
    if read != entry.checksum:
        raise CorruptPart(f"{file} of part {part} has changed on this disk")
    return sums.encoded


def _bring(table: TableReplica, part: str, file: str) -> None:
    """Bring a data file here; an object that is missing is created again from a copy on this disk, if there is one."""
    try:
        table.store.bring((part,), (file,))
    except CorruptPart:
        if table.suspect(part):
            table.store.bring((part,), (file,))


def _say_shares(response: web.StreamResponse, *, shares: int) -> None:
    if shares:
        response.set_cookie(SHARES, "1")


def _bundle_pieces(table: TableReplica, parts: list[str], *, shares: int = 0) -> list[bytes]:
    """Return the first parts of a bundle."""
    return [_bundle_piece(table, part, shares=shares) for part in parts]


def _bundle_piece(table: TableReplica, part: str, *, shares: int = 0) -> bytes:
    """Return one part of a bundle: header, manifest, and the files of a small part; or the manifest of a share alone."""
    try:
        manifest = table.store.manifest(part)
        # The other replica gets the data of a part whose form of shares it does not know.
        if manifest.share_id is not None and shares >= (SHARES_VERSION_BORROWING if manifest.borrowed else 1):
            named, progress = parse_part(part), table.progress
            with progress.changed:
                # No other replica can own the share before its writer has registered the part.
                if not progress.changed.wait_for(
                    lambda: named in progress.held or table.old_parts.is_old(part), REGISTERED_S_MAX
                ):
                    raise Unavailable(f"{part} is not registered yet; try again")
            return _framed(BundleHeader(part, len(manifest.encode()), inline=False, shared=True), manifest.encode())
        raw = manifest.as_local().encode()
        inline = manifest.bytes <= BUNDLE_INLINE_BYTES
        files: list[bytes] = []
        if inline:
            folder = table.store.part_path(part)
            # The pin keeps files that are fetched from the store from being evicted before they are read.
            with table.store.shared.pinning((part,)):
                table.store.shared.bring_files(folder, manifest)
                files = [(folder / file.name).read_bytes() for file in manifest.files]
    except (ReplitreeError, OSError):
        raw, inline, files = b"", False, []
    return _framed(BundleHeader(part, len(raw), inline), raw, *files)


def _framed(header: BundleHeader, *content: bytes) -> bytes:
    head = json.dumps(msgspec.to_builtins(header)).encode()
    return b"".join((FRAME.pack(len(head)), head, *content))
