"""Inserts and uploads over HTTP."""

from __future__ import annotations

import asyncio
import secrets
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import msgspec
import xxhash
from aiohttp import web

from replitree import private
from replitree.errors import BadInput
from replitree.protocol.core.effects import BlockId, Duplicate
from replitree.replica.http.gate import Tables
from replitree.replica.http.http_base import CHUNK_BYTES, Handlers, json_response, read_body
from replitree.replica.http.insert_requests import InsertRequests, overwrite_of, token_of
from replitree.replica.http.received import read_pieces, read_whole
from replitree.replica.insert.inserts import known_by, result_of
from replitree.replica.insert.quorums import wish_of
from replitree.replica.kit.payloads import StagedUpload
from replitree.replica.table.table_replica import TableReplica
from replitree.replica.uploads.upload_commits import UploadCommits
from replitree.replica.uploads.uploads import NoSuchUpload
from replitree.storage.parts.manifest import PartManifest
from replitree.wire.identity import machine_id
from replitree.wire.sent_batch import SentBatch
from replitree.wire.staged_file import StagedFile
from replitree.wire.upload_life import Writer


class CommitBody(msgspec.Struct, frozen=True):
    """Body of an upload's commit.

    Attributes
    ----------
    manifests
        One for each part.
    tags
        Of what is in the object store: those of data files.
    pieces
        Of a part that several tasks wrote: a manifest for the files of each, by partition.
    """

    manifests: tuple[PartManifest, ...]
    tags: dict[str, dict[str, str]] = {}
    pieces: dict[str, tuple[PartManifest, ...]] = {}


class GatherBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of a request that makes files of tasks' attempts the files of an upload."""

    files: tuple[StagedFile, ...]


class NamesBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of a request for names of data files in the object store: see `StoredUploads.begin`."""

    files: dict[str, int]
    is_rewrite: bool = False


class AttachBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of an attach: a name of `detached`."""

    name: str


class _ReceivedFile:
    """A data file that arrives in pieces.  Its methods wait for the disk, so they run in threads, one after the other.

    After a cancellation `remove` may run beside another one: that one fails, and its error reaches no caller.

    Parameters
    ----------
    partial
        Where the file is until all of it is there.
    """

    def __init__(self, partial: Path) -> None:
        self._partial = partial
        self._hasher = xxhash.xxh3_128()
        self._crc32 = 0
        self._out: BinaryIO | None = None

    def open(self) -> None:
        """Make the file."""
        self._out = private.open_file(self._partial, "wb")

    def write(self, piece: bytes) -> None:
        """Add a piece."""
        assert self._out is not None
        self._hasher.update(piece)
        self._crc32 = zlib.crc32(piece, self._crc32)
        self._out.write(piece)

    def publish(self, path: Path, announced: Mapping[str, str]) -> int:
        """Give the file its name and return its size in bytes.

        Parameters
        ----------
        path
            Its name.
        announced
            Its ``checksum``, as manifests have it, or from Spark's Java its ``crc32``, a decimal number.

        Raises
        ------
        BadInput
            Its bytes do not have the checksum.
        """
        assert self._out is not None
        self._out.close()
        is_right = announced.get("checksum", "") == self._hasher.hexdigest()
        if not is_right and announced.get("crc32") != str(self._crc32):
            raise BadInput("the file arrived with another checksum than announced; send it again")
        self._partial.replace(path)
        return path.stat().st_size

    def remove(self) -> None:
        """Remove the file unless it has its name."""
        if self._out is not None:
            self._out.close()
        self._partial.unlink(missing_ok=True)


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
        self._commits = UploadCommits()

    def routes(self) -> tuple[web.RouteDef, ...]:
        """Return the routes."""
        table = "/v1/tables/{table}"
        return (
            web.post(f"{table}/insert", self._insert),
            web.post(f"{table}/attach", self._attach),
            web.post(f"{table}/uploads", self._open_upload),
            web.put(f"{table}/uploads/{{upload}}/{{partition}}/{{file}}", self._put_file),
            web.put(f"{table}/uploads/{{upload}}/tasks/{{attempt}}/{{partition}}/{{file}}", self._put_file),
            web.post(f"{table}/uploads/{{upload}}/gather", self._gather),
            web.post(f"{table}/uploads/{{upload}}", self._renew_or_discard),
            web.delete(f"{table}/uploads/{{upload}}", self._renew_or_discard),
            web.post(f"{table}/uploads/{{upload}}/objects", self._name_objects),
            web.post(f"{table}/uploads/{{upload}}/commit", self._commit_upload),
        )

    async def _insert(self, request: web.Request) -> web.Response:
        """Insert the rows of the body, an Arrow stream; the answer says where they are in the log."""
        table = self._table(request)
        body, query = await read_whole(request), request.query
        overwrite, wish = query.get("overwrite", ""), wish_of(query)
        return json_response(await self._inserts.insert(table, body, token_of(query), overwrite, wish))

    # --- what is in files already ---

    async def _open_upload(self, request: web.Request) -> web.Response:
        """Begin an upload: a folder for the data files of one insert."""
        table = self._table(request)
        await self._inserts.back_pressure(table)
        upload, folder = await asyncio.to_thread(table.uploads.open, await read_body(request, Writer))
        opened = {"upload": upload, "path": str(folder), "machine": machine_id()}
        store = None if table.sharing is None else table.sharing.store_for_uploads
        return json_response(opened if store is None else {**opened, "store": store})

    async def _name_objects(self, request: web.Request) -> web.Response:
        """Give names to data files that a client puts into the object store."""
        table, body = self._table(request), await read_body(request, NamesBody)
        if table.sharing is None or table.sharing.store_for_uploads is None:
            raise BadInput("new parts of the table do not go into an object store now; send the files")
        begin, upload = table.sharing.uploads.begin, request.match_info["upload"]
        names = await asyncio.to_thread(begin, upload, body.files, is_rewrite=body.is_rewrite)
        return json_response({"names": names})

    async def _renew_or_discard(self, request: web.Request) -> web.Response:
        """Let an upload live on, or delete it."""
        uploads = self._table(request).uploads
        do = uploads.renew if request.method == "POST" else uploads.discard
        await asyncio.to_thread(do, request.match_info["upload"])
        return json_response({})

    async def _put_file(self, request: web.Request) -> web.Response:
        """Receive one data file; it counts only when its checksum is right."""
        info = request.match_info
        uploads = self._table(request).uploads
        names = info["partition"], info["file"]
        if "attempt" in info:
            path = await asyncio.to_thread(uploads.staged_path, info["upload"], info["attempt"], *names)
        else:
            path = await asyncio.to_thread(uploads.file_path, info["upload"], *names)
        # Two tries of a client may overlap, so each writes into a file of its own.
        partial = path.with_name(f"incoming-{secrets.token_hex(4)}-{path.name}")
        received = _ReceivedFile(partial)
        try:
            await asyncio.to_thread(received.open)
            async for chunk in read_pieces(request, CHUNK_BYTES):
                await asyncio.to_thread(received.write, chunk)
            size = await asyncio.to_thread(received.publish, path, request.query)
        finally:
            await asyncio.shield(asyncio.to_thread(received.remove))
        return json_response({"bytes": size})

    async def _gather(self, request: web.Request) -> web.Response:
        """Make the files of the attempts that count the files of an upload."""
        table, body = self._table(request), await read_body(request, GatherBody)
        await asyncio.to_thread(table.uploads.gather, request.match_info["upload"], body.files)
        return json_response({})

    async def _commit_upload(self, request: web.Request) -> web.Response:
        """Commit an upload once, however often it is requested; a repeated request gets the answer of the first one."""
        table, upload = self._table(request), request.match_info["upload"]
        token, overwrite = token_of(request.query), overwrite_of(request.query.get("overwrite", ""))
        body, wish = await read_body(request, CommitBody), wish_of(request.query)

        async def commit() -> dict[str, object]:
            with table.uploads.committing(upload):
                began, manifests = asyncio.get_running_loop().time(), body.manifests
                try:
                    folder = await asyncio.to_thread(sealed_upload, table, upload, body)
                except NoSuchUpload:
                    # The upload may have been committed by an earlier process, or without an answer to the client.
                    earlier = await asyncio.to_thread(table.inserts.earlier, manifests, token, overwrite)
                    if earlier is None:
                        raise
                    return result_of(
                        earlier, sum(manifest.rows for manifest in manifests), known_by(token, BlockId(""))
                    )
                waiter, staged = self._inserts.mailbox.expect(), StagedUpload(folder, manifests)
                pending = await asyncio.to_thread(table.inserts.upload, staged, token, waiter.deliver, overwrite, wish)
                answer = await waiter.answer
                if isinstance(answer, Duplicate):
                    await asyncio.to_thread(table.uploads.remove, upload)
                table.meter.answered(answer, pending.rows, asyncio.get_running_loop().time() - began)
                known_as = known_by(token, pending.block)
                return result_of(answer, pending.rows, known_as, waited=pending.waits, differs=pending.differs)

        named = known_by(token, token.name if isinstance(token, SentBatch) else BlockId(""))
        async with self._inserts.in_time(named, 0.0 if wish is None else wish.patience_s):
            return json_response(await self._commits.once((table.definition.table_id, upload), commit))

    async def _attach(self, request: web.Request) -> web.Response:
        """Insert a detached part; the folder goes when its rows are in the table."""
        table = self._table(request)
        body = await read_body(request, AttachBody)
        detached = await asyncio.to_thread(table.commands.detached_part, body.name)
        attached = await self._inserts.submit(table, lambda deliver: table.inserts.attach(detached, deliver), None)
        await asyncio.to_thread(table.store.remove_detached, body.name)
        return json_response(attached)


def sealed_upload(table: TableReplica, upload: str, body: CommitBody) -> Path:
    """Seal an upload, wherever its data files are, and verify what can be verified of its rows; return its folder."""
    if all(manifest.share_id is None for manifest in body.manifests):
        from replitree.storage.parts.joined import joined_manifest
        from replitree.storage.parts.upload_check import UploadCheck

        folder, check = table.uploads.seal(upload, body.manifests, table.store), UploadCheck()
        for manifest in body.manifests:
            pieces = body.pieces.get(manifest.partition, (manifest,))
            # As bytes: a bound that is NaN is not equal to itself.
            if joined_manifest(pieces).encode() != manifest.encode():
                raise BadInput(
                    f"the pieces of partition {manifest.partition} are not those of its manifest; run the job again"
                )
            for piece in pieces:
                check.part(folder / manifest.partition, piece, table.definitions.at(manifest.schema_version))
        return folder
    if table.sharing is None:
        raise BadInput("the table has no object store: send the files")
    return table.sharing.uploads.seal(upload, body.manifests, body.tags)
