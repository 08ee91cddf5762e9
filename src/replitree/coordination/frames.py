"""The frames of one connection to ZooKeeper: answers are read ahead, and requests are written without a look for room first.

kazoo asks the system before each read and each write whether the socket is ready, and reads an answer in two pieces.  That is
four calls for an answer and two for a request.  Each call gives the interpreter away, and a thread that computes keeps it for
half a millisecond, while an insert waits for its commit.  Here an answer is one call, and so is a request; answers that have
arrived together are one call.

Absent on purpose: TLS, whose sockets hold bytes back that the system does not report as ready.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from typing import Any

from kazoo.exceptions import ConnectionDropped
from kazoo.handlers.threading import KazooTimeoutError

AHEAD_BYTES_MAX = 1 << 14
"""Bytes that are read before it is known how long an answer is."""

_length = struct.Struct("!i")


class Frames:
    """Reads and writes one connection's bytes.  One thread uses it.

    Parameters
    ----------
    select
        Waits for sockets, as `select.select`.
    """

    def __init__(self, select: Callable[..., Any]) -> None:
        self._select = select
        self._ahead = b""

    def read_ahead(self, connection: socket.socket) -> None:
        """Take what has arrived on a connection, up to `AHEAD_BYTES_MAX` bytes; nothing when nothing has.

        Raises
        ------
        ConnectionDropped
            The connection has ended.
        """
        self._ahead += self._receive(connection, AHEAD_BYTES_MAX, None)

    @property
    def has_frame(self) -> bool:
        """Whether a whole frame was read ahead: no wait for the socket would tell of it."""
        size = len(self._ahead) - _length.size
        return size >= 0 and size >= _length.unpack_from(self._ahead)[0]

    def read(self, connection: socket.socket, size: int, timeout: float) -> bytes:
        """Return the next bytes; each piece of them must come within `timeout` seconds.

        Raises
        ------
        ConnectionDropped
            The connection has ended.
        KazooTimeoutError
            They did not come in time.
        """
        pieces = [self._ahead[:size]]
        self._ahead = self._ahead[size:]
        missing = size - len(pieces[0])
        while missing > 0:
            # No more than is asked for: bytes of the next answer would be overlooked while the session begins.
            pieces.append(self._receive(connection, missing, timeout))
            missing -= len(pieces[-1])
        return b"".join(pieces)

    def write(self, connection: socket.socket, data: bytes | bytearray, timeout: float) -> None:
        """Write bytes; raises as `read`."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[connection.send(rest) :]
            except BlockingIOError:
                self._wait([], [connection], timeout)
            except OSError as error:
                raise _dropped(error) from error

    def _receive(self, connection: socket.socket, size: int, timeout: float | None) -> bytes:
        """Read once, up to `size` bytes; with no timeout nothing is waited for, and there may be none."""
        while True:
            try:
                data = connection.recv(size)
            except BlockingIOError:
                if timeout is None:
                    return b""
                self._wait([connection], [], timeout)
                continue
            except OSError as error:
                raise _dropped(error) from error
            if not data:
                raise ConnectionDropped("socket connection broken")
            return data

    def _wait(self, reading: list[socket.socket], writing: list[socket.socket], timeout: float) -> None:
        try:
            found = self._select(reading, writing, [], timeout)
        except OSError as error:
            raise _dropped(error) from error
        if not any(found):
            raise KazooTimeoutError(f"socket time-out during {'read' if reading else 'write'}")


def _dropped(error: OSError) -> ConnectionDropped:
    return ConnectionDropped(f"socket connection error: {error.strerror or error}")


__all__ = ["AHEAD_BYTES_MAX", "Frames"]
