"""HTTP to replicas: keep-alive connections, one per thread and address, and two kinds of failure, never mixed up.

Guarantees:

* `ReplicaUnavailable`: the request was certainly not sent, so nothing was changed.
* `AnswerLost`: the request was sent and no whole answer came.  Whatever it asked for may have happened, or may yet
  happen.
* Any other outcome is the replica's own answer, whole, with its status.

Nothing is repeated here: who asks knows what a repetition would mean.

A replica whose address begins with ``https://`` is spoken to by TLS, and shows a certificate first (`replitree.tls`).

Absent on purpose: redirects, proxies, cookies.
"""

from __future__ import annotations

import http.client
import os
import select
import socket
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, TypeAlias, TypeVar

import msgspec
from typing_extensions import override

from replitree.decoding import json_decoder
from replitree.errors import NotAuthorized, ReplicaUnavailable, ReplitreeError, StoreError
from replitree.tls import NO_FILES, Contexts, TlsFailed, TlsFiles, open_connection, refusal, split_address
from replitree.wire import tracing
from replitree.wire.errors_http import error_from
from replitree.wire.ticket import TICKET_S, Ticket

if TYPE_CHECKING:
    import pyarrow as pa

CONNECT_S_MAX = 3.0
"""How long a replica may take to accept a connection, in seconds."""

ANSWER_BYTES_MAX = 256 << 20
"""Longest answer that is read into memory: the snapshot of a table with hundreds of thousands of parts."""

PIECE_BYTES = 1 << 20
"""Bytes read or sent at once where bodies are files."""

_T = TypeVar("_T")
Body: TypeAlias = "bytes | pa.Buffer | IO[bytes]"


class AnswerLost(ReplitreeError):
    """A request was sent and its answer did not come: it may have been served.

    Attributes
    ----------
    stale
        The connection had been kept from an earlier request, and the replica closed it without a word: most likely it
        did so before the request came.
    """

    def __init__(self, message: str, *, stale: bool = False) -> None:
        super().__init__(message)
        self.stale = stale


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A replica's answer: HTTP status and body."""

    status: int
    body: bytes

    def decode(self, kind: type[_T]) -> _T:
        """Read the JSON of a good answer.

        Raises
        ------
        ReplitreeError
            The error that the replica sent instead, with its class; or the answer makes no sense.
        """
        data = self.content()
        try:
            return json_decoder(kind).decode(data)
        except msgspec.DecodeError as error:
            raise ReplitreeError(
                f"the replica's answer can't be read ({error}); are both sides the same version?"
            ) from error

    def content(self) -> bytes:
        """Return the bytes of a good answer.  Raises the error that the replica sent instead."""
        if self.status != http.client.OK:
            raise self.error()
        return self.body

    def error(self) -> ReplitreeError:
        """Give the error that the replica sent."""
        try:
            body = json_decoder(dict[str, str]).decode(self.body)
        except msgspec.DecodeError:
            if self.status == http.client.UNAUTHORIZED:
                return NotAuthorized("the replica refused the token; use the cluster's")
            return ReplitreeError(f"the replica answered with status {self.status} and no explanation; see its log")
        return error_from(body)


class _Connections:
    """The connections of one thread, by address and purpose; closed when the thread ends or its client is collected."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.open: dict[str, socket.socket] = {}
        # Not __del__: the collector, where all of this is part of a cycle, may come to the sockets first.
        weakref.finalize(self, _close_all, self.open)

    def take(self, keep_as: str) -> socket.socket | None:
        """Return a kept connection, or None."""
        # After a fork the parent goes on using the sockets of which these are copies.
        if self.process != os.getpid():
            self.close()
            self.process = os.getpid()
        return self.open.pop(keep_as, None)

    def close(self) -> None:
        _close_all(self.open)


def _close_all(connections: dict[str, socket.socket]) -> None:
    while connections:
        connections.popitem()[1].close()


class HttpClient:
    """Talks to the replicas of one cluster.  Any thread may use it.

    Parameters
    ----------
    token
        The cluster's shared secret, or a ticket made of it.
    tls
        What TLS is made with; with any file, replicas in clear text are refused.
    """

    def __init__(self, token: str, tls: TlsFiles = NO_FILES) -> None:
        if not token.isascii() or not token.isprintable():
            raise NotAuthorized("the token has characters that no token has; copy the cluster's token again")
        self.tls = tls
        self._contexts = Contexts(tls)
        self._token = token
        self._headers = f"Authorization: Bearer {token}\r\n"
        self._kept = threading.local()
        self._all: weakref.WeakSet[_Connections] = weakref.WeakSet()

    @override
    def __reduce__(self) -> tuple[type[HttpClient], tuple[str, TlsFiles]]:
        """Travel to another process without connections."""
        return HttpClient, (self._token, self.tls)

    @override
    def __repr__(self) -> str:
        return "HttpClient()"

    def ticket(self, table: str, *, reads: bool = False, upload: str = "") -> str:
        """Return what a Spark task sends in place of the token: see `replitree.wire.ticket`."""
        return Ticket(table, int(time.time()) + TICKET_S, reads, upload).signed(self._token)

    def request(
        self,
        address: str,
        method: str,
        path: str,
        body: Body | None = None,
        *,
        timeout_s: float,
        length: int | None = None,
        purpose: str = "",
    ) -> HttpResponse:
        """Send a request and read the whole answer.

        Parameters
        ----------
        address
            ``host:port``, or ``https://host:port``.
        method, path
            Path with its query, encoded.
        body
            Bytes, or an open file of `length` bytes.
        timeout_s
            Longest silence of the replica, in seconds.
        purpose
            Requests of one purpose share connections: a replica serves those faster that carry only small inserts.

        Raises
        ------
        ReplicaUnavailable
            It was not sent.
        AnswerLost
            It was sent; what became of it is not known.
        """
        with self._exchange(address, method, path, body, timeout_s, length, purpose) as response:
            return _read(response)

    def read_range(self, address: str, path: str, first: int, count: int, *, timeout_s: float) -> bytes:
        """Read `count` bytes of a file of a replica, from byte `first` on.

        Raises
        ------
        ReplitreeError
            What the replica answered instead; otherwise as `request`.
        """
        span = f"Range: bytes={first}-{first + count - 1}\r\n"
        with self._exchange(address, "GET", path, None, timeout_s, None, head=span) as response:
            answer = _read(response)
        if answer.status != http.client.PARTIAL_CONTENT:
            raise answer.error()
        return answer.body

    def download(self, address: str, path: str, target: IO[bytes], *, timeout_s: float) -> None:
        """Read a file of a replica, piece by piece, into an open file.

        Raises
        ------
        StoreError
            The file can't be written.
        ReplitreeError
            What the replica answered instead; otherwise as `request`.
        """
        with self._exchange(address, "GET", path, None, timeout_s, None) as response:
            if response.status != http.client.OK:
                raise _read(response).error()
            while piece := response.read(PIECE_BYTES):
                # Apart from the read: an error of the connection is a lost answer, one of the file is not.
                try:
                    target.write(piece)
                except OSError as error:
                    raise StoreError(
                        f"can't write {target.name}: {error.strerror or error}; make room on that disk"
                    ) from error
            if response.length:
                raise http.client.IncompleteRead(b"", response.length)

    def close(self) -> None:
        """Close the connections of all threads that are not in use."""
        for connections in list(self._all):
            connections.close()

    @contextmanager
    def _exchange(
        self,
        address: str,
        method: str,
        path: str,
        body: Body | None,
        timeout_s: float,
        length: int | None,
        purpose: str = "",
        head: str = "",
    ) -> Iterator[http.client.HTTPResponse]:
        """Send a request, with more lines of its head; give the response to be read to its end; keep the connection then."""
        try:
            connections: _Connections = self._kept.connections
        except AttributeError:
            # The first request of this thread: two threads never share a connection.
            connections = self._kept.connections = _Connections()
            self._all.add(connections)
        keep_as = f"{address} {purpose}"
        kept = connections.take(keep_as)
        if kept is not None:
            # Nothing was asked, so something to read can only be the end of the connection: the replica has closed it.
            look = select.poll()
            look.register(kept, select.POLLIN)
            if look.poll(0):
                kept.close()
                kept = None
        connection = kept or self._connect(address)
        response = http.client.HTTPResponse(connection, method=method)
        host = split_address(address)[1]
        whole = False
        try:
            connection.settimeout(timeout_s)
            lines = f"{self._headers}{head}{tracing.header()}"
            _send(connection, f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{lines}", body, length)
            response.begin()
            yield response
            whole = response.isclosed() and not response.will_close
        except TimeoutError as error:
            raise AnswerLost(f"{address} did not answer in {timeout_s:.0f} s") from error
        except (OSError, http.client.HTTPException) as error:
            refused = refusal(error, address, connection) if kept is None else None
            if refused is not None:
                raise ReplicaUnavailable(refused) from error
            stale = kept is not None and isinstance(error, ConnectionError)
            raise AnswerLost(f"{address} did not answer: {str(error) or type(error).__name__}", stale=stale) from error
        finally:
            if whole:
                connections.open[keep_as] = connection
            else:
                response.close()
                connection.close()

    def _connect(self, address: str) -> socket.socket:
        try:
            connection = open_connection(address, self._contexts, CONNECT_S_MAX)
        except TlsFailed as error:
            raise ReplicaUnavailable(f"the replica can't be used: {error}") from error
        except OSError as error:
            raise ReplicaUnavailable(
                f"the replica at {address} can't be reached: {error.strerror or error}; is its server running?"
            ) from error
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return connection


def _send(connection: socket.socket, head: str, body: Body | None, length: int | None) -> None:
    """Send a request."""
    # What is no file has its bytes in memory: Arrow, which only some requests need, is not imported for the question.
    if body is None or not hasattr(body, "read"):
        content = memoryview(body or b"")
        whole = f"{head}Content-Length: {content.nbytes}\r\n\r\n".encode("ascii")
        # A small body goes with the head, because every packet wakes the replica once more.
        if content.nbytes <= PIECE_BYTES:
            connection.sendall(b"".join((whole, content)))
        else:
            connection.sendall(whole)
            connection.sendall(content)
        return
    connection.sendall(f"{head}Content-Length: {length}\r\n\r\n".encode("ascii"))
    while piece := body.read(PIECE_BYTES):
        connection.sendall(piece)


def _read(response: http.client.HTTPResponse) -> HttpResponse:
    if (response.length or 0) > ANSWER_BYTES_MAX:
        raise ReplitreeError(f"the replica's answer has {response.length} bytes, more than {ANSWER_BYTES_MAX}")
    return HttpResponse(response.status, response.read())
