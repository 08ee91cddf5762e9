"""Ranges of a share's data file, sent from the object store piece by piece: nothing is brought to this disk before.

A replica fetches a large part in ranges, several at a time, and takes a silent source for a stopped one.  So the first bytes
must not wait until the whole object is here.  The sender does not compare them with a checksum: the receiver does.

A file that is here as a copy is not read from the store.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web

from replitree.errors import BadInput, ReplitreeError, SnapshotExpired
from replitree.replica.http.http_base import CHUNK_BYTES
from replitree.replica.table.table_replica import TableReplica
from replitree.storage.files.durable import file_bytes

if TYPE_CHECKING:
    from replitree.storage.objects.store import ObjectStore

RANGE = "Range"


@dataclass(frozen=True, slots=True)
class StoredRanges:
    """A data file that is an object, and its size in bytes as the manifest says it."""

    store: ObjectStore
    key: str
    size: int

    def read(self, first: int, size: int) -> bytes:
        """Read a piece.

        Raises
        ------
        SnapshotExpired
            The object is not there (any more).
        StoreError, NotAuthorized
            The store gives no answer, or the object is shorter.
        """
        data = self.store.get_range(self.key, first, size)
        if data is None:
            raise SnapshotExpired(f"the object {self.key} is not in {self.store.name} (any more); take a new snapshot")
        return data


def find_stored(table: TableReplica, part: str, file: str) -> StoredRanges | None:
    """Return where a data file of a published part is in the store; None when it is here, or no file of this part.

    Raises
    ------
    CorruptPart
        The part is not here any more.
    """
    sharing, manifest = table.sharing, table.store.manifest(part)
    entry = next((each for each in manifest.files if each.name == file), None)
    share = None if entry is None else manifest.share_of(entry)
    if sharing is None or entry is None or share is None:
        return None
    if file_bytes(table.store.file_path(part, file)) == entry.bytes:
        return None
    return StoredRanges(sharing.objects.store, sharing.objects.key(share, file), entry.bytes)


async def answer_range(request: web.Request, stored: StoredRanges) -> web.StreamResponse:
    """Send the range of a file that was asked for.

    Raises
    ------
    BadInput
        What was asked for is no range.
    SnapshotExpired, StoreError, NotAuthorized
        The first piece can't be had.  A later one that can't be had breaks the answer off.
    """
    try:
        first, end, _ = request.http_range.indices(stored.size)
    except ValueError as error:
        raise BadInput(f"{request.headers[RANGE]!r} is no range of bytes") from error
    if first >= end:
        return web.Response(status=416, headers={"Content-Range": f"bytes */{stored.size}"})
    piece = await asyncio.to_thread(stored.read, first, min(CHUNK_BYTES, end - first))
    answer = web.StreamResponse(
        status=206, headers={"Content-Range": f"bytes {first}-{end - 1}/{stored.size}", "Accept-Ranges": "bytes"}
    )
    answer.content_type = "application/octet-stream"
    answer.content_length = end - first
    await answer.prepare(request)
    await answer.write(piece)
    for later in range(first + len(piece), end, CHUNK_BYTES):
        try:
            piece = await asyncio.to_thread(stored.read, later, min(CHUNK_BYTES, end - later))
        except ReplitreeError as error:
            # The answer has begun, so the receiver can learn of the error only by the end of the connection.
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionAbortedError(str(error)) from error
        await answer.write(piece)
    await answer.write_eof()
    return answer


__all__ = ["RANGE", "StoredRanges", "answer_range", "find_stored"]
