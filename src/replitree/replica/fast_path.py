"""The fast path of small inserts: a connection that carries nothing else is served without the general HTTP server.

A small insert costs a replica less than a millisecond, and routing, headers, streams and tasks of a general server are a large
part of that.  So every connection begins here.  As long as its requests are plain inserts (known length, at most
`BODY_BYTES_MAX`, HTTP/1.1, nothing unusual in the head) they are served here, one after the other; at the first request that is
anything else the connection, with every byte that has come, is handed over to the general server and stays there.

Guarantees: token, checks, errors and answers are those of ``POST /v1/tables/<table>/insert`` there; what has to wait or may
have to (back-pressure, a schema that seems to have changed) takes the same way through `InsertHandlers.insert`.

Everything here runs on the loop.  Absent on purpose: TLS, chunked bodies, HTTP/1.0, trailers.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol
from urllib.parse import parse_qsl

from aiohttp import web
from typing_extensions import override

from replitree.errors import OutcomeUnknown, SchemaMismatch
from replitree.replica.group_commit import Pending
from replitree.replica.http_base import encode_json
from replitree.replica.inserts import result_of
from replitree.replica.mailbox import Mailbox
from replitree.replica.table_replica import TableReplica

if TYPE_CHECKING:
    from replitree.replica.http_insert import InsertHandlers

HEAD_BYTES_MAX = 16 << 10
BODY_BYTES_MAX = 1 << 20
AHEAD_BYTES_MAX = 1 << 20
"""Bytes of later requests that are taken while one is served."""

IDLE_S_MAX = 75.0
"""A connection on which nothing happens for so long is closed, as the general server does."""

_BEGIN = b"POST /v1/tables/"
_LINE = re.compile(rb"POST /v1/tables/([A-Za-z0-9_-]+)/insert(?:\?([!-~]*))? HTTP/1\.1")
_HEADER = re.compile(rb"([A-Za-z0-9-]+):[ \t]*([ -~]*?)[ \t]*")
_UNUSUAL = frozenset({b"transfer-encoding", b"expect", b"upgrade", b"content-encoding", b"connection", b"trailer"})
_HEADS = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\nContent-Length: ".encode()
    for status in HTTPStatus
}


@dataclass(frozen=True, slots=True)
class Head:
    """What the head of a plain insert says."""

    table: str
    query: str
    authorization: str
    length: int


def parse_head(head: bytes) -> Head | None:
    r"""Read a request's head, without the empty line at its end; None when the general server has to look at it.

    >>> parse_head(b"POST /v1/tables/t/insert?token=a HTTP/1.1\r\nAuthorization: Bearer x\r\nContent-Length: 7")
    Head(table='t', query='token=a', authorization='Bearer x', length=7)
    >>> parse_head(b"GET /health HTTP/1.1")
    """
    line, *rest = head.split(b"\r\n")
    asked = _LINE.fullmatch(line)
    if asked is None:
        return None
    headers: dict[bytes, bytes] = {}
    for text in rest:
        found = _HEADER.fullmatch(text)
        if found is None or (name := found[1].lower()) in headers or name in _UNUSUAL:
            return None
        headers[name] = found[2]
    length = headers.get(b"content-length", b"")
    if not (length.isdigit() and len(length) < 10):
        return None
    return Head(asked[1].decode(), (asked[2] or b"").decode(), headers.get(b"authorization", b"").decode(), int(length))


class Api(Protocol):
    """What the fast path needs of the general server."""

    inserts: InsertHandlers

    def authorize(self, header: str) -> None:
        """Raise `NotAuthorized` unless an ``Authorization`` header has the cluster's token."""

    def answer_to(self, error: Exception, path: str) -> web.Response:
        """Return the answer to a request that failed."""

    def find(self, table: str) -> TableReplica:
        """Return a hosted table, or raise `TableNotFound`."""


class FastPath:
    """The fast path of one server.  Made on the loop.

    Parameters
    ----------
    api
        The general server's handlers.
    mailbox
        Brings answers to the loop.
    insert_timeout_s
        Seconds after which a client hears "outcome unknown".
    """

    def __init__(self, api: Api, mailbox: Mailbox, insert_timeout_s: float) -> None:
        self._api = api
        self._mailbox = mailbox
        self._timeout_s = insert_timeout_s
        self._tasks: set[asyncio.Task[None]] = set()
        self._sweeper: asyncio.TimerHandle | None = None
        self._listener: asyncio.Server | None = None
        self.connections: set[_Connection] = set()

    async def listen(self, runner: web.AppRunner, host: str, port: int) -> int:
        """Listen for connections and return the port; those that are not ours go to the runner's server."""
        general = runner.server
        assert general is not None, "the runner is not set up"
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(lambda: _Connection(self, loop, general), host, port)
        self._sweep(loop)
        found: int = self._listener.sockets[0].getsockname()[1]
        return found

    def close(self) -> None:
        """Listen no more and close every connection that is still here."""
        if self._listener is not None:
            self._listener.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self.connections):
            connection.close()

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        for connection in list(self.connections):
            connection.close_if_idle(loop.time() - IDLE_S_MAX)
        self._sweeper = loop.call_later(IDLE_S_MAX / 4, self._sweep, loop)

    def serve(self, head: Head, body: bytes, connection: _Connection) -> None:
        """Take an insert; the connection hears the answer later, or at once when there is an error."""
        try:
            self._api.authorize(head.authorization)
            token, overwrite = _wishes(head.query)
            table = self._api.find(head.table)
            try:
                if not table.inserts.delay_s():
                    waiting = _Waiting(self._api, self._mailbox, connection, table, token)
                    waiting.begin(body, overwrite, self._timeout_s)
                    return
            except SchemaMismatch:
                pass  # the table's columns may have changed: that has to be looked up
            self._serve_slowly(table, body, token, overwrite, connection)
        except Exception as error:  # noqa: BLE001 - the general server's handlers know what to say
            connection.answer_with(self._api.answer_to(error, "insert"))

    def _serve_slowly(
        self, table: TableReplica, body: bytes, token: str | None, overwrite: str, connection: _Connection
    ) -> None:
        """Take an insert that may have to wait before it can be taken."""

        async def serve() -> None:
            try:
                answer = await self._api.inserts.insert(table, body, token, overwrite)
            except Exception as error:  # noqa: BLE001 - the general server's handlers know what to say
                answer = self._api.answer_to(error, "insert")
            connection.answer_with(answer)

        task = asyncio.get_running_loop().create_task(serve())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _wishes(query: str) -> tuple[str | None, str]:
    """Return the token and what is to be overwritten."""
    if not query:
        return None, ""
    found: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        found.setdefault(name, value)
    return found.get("token"), found.get("overwrite", "")


class _Waiting:
    """An insert that waits for its group."""

    def __init__(
        self, api: Api, mailbox: Mailbox, connection: _Connection, table: TableReplica, token: str | None
    ) -> None:
        self._api = api
        self._mailbox = mailbox
        self._connection = connection
        self._table = table
        self._token = token
        self._loop = connection.loop
        self._began = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._known_as = token or ""
        self._answered = False

    def begin(self, body: bytes, overwrite: str, timeout_s: float) -> None:
        """Queue the rows for the next group.  Raises as `Inserts.rows`."""
        pending = self._api.inserts.take(self._table, body, self._token, overwrite, self.deliver)
        self._known_as = self._token or pending.block
        self._timer = self._loop.call_later(timeout_s, self._late, timeout_s)

    def deliver(self, pending: Pending) -> None:
        """Take the answer, from any thread."""
        self._mailbox.put(self._loop, self, pending)

    def arrived(self, pending: Pending) -> None:
        """Send the answer, on the loop."""
        if self._answered or pending.answer is None:
            return
        self._end()
        self._table.meter.answered(pending.answer, pending.rows, self._loop.time() - self._began)
        try:
            body = encode_json(result_of(pending.answer, pending.rows, self._known_as))
        except Exception as error:  # noqa: BLE001 - the general server's handlers know what to say
            self._connection.answer_with(self._api.answer_to(error, "insert"))
            return
        self._connection.answer(HTTPStatus.OK, body)

    def _late(self, timeout_s: float) -> None:
        if not self._answered:
            self._end()
            late = OutcomeUnknown(
                f"no answer within {timeout_s:g} s; repeat the insert with the same token", self._known_as
            )
            self._connection.answer_with(self._api.answer_to(late, "insert"))

    def _end(self) -> None:
        self._answered = True
        if self._timer is not None:
            self._timer.cancel()


class _Connection(asyncio.Protocol):
    """One connection: its bytes, cut into requests."""

    def __init__(
        self, path: FastPath, loop: asyncio.AbstractEventLoop, general: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        self.loop = loop
        self._path = path
        self._general = general
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._head: Head | None = None
        self._head_bytes = 0
        self._busy = False
        self._used_at = 0.0

    @property
    def peer(self) -> object:
        """The client's address; None when the connection is closed."""
        return self._transport.get_extra_info("peername") if self._transport is not None else None

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._used_at = self.loop.time()
        self._path.connections.add(self)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._path.connections.discard(self)

    @override
    def data_received(self, data: bytes) -> None:
        self._used_at = self.loop.time()
        self._buffer += data
        if not self._busy:
            self._advance()
        elif len(self._buffer) > AHEAD_BYTES_MAX and self._transport is not None:
            self._transport.pause_reading()

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()

    def close_if_idle(self, since: float) -> None:
        """Close the connection if nothing has happened on it since then (the loop's time, seconds)."""
        if not self._busy and self._used_at < since:
            self.close()

    def answer_with(self, response: web.Response) -> None:
        """Send an answer of the general server's handlers."""
        body = response.body
        assert isinstance(body, bytes)
        self.answer(response.status, body)

    def answer(self, status: int, body: bytes) -> None:
        """Send the answer to the request that is being served, and go on with the next one."""
        self._busy = False
        self._used_at = self.loop.time()
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write(b"".join((_HEADS[status], str(len(body)).encode(), b"\r\n\r\n", body)))
        if self._buffer:
            transport.resume_reading()
            self.loop.call_soon(self._advance)

    def _advance(self) -> None:
        """Serve the next request if it is here whole."""
        if self._busy or self._transport is None or not self._buffer:
            return
        if self._head is None and not self._read_head():
            return
        head = self._head
        assert head is not None
        end = self._head_bytes + head.length
        if len(self._buffer) < end:
            return
        body = bytes(memoryview(self._buffer)[self._head_bytes : end])
        self._buffer = self._buffer[end:]
        self._head, self._busy = None, True
        self._path.serve(head, body, self)

    def _read_head(self) -> bool:
        """Read the next request's head; hand the connection over when it is not a plain insert."""
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            begin = bytes(self._buffer[: len(_BEGIN)])
            if len(self._buffer) > HEAD_BYTES_MAX or not _BEGIN.startswith(begin):
                self._hand_over()
            return False
        head = parse_head(bytes(self._buffer[:end])) if end <= HEAD_BYTES_MAX else None
        if head is None or head.length > BODY_BYTES_MAX:
            self._hand_over()
            return False
        self._head, self._head_bytes = head, end + 4
        return True

    def _hand_over(self) -> None:
        """Give the connection to the general server, as if it had been there from the beginning."""
        transport = self._transport
        assert transport is not None
        self._transport = None
        self._path.connections.discard(self)
        general = self._general()
        assert isinstance(general, asyncio.Protocol)
        transport.set_protocol(general)
        general.connection_made(transport)
        general.data_received(bytes(self._buffer))
        self._buffer.clear()
