"""What the parts of the HTTP server share: JSON, numbers in queries, the tables behind it, waiting that does not block."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import msgspec
from aiohttp import web

from replitree.errors import BadInput
from replitree.replica.logs import Log
from replitree.replica.metrics import Metrics
from replitree.replica.table_replica import TableReplica

WAIT_S_DEFAULT = 30.0
WAIT_S_MAX = 300.0
CHUNK_BYTES = 1 << 20

T = TypeVar("T")
_json = msgspec.json.Encoder(enc_hook=str).encode


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


def encode_json(body: object) -> bytes:
    """Return JSON."""
    return _json(body)


def json_response(body: object, status: int = 200) -> web.Response:
    """Return a JSON answer."""
    return web.Response(body=_json(body), status=status, content_type="application/json")


async def read_body(request: web.Request, kind: type[T]) -> T:
    """Read a request's JSON body; an empty one is an empty object.

    Raises
    ------
    BadInput
        It is not what is expected.
    """
    try:
        return msgspec.json.decode(await request.read() or b"{}", type=kind)
    except msgspec.DecodeError as error:
        raise BadInput(f"the body is not what {request.path} takes: {error}") from error


def number(request: web.Request, name: str, default: int) -> int:
    """Return a number of the query.

    Raises
    ------
    BadInput
        It is not one.
    """
    text = request.query.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit()):
        raise BadInput(f"{name}={text!r} is not a number")
    return int(text)


def seconds(request: web.Request, name: str, default: float, most: float = WAIT_S_MAX) -> float:
    """Return a number of seconds of the query, `most` if it is more.

    Raises
    ------
    BadInput
        It is not one.
    """
    text = request.query.get(name, "")
    try:
        found = float(text) if text else default
    except ValueError:
        found = -1.0
    if not found >= 0.0:
        raise BadInput(f"{name}={text!r} is not a number of seconds")
    return min(most, found)


async def wait_until(table: TableReplica, condition: Callable[[], bool], wait_s: float) -> bool:
    """Wait until a condition on a table's progress holds; False when it does not in time.

    The condition is asked on the loop, whenever something has changed.
    """
    if condition():
        return True
    event, loop = asyncio.Event(), asyncio.get_running_loop()
    listener = table.progress.listen(lambda: _call_soon(loop, event.set))
    table.pull_now()
    try:
        deadline = loop.time() + wait_s
        while not condition():
            await asyncio.wait_for(event.wait(), max(0.0, deadline - loop.time()))
            event.clear()
    except TimeoutError:
        return condition()
    finally:
        table.progress.unlisten(listener)
    return True


def _call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[[], Any]) -> None:
    """Call back on the loop from any thread; nothing to do when the loop has ended."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(callback)
