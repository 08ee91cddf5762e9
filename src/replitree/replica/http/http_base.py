"""What the general HTTP server's parts share: JSON answers, bodies, the tables behind it."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import TypeVar

import msgspec
from aiohttp import web

from replitree.decoding import json_decoder
from replitree.errors import BadInput
from replitree.replica.http.gate import JsonAnswer, Tables, encode_json
from replitree.replica.http.received import read_whole
from replitree.replica.table.table_replica import TableReplica

CHUNK_BYTES = 1 << 20
QUICK_JSON_BYTES = 256 << 10

KNOWN_AS = ContextVar("known_as", default="")
"""What its client calls the request that this task answers, for the audit record."""

T = TypeVar("T")


class Handlers:
    """Begin of a group of handlers.

    Parameters
    ----------
    tables
        The server.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def _table(self, request: web.Request) -> TableReplica:
        return self._tables.table(request.match_info["table"])


def json_response(body: object, status: int = 200) -> web.Response:
    """Return a JSON answer."""
    return response(JsonAnswer(status, encode_json(body)))


def response(answer: JsonAnswer) -> web.Response:
    """Return an answer as this server sends it."""
    return web.Response(body=answer.body, status=answer.status, content_type="application/json")


async def read_body(request: web.Request, kind: type[T]) -> T:
    """Read a request's JSON body; an empty one is an empty object.  A large one is decoded off the loop.

    Raises
    ------
    BadInput
        It is not what is expected, or can't be received (`replitree.replica.http.received.read_whole`).
    """
    body = await read_whole(request) or b"{}"
    try:
        decode = json_decoder(kind).decode
        found = await asyncio.to_thread(decode, body) if len(body) > QUICK_JSON_BYTES else decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise BadInput(f"the body is not what {request.path} takes: {error}") from error
    KNOWN_AS.set(str(getattr(found, "id", None) or getattr(found, "token", None) or ""))
    return found
