"""Connections: their bytes are cut into requests, and each costs little until it has sent the cluster's token.

What happens on a connection, in this order:

1. A head is awaited, at most `HEAD_BYTES_MAX` bytes and `HEAD_S` seconds.
2. ``/health`` is answered.  Any other head must have a token, or a ticket for the general server
   (`replitree.wire.ticket`): the answer to one without is 401, and the connection ends; of a body that follows nothing is kept.
3. A plain insert or snapshot (`replitree.replica.http.heads`) is served by the fast path, where there is one.  Its body is
   received at not less than `BODY_BYTES_PER_S_MIN` bytes per second, and counts among the bytes of all unfinished bodies
   (`HeldBytes`).
4. At a request of any other kind the connection goes to the general server, with every byte that has come, and stays there.

On a port for TLS the handshake comes before all this (`replitree.replica.http.listening`): a connection counts, and has a time
limit, from its first moment on.

Limits of all connections: `connections_max`; one more is answered with 503.  Of those that have not sent the token
`connections_without_token_max` stay: for a new one the oldest is closed.  So connections that send nothing, or slowly, keep no
client out that has the token.

Everything here runs on the loop.
"""

from __future__ import annotations

import asyncio
import math
import resource
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Protocol

from typing_extensions import override

from replitree.errors import BadInput, NotAuthorized, NotPermitted, ReplitreeError, Unavailable
from replitree.replica.http.bodies import HeldBytes
from replitree.replica.http.gate import JsonAnswer
from replitree.replica.http.heads import INSERT, Head, Public, authorization_of, is_request, parse_head, read_public
from replitree.replica.http.listening import Handshake
from replitree.replica.kit.config import IDLE_S_MAX
from replitree.replica.kit.tokens import EVERYTHING, Grant
from replitree.tls import HANDSHAKE_BYTE, Contexts

HEAD_BYTES_MAX = 16 << 10
HEAD_S = 10.0
"""Seconds from the first byte of a head, or from the beginning of the connection, to the head's end."""

BODY_BYTES_MAX = 1 << 20
"""Bytes of a body that the fast path takes."""

BODY_S = 30.0
BODY_BYTES_PER_S_MIN = 32 << 10
"""A body takes at most `BODY_S` seconds, and what it needs at this rate."""

AHEAD_BYTES_MAX = 64 << 10
"""Bytes of later requests that are taken while one is served."""

DISCARDED_BYTES_MAX = 64 << 20
DISCARD_S = 5.0
"""How much of the body of a refused request is read and thrown away, so that a client that still sends hears why."""

SWEEP_S = 2.5
"""Seconds between two looks for connections that are too slow."""

_HEADS = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\nContent-Length: ".encode()
    for status in HTTPStatus
}


class ConnectionLimits(Protocol):
    """How many connections a server takes."""

    @property
    def connections_max(self) -> int:
        """Connections at once."""

    @property
    def connections_without_token_max(self) -> int:
        """Connections that have not sent the token."""


class Front(Protocol):
    """What connections need of the server: the token, the answers that need none, and errors."""

    def authorize(self, head: Head) -> Grant:
        """Return what the token of a plain request grants.  Raises `NotAuthorized` when it does not allow the request."""

    def served(self, grant: Grant, head: Head, status: int) -> None:
        """Take note that a plain request was answered."""

    def admit(self, header: str) -> object:
        """Raise `NotAuthorized` unless a header has a token, or a ticket, of which the general server knows what it opens."""

    def ask_health(self, tell: Callable[[JsonAnswer], None], *, asks_ready: bool) -> None:
        """Give the answer to `/health`, which needs no token, to `tell`, now or later on the loop."""

    def refused(self, peer: object, reason: str) -> None:
        """Log that a request was refused before it was served."""

    def answer_to(self, error: Exception, path: str) -> JsonAnswer:
        """Return the answer to a request that failed."""


class General(Protocol):
    """What connections need of the general server."""

    def protocol(self) -> asyncio.Protocol | None:
        """Return what serves one more connection; None as long as the server is not loaded."""

    def when_loaded(self, connection: WaitingConnection) -> None:
        """Load the server, and then tell a connection."""

    def connections(self) -> int:
        """Return how many connections it has."""


class WaitingConnection(Protocol):
    """A connection that waits for the general server."""

    def general_is_loaded(self) -> None:
        """Go on there."""

    def close(self) -> None:
        """End: the general server can't be loaded."""


Serve = Callable[[Head, bytes, "ServedConnection"], None]
"""Serves a plain request whose token is right, and gives the body's bytes back to `HeldBytes` when it needs them no longer."""


class Connections:
    """All connections of one server.

    Parameters
    ----------
    limits
        How many there may be.
    gate
        Knows the token, and what needs none.
    held
        Counts the bytes of unfinished bodies.
    general
        Serves what is not plain.
    serve
        Serves what is plain; None: nothing is, and the general server gets every request with the token.
    tls
        With which every connection begins; None: all are in clear text.
    """

    def __init__(
        self,
        limits: ConnectionLimits,
        gate: Front,
        held: HeldBytes,
        general: General,
        serve: Serve | None = None,
        tls: Contexts | None = None,
    ) -> None:
        self.gate = gate
        self.held = held
        self.general = general
        self.serve = serve
        self.tls = tls
        self.open: set[ServedConnection] = set()
        self._strangers: dict[ServedConnection, None] = {}
        self._strangers_max = limits.connections_without_token_max
        # Half of the files that this process may open: the table's files and coordination need some, too.
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        files_max = 1 << 20 if soft == resource.RLIM_INFINITY else soft
        self._max = min(limits.connections_max, max(1, files_max // 2))
        self._sweeper: asyncio.TimerHandle | None = None

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to close connections that are too slow."""
        now = loop.time()
        for connection in list(self.open):
            connection.close_if_late(now)
        self._sweeper = loop.call_later(SWEEP_S, self.begin, loop)

    def close(self) -> None:
        """Close every connection that the general server does not have."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self.open):
            connection.close()

    def admit(self, connection: ServedConnection) -> bool:
        """Take a new connection, which has no token yet; False when there are too many."""
        if len(self._strangers) >= self._strangers_max:
            self._close_oldest_stranger("it was the oldest connection without the token")
        if len(self.open) + self.general.connections() >= self._max:
            if not self._strangers:
                self.gate.refused(connection.peer, "too many connections")
                return False
            self._close_oldest_stranger("too many connections, and it was the oldest one without the token")
        self.open.add(connection)
        self._strangers[connection] = None
        return True

    def has_token(self, connection: ServedConnection) -> None:
        """Take note that a connection has sent the token."""
        self._strangers.pop(connection, None)

    def forget(self, connection: ServedConnection) -> None:
        """Take note that a connection has ended, or is the general server's."""
        self.open.discard(connection)
        self._strangers.pop(connection, None)

    def _close_oldest_stranger(self, reason: str) -> None:
        oldest = next(iter(self._strangers))
        self.gate.refused(oldest.peer, reason)
        self.forget(oldest)
        oldest.abort()


async def stop_listening(listener: asyncio.Server) -> None:
    """Close a listener when the connections that it has accepted have begun."""
    # A connection that begins after `close` would stay open, because asyncio does not know it then.
    loop = asyncio.get_running_loop()
    for each in listener.sockets:
        loop.remove_reader(each.fileno())
    # An accepted connection needs three rounds of the loop: its task begins, its transport is made, its protocol is called.
    for _ in range(3):
        await asyncio.sleep(0)
    listener.close()


class ServedConnection(asyncio.Protocol):
    """One connection: its bytes, cut into requests."""

    def __init__(self, all_: Connections, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._all = all_
        self._transport: asyncio.Transport | None = None
        self._handshake: Handshake | None = None
        self._buffer = bytearray()
        self._head: Head | None = None
        self._head_bytes = 0
        self._grant = EVERYTHING
        self._serving: tuple[Grant, Head] | None = None
        self._held = 0
        self._busy = False
        self._blocked = False
        self._discard: int | None = None
        self._deadline = math.inf

    @property
    def peer(self) -> object:
        """The client's address; None when the connection is closed."""
        return self._transport.get_extra_info("peername") if self._transport is not None else None

    # --- what the loop calls ---

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._deadline = self.loop.time() + HEAD_S
        if not self._all.admit(self):
            # A client of TLS would take an answer in clear text for a server without TLS.
            if self._all.tls is None:
                self._leave(
                    Unavailable("the replica has too many connections (connections_max); try again, or at another one")
                )
            self.close()
        elif self._all.tls is not None:
            self._handshake = Handshake(self.loop, transport, self, self._all.tls, self)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._handshake is not None:
            self._handshake.cancel()
            self._handshake = None
        self._all.held.give(self._held)
        self._held = 0
        self._buffer.clear()
        self._all.forget(self)

    def secured(self, transport: asyncio.Transport) -> None:
        """See `Greeted`."""
        self._handshake = None
        # It may have been lost in the same moment.
        if self._transport is not None:
            self._transport = transport
            self._advance()

    def in_clear(self) -> None:
        """See `Greeted`."""
        self._handshake = None
        self._refuse(
            BadInput("this port speaks TLS only: use https:// and the CA of this cluster"), "it is in clear text"
        )

    def not_secured(self, reason: str) -> None:
        """See `Greeted`."""
        self._handshake = None
        self._all.gate.refused(self.peer, f"no TLS: {reason}")
        self.abort()
        self.connection_lost(None)

    @override
    def data_received(self, data: bytes) -> None:
        if self._handshake is not None:
            # The first bytes come a moment before asyncio gives the transport by which they are answered.
            self._buffer += data
            return
        if self._discard is not None:
            self._discard -= len(data)
            if self._discard <= 0:
                self.close()
            return
        if not self._buffer and not self._busy:
            self._deadline = self.loop.time() + HEAD_S
        self._buffer += data
        if not (self._busy or self._blocked):
            self._advance()
        elif len(self._buffer) > AHEAD_BYTES_MAX and self._transport is not None:
            self._transport.pause_reading()

    @override
    def pause_writing(self) -> None:
        # A client that does not read its answers gets no further ones.
        self._blocked = True

    @override
    def resume_writing(self) -> None:
        self._blocked = False
        self._go_on()

    def close(self) -> None:
        """Close the connection when what was written is sent."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection now."""
        if self._transport is not None:
            self._transport.abort()

    def close_if_late(self, now: float) -> None:
        """Close the connection if what it must send by now has not come (the loop's time, seconds)."""
        if not self._busy and self._deadline < now and self._transport is not None:
            if self._transport.get_write_buffer_size():
                # `close` would wait for a client that does not read its answers.
                self.abort()
            else:
                self.close()

    # --- answers ---

    def answer(self, answer: JsonAnswer) -> None:
        """Send the answer to the request that is being served, and go on with the next one."""
        if self._serving is not None:
            self._all.gate.served(*self._serving, answer.status)
            self._serving = None
        self._busy = False
        self._deadline = self.loop.time() + IDLE_S_MAX
        self._write(answer)
        self._go_on()

    def _write(self, answer: JsonAnswer, more: bytes = b"") -> None:
        status, body = answer
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join((_HEADS[status], str(len(body)).encode(), more, b"\r\n\r\n", body)))

    def _leave(self, error: ReplitreeError, expected: int = DISCARDED_BYTES_MAX) -> None:
        """Answer with an error and end; a body that the client still sends is thrown away."""
        status, body = self._all.gate.answer_to(error, "")
        self._write(JsonAnswer(status, body), b"\r\nConnection: close")
        # A client that still sends its body reads the answer only after that, so the body is read and thrown away.
        self._discard = min(expected, DISCARDED_BYTES_MAX) - len(self._buffer)
        self._deadline = self.loop.time() + DISCARD_S
        self._buffer.clear()
        if self._discard <= 0:
            self.close()

    # --- requests ---

    def _go_on(self) -> None:
        if self._buffer and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
            self.loop.call_soon(self._advance)

    def _advance(self) -> None:
        """Serve the next request if it is here whole."""
        if self._busy or self._blocked or self._transport is None or not self._buffer or self._discard is not None:
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
        self._head, self._busy, self._held = None, True, 0
        self._serving = (self._grant, head)
        assert self._all.serve is not None, "only the fast path reads bodies here"
        self._all.serve(head, body, self)

    def _read_head(self) -> bool:
        """Read the next request's head; False when there is none to be served by the fast path (yet)."""
        end = self._buffer.find(b"\r\n\r\n", 0, HEAD_BYTES_MAX + 4)
        if self._buffer[0] == HANDSHAKE_BYTE:
            self._refuse(BadInput("this port speaks clear text, without TLS"), "it speaks TLS, and this port does not")
            return False
        if end < 0:
            if len(self._buffer) > HEAD_BYTES_MAX:
                self._refuse(
                    BadInput(f"the head of the request has more than {HEAD_BYTES_MAX:,} bytes"), "its head is too long"
                )
            return False
        raw = bytes(self._buffer[:end])
        head = None if self._all.serve is None else parse_head(raw)
        if head is None and (public := read_public(raw)) is not None:
            del self._buffer[: end + 4]
            self._busy = True
            self._all.gate.ask_health(partial(self._tell_health, public), asks_ready=public.asks_ready)
            return False
        if head is None and not is_request(raw):
            self._refuse(BadInput("this is not a request of HTTP/1.1"), "its head is not one of HTTP")
            return False
        try:
            if head is not None:
                self._grant = self._all.gate.authorize(head)
            else:
                self._all.gate.admit(authorization_of(raw))
        except NotAuthorized as error:
            is_known = isinstance(error, NotPermitted)
            self._refuse(error, "its token does not allow it" if is_known else "it has no valid token")
            return False
        self._all.has_token(self)
        if head is None or head.length > BODY_BYTES_MAX:
            self._hand_over()
            return False
        try:
            self._all.held.take(head.length)
        except Unavailable as error:
            # Too many bytes of unfinished bodies are in memory.
            self._leave(error, end + 4 + head.length)
            return False
        self._head, self._head_bytes, self._held = head, end + 4, head.length
        self._deadline = self.loop.time() + BODY_S + head.length / BODY_BYTES_PER_S_MIN
        return True

    def _refuse(self, error: ReplitreeError, reason: str) -> None:
        self._all.gate.refused(self.peer, reason)
        self._leave(error)

    def _tell_health(self, asked: Public, answer: JsonAnswer) -> None:
        self._busy = False
        self._deadline = self.loop.time() + IDLE_S_MAX
        if self._transport is None or self._transport.is_closing():
            return
        status = HTTPStatus(answer.status)
        end = "" if asked.stays else "Connection: close\r\n"
        lengths = f"Content-Type: application/json\r\nContent-Length: {len(answer.body)}\r\n"
        head = f"HTTP/1.1 {status.value} {status.phrase}\r\n{lengths}{end}\r\n".encode()
        self._transport.write(head + answer.body if asked.wants_body else head)
        if asked.stays:
            self._go_on()
        else:
            self.close()

    def _hand_over(self) -> None:
        """Give the connection to the general server, as if it had been there from the beginning."""
        transport = self._transport
        assert transport is not None
        general = self._all.general.protocol()
        if general is None:
            self._busy = True
            transport.pause_reading()
            self._all.general.when_loaded(self)
            return
        self._transport = None
        self._all.forget(self)
        transport.set_protocol(general)
        general.connection_made(transport)
        general.data_received(bytes(self._buffer))
        self._buffer.clear()
        transport.resume_reading()

    def general_is_loaded(self) -> None:
        """Go on at the general server, if the client is still there."""
        if self._transport is not None:
            self._hand_over()


__all__ = [
    "INSERT",
    "ConnectionLimits",
    "Connections",
    "Front",
    "General",
    "Serve",
    "ServedConnection",
    "WaitingConnection",
    "stop_listening",
]
