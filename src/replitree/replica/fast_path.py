"""The fast path of small inserts and snapshots: connections that carry nothing else are served without the general HTTP server.

A small insert costs a replica less than a millisecond, and routing, headers, streams and tasks of a general server are a large
part of that.  And a replica that starts answers readers before the general server is loaded.  So every connection begins here.
As long as its requests are plain inserts (known length, at most `BODY_BYTES_MAX`, HTTP/1.1, nothing unusual in the head) or
snapshots they are served here, one after the other; at the first request that is anything else the connection, with every byte
that has come, is handed over to the general server and stays there.

Guarantees: token, checks, errors and answers are those of ``POST /v1/tables/<table>/insert`` and ``GET …/snapshot`` there; an
insert that has to wait or may have to (back-pressure, a schema that seems to have changed) takes the same way through
`InsertRequests.insert`.

Everything here runs on the loop.  Absent on purpose: TLS, chunked bodies, HTTP/1.0, trailers.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol
from urllib.parse import parse_qsl

from typing_extensions import override

from replitree.errors import BadInput, OutcomeUnknown, SchemaMismatch
from replitree.replica.gate import Answer, Gate, encode_json
from replitree.replica.group_commit import Pending
from replitree.replica.insert_requests import InsertRequests
from replitree.replica.inserts import result_of
from replitree.replica.listening import why_not_listening
from replitree.replica.quorums import wish_of
from replitree.replica.snapshot_requests import snapshot
from replitree.replica.table_replica import TableReplica

HEAD_BYTES_MAX = 16 << 10
BODY_BYTES_MAX = 1 << 20
AHEAD_BYTES_MAX = 1 << 20
"""Bytes of later requests that are taken while one is served."""

IDLE_S_MAX = 75.0
"""A connection on which nothing happens for so long is closed, as the general server does."""

INSERT, SNAPSHOT = "insert", "snapshot"

_BEGINNINGS = (b"POST /v1/tables/", b"GET /v1/tables/")
_LINE = re.compile(rb"(POST|GET) /v1/tables/([A-Za-z0-9_-]+)/(insert|snapshot)(?:\?([!-~]*))? HTTP/1\.1")
_METHODS = {INSERT: b"POST", SNAPSHOT: b"GET"}
_HEADER = re.compile(rb"([A-Za-z0-9-]+):[ \t]*([ -~]*?)[ \t]*")
_UNUSUAL = frozenset({b"transfer-encoding", b"expect", b"upgrade", b"content-encoding", b"connection", b"trailer"})
_HEADS = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\nContent-Length: ".encode()
    for status in HTTPStatus
}


@dataclass(frozen=True, slots=True)
class Head:
    """What the head of a plain request says."""

    action: str
    table: str
    query: str
    authorization: str
    length: int


def parse_head(head: bytes) -> Head | None:
    r"""Read a request's head, without the empty line at its end; None when the general server has to look at it.

    >>> parse_head(b"POST /v1/tables/t/insert?token=a HTTP/1.1\r\nAuthorization: Bearer x\r\nContent-Length: 7")
    Head(action='insert', table='t', query='token=a', authorization='Bearer x', length=7)
    >>> parse_head(b"GET /health HTTP/1.1")
    """
    line, *rest = head.split(b"\r\n")
    asked = _LINE.fullmatch(line)
    if asked is None or asked[1] != _METHODS[action := asked[3].decode()]:
        return None
    headers: dict[bytes, bytes] = {}
    for text in rest:
        found = _HEADER.fullmatch(text)
        if found is None or (name := found[1].lower()) in headers or name in _UNUSUAL:
            return None
        headers[name] = found[2]
    length = headers.get(b"content-length", b"0" if action == SNAPSHOT else b"")
    if not (length.isdigit() and len(length) < 10):
        return None
    authorization = headers.get(b"authorization", b"").decode()
    return Head(action, asked[2].decode(), (asked[4] or b"").decode(), authorization, int(length))


class General(Protocol):
    """What the fast path needs of the general server."""

    def protocol(self) -> asyncio.Protocol | None:
        """Return what serves one more connection; None as long as the server is not loaded."""

    def when_loaded(self, connection: Waiting) -> None:
        """Load the server, and then tell a connection."""


class Waiting(Protocol):
    """A connection that waits for the general server."""

    def general_is_loaded(self) -> None:
        """Go on there."""

    def close(self) -> None:
        """End: the general server can't be loaded."""


class FastPath:
    """The fast path of one server.  Made on the loop.

    Parameters
    ----------
    gate
        Stands before every request.
    inserts
        Takes them.
    general
        Serves everything else.
    """

    def __init__(self, gate: Gate, inserts: InsertRequests, general: General) -> None:
        self._gate = gate
        self._inserts = inserts
        self.general = general
        self._tasks: set[asyncio.Task[None]] = set()
        self._sweeper: asyncio.TimerHandle | None = None
        self._listener: asyncio.Server | None = None
        self.connections: set[_Connection] = set()

    async def listen(self, host: str, port: int) -> int:
        """Listen for connections and return the port.

        Raises
        ------
        BadInput
            The address can't be listened on: it is used by another process, or not this machine's, or not allowed.
        """
        loop = asyncio.get_running_loop()
        try:
            self._listener = await loop.create_server(lambda: _Connection(self, loop), host, port)
        except OSError as error:
            raise BadInput(why_not_listening(host, port, error)) from error
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
        for task in self._tasks:
            task.cancel()

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        for connection in list(self.connections):
            connection.close_if_idle(loop.time() - IDLE_S_MAX)
        self._sweeper = loop.call_later(IDLE_S_MAX / 4, self._sweep, loop)

    def serve(self, head: Head, body: bytes, connection: _Connection) -> None:
        """Take a request; the connection hears the answer later, or at once when there is an error."""
        try:
            self._gate.authorize(head.authorization)
            query = _parsed(head.query)
            table = self._gate.find(head.table)
            if head.action == INSERT:
                self._insert(table, body, query, connection)
            else:
                self._later(head.action, snapshot(table, query), connection)
        except Exception as error:  # noqa: BLE001 - the gate knows what to say
            connection.answer(self._gate.answer_to(error, head.action))

    def _insert(self, table: TableReplica, body: bytes, query: dict[str, str], connection: _Connection) -> None:
        token, overwrite = query.get("token"), query.get("overwrite", "")
        wish = wish_of(query)
        try:
            if wish is None and not table.inserts.delay_s():
                waiting = _Waiting(self._gate, self._inserts, connection, table, token)
                waiting.begin(body, overwrite)
                return
        except SchemaMismatch:
            pass  # the table's columns may have changed: that has to be looked up

        async def slowly() -> bytes:
            return encode_json(await self._inserts.insert(table, body, token, overwrite, wish))

        self._later(INSERT, slowly(), connection)

    def _later(self, action: str, body: Awaitable[bytes], connection: _Connection) -> None:
        """Answer a request that has to wait."""

        async def serve() -> None:
            try:
                answer = Answer(HTTPStatus.OK, await body)
            except Exception as error:  # noqa: BLE001 - the gate knows what to say
                answer = self._gate.answer_to(error, action)
            connection.answer(answer)

        task = asyncio.get_running_loop().create_task(serve())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _parsed(query: str) -> dict[str, str]:
    """Return a query's values; of one that is there twice the first."""
    found: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True) if query else ():
        found.setdefault(name, value)
    return found


class _Waiting:
    """An insert that waits for its group."""

    def __init__(
        self, gate: Gate, inserts: InsertRequests, connection: _Connection, table: TableReplica, token: str | None
    ) -> None:
        self._gate = gate
        self._inserts = inserts
        self._connection = connection
        self._table = table
        self._token = token
        self._loop = connection.loop
        self._began = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._known_as = token or ""
        self._answered = False

    def begin(self, body: bytes, overwrite: str) -> None:
        """Queue the rows for the next group.  Raises as `Inserts.rows`."""
        pending = self._inserts.take(self._table, body, self._token, overwrite, self.deliver)
        self._known_as = self._token or pending.block
        self._timer = self._loop.call_later(self._inserts.timeout_s, self._late, self._inserts.timeout_s)

    def deliver(self, pending: Pending) -> None:
        """Take the answer, from any thread."""
        self._inserts.mailbox.put(self._loop, self, pending)

    def arrived(self, pending: Pending) -> None:
        """Send the answer, on the loop."""
        if self._answered or pending.answer is None:
            return
        self._end()
        self._table.meter.answered(pending.answer, pending.rows, self._loop.time() - self._began)
        try:
            told = result_of(pending.answer, pending.rows, self._known_as, waited=pending.waits)
            body = encode_json(told)
        except Exception as error:  # noqa: BLE001 - the gate knows what to say
            self._connection.answer(self._gate.answer_to(error, INSERT))
            return
        self._connection.answer(Answer(HTTPStatus.OK, body))

    def _late(self, timeout_s: float) -> None:
        if not self._answered:
            self._end()
            late = OutcomeUnknown(
                f"no answer within {timeout_s:g} s; repeat the insert with the same token", self._known_as
            )
            self._connection.answer(self._gate.answer_to(late, INSERT))

    def _end(self) -> None:
        self._answered = True
        if self._timer is not None:
            self._timer.cancel()


class _Connection(asyncio.Protocol):
    """One connection: its bytes, cut into requests."""

    def __init__(self, path: FastPath, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._path = path
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

    def answer(self, answer: Answer) -> None:
        """Send the answer to the request that is being served, and go on with the next one."""
        status, body = answer
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
        """Read the next request's head; hand the connection over when it is not a plain one."""
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > HEAD_BYTES_MAX or not self._may_be_plain():
                self._hand_over()
            return False
        head = parse_head(bytes(self._buffer[:end])) if end <= HEAD_BYTES_MAX else None
        if head is None or head.length > BODY_BYTES_MAX:
            self._hand_over()
            return False
        self._head, self._head_bytes = head, end + 4
        return True

    def _may_be_plain(self) -> bool:
        return any(begin.startswith(bytes(self._buffer[: len(begin)])) for begin in _BEGINNINGS)

    def _hand_over(self) -> None:
        """Give the connection to the general server, as if it had been there from the beginning."""
        transport = self._transport
        assert transport is not None
        general = self._path.general.protocol()
        if general is None:
            self._busy = True
            transport.pause_reading()
            self._path.general.when_loaded(self)
            return
        self._transport = None
        self._path.connections.discard(self)
        transport.set_protocol(general)
        general.connection_made(transport)
        general.data_received(bytes(self._buffer))
        self._buffer.clear()
        transport.resume_reading()

    def general_is_loaded(self) -> None:
        """Go on at the general server, if the client is still there."""
        if self._transport is not None:
            self._hand_over()
