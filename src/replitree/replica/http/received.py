"""Bodies of requests that the general server receives: bounded in size, in time and all together.

A body is counted among the bytes that the server holds (`HeldBytes`) from before it is received until its request is answered.
It must come at `BODY_BYTES_PER_S_MIN`.  One with ``Content-Encoding: gzip`` or ``deflate`` is decompressed up to the limit of a
body and not further.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from replitree.errors import BadInput
from replitree.replica.http.bodies import HeldBytes
from replitree.replica.http.connections import BODY_BYTES_PER_S_MIN, BODY_S
from replitree.replica.kit.config import BODY_BYTES_MAX, IDLE_S_MAX

_ANY_HEADER = 32 + zlib.MAX_WBITS
"""Accept the header of gzip and that of zlib."""


class Received:
    """The bytes of the bodies of requests that are not answered yet.

    Parameters
    ----------
    held
        Counts them.
    """

    def __init__(self, held: HeldBytes) -> None:
        self._held = held
        self._by_request: dict[int, int] = {}

    def take(self, request: web.Request, size: int) -> None:
        """Count bytes of a request's body.  Raises `Unavailable` as `HeldBytes.take`."""
        self._held.take(size)
        self._by_request[id(request)] = self._by_request.get(id(request), 0) + size

    def give_back(self, request: web.Request) -> None:
        """Count a request's body as no longer in memory: it is answered."""
        self._held.give(self._by_request.pop(id(request), 0))


RECEIVED = web.AppKey("received", Received)


async def read_whole(request: web.Request, bytes_max: int = BODY_BYTES_MAX) -> bytes:
    """Return a request's body.

    Parameters
    ----------
    bytes_max
        Bytes that it may have, also after it was decompressed.

    Raises
    ------
    BadInput
        It is too large, comes too slowly, or is not what its head says.
    Unavailable
        The server holds too many bytes of other bodies.
    """
    declared, received = request.content_length, request.app[RECEIVED]
    if declared is not None:
        _check_size(declared, bytes_max)
        received.take(request, declared)
    pieces = bytearray()
    size = bytes_max if declared is None else declared
    try:
        async with asyncio.timeout(BODY_S + size / BODY_BYTES_PER_S_MIN):
            with _as_sent():
                async for piece in request.content.iter_any():
                    if declared is None:
                        received.take(request, len(piece))
                    pieces += piece
                    _check_size(len(pieces), bytes_max)
    except TimeoutError:
        raise BadInput(f"the body came too slowly: send at least {BODY_BYTES_PER_S_MIN:,} bytes per second") from None
    encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding == "identity":
        return bytes(pieces)
    # The room is taken before the decompressed body is allocated.
    received.take(request, bytes_max)
    return await asyncio.to_thread(_decompressed, pieces, encoding, bytes_max)


async def read_pieces(request: web.Request, piece_bytes: int) -> AsyncIterator[bytes]:
    """Give a request's body in pieces of at most so many bytes.

    Raises
    ------
    BadInput
        The client has been silent for `IDLE_S_MAX`, or the body is not what its head says.
    """
    if "Content-Encoding" in request.headers:
        raise BadInput("files are sent as they are, without a Content-Encoding")
    with _as_sent():
        while True:
            try:
                async with asyncio.timeout(IDLE_S_MAX):
                    piece = await request.content.read(piece_bytes)
            except TimeoutError:
                raise BadInput(f"nothing of the body has come for {IDLE_S_MAX:g} s") from None
            if not piece:
                return
            yield piece


def _check_size(size: int, bytes_max: int) -> None:
    if size > bytes_max:
        raise BadInput(f"the body has more than {bytes_max:,} bytes: send it in several requests, or upload files")


@contextmanager
def _as_sent() -> Iterator[None]:
    """Raise `BadInput` for a body that ends early or is not chunked as HTTP/1.1 says."""
    try:
        yield
    except (HttpProcessingError, web.RequestPayloadError) as error:
        raise BadInput(f"the body is not what the head of the request says ({type(error).__name__})") from error


def _decompressed(data: bytearray, encoding: str, bytes_max: int) -> bytes:
    if encoding not in ("gzip", "deflate"):
        raise BadInput(f"Content-Encoding {encoding[:20]!r} is unknown: use gzip, deflate or none")
    unpacker = zlib.decompressobj(_ANY_HEADER)
    try:
        unpacked = unpacker.decompress(data, bytes_max + 1)
    except zlib.error as error:
        raise BadInput(f"the body is not what its Content-Encoding says: {error}") from error
    _check_size(len(unpacked), bytes_max)
    if not unpacker.eof:
        raise BadInput("the body ends before its Content-Encoding does")
    return unpacked
