"""The two servers of the differential test, with one interface: a real ZooKeeper over sockets, and the core in memory."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from replitree.coordination import embedded
from replitree.coordination.embedded import LOCALHOST, EmbeddedZooKeeper
from replitree.keeper.core.wire import XID_PING, take_frame
from tests.keeper.memory import SUPER_DIGEST, MemoryKeeper

ANSWER_S_MAX = 60.0
"""How long a reply is waited for; on a busy machine the server may stand still for seconds."""

OPTIONS = (
    "-Dzookeeper.extendedTypesEnabled=true",
    f"-Dzookeeper.DigestAuthenticationProvider.superDigest={SUPER_DIGEST.decode()}",
    "-Djute.maxbuffer=1048575",
    # Never during a test: the containers that a conversation leaves must not use up zxids of a later one.
    "-Dznode.container.checkIntervalMs=36000000",
)


class Peer(Protocol):
    """A connection."""

    def send(self, data: bytes) -> None: ...

    def frames(self, pings: int, replies: int) -> tuple[list[bytes], bool]:
        """Return the frames until so many pings and replies have come or the connection is closed, and whether it is."""

    def close(self) -> None: ...


class Server(Protocol):
    """A server."""

    def connect(self) -> Peer: ...


def _is_ping(frame: bytes) -> bool:
    return int.from_bytes(frame[:4], "big", signed=True) == XID_PING


class SocketPeer:
    """A connection to the real one."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((LOCALHOST, port), ANSWER_S_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def frames(self, pings: int, replies: int) -> tuple[list[bytes], bool]:
        found = list[bytes]()
        while pings > 0 or replies > 0:
            frame = take_frame(self._buffer)
            if frame is not None:
                found.append(frame)
                is_ping = _is_ping(frame)
                is_event = frame[:4] == b"\xff\xff\xff\xff"
                pings, replies = pings - is_ping, replies - (not is_event)
                continue
            try:
                data = self._socket.recv(1 << 16)
            except ConnectionResetError:
                data = b""
            if not data:
                return found, True
            self._buffer += data
        return found, False

    def close(self) -> None:
        self._socket.close()


class RealServer:
    """ZooKeeper."""

    def __init__(self, port: int) -> None:
        self._port = port

    def connect(self) -> SocketPeer:
        return SocketPeer(self._port)


class MemoryPeer:
    """A connection to the core."""

    def __init__(self, keeper: MemoryKeeper) -> None:
        self._keeper = keeper
        self._connection = keeper.connect()
        self._buffer = bytearray()

    def send(self, data: bytes) -> None:
        self._keeper.send(self._connection, data)

    def frames(self, pings: int, replies: int) -> tuple[list[bytes], bool]:  # noqa: ARG002 - all is here at once
        data, is_closed = self._keeper.take(self._connection)
        self._buffer += data
        found = list[bytes]()
        while (frame := take_frame(self._buffer)) is not None:
            found.append(frame)
        return found, is_closed

    def close(self) -> None:
        self._keeper.front.disconnected(self._connection)


class MemoryServer:
    """The core."""

    def __init__(self) -> None:
        self.keeper = MemoryKeeper()

    def connect(self) -> MemoryPeer:
        return MemoryPeer(self.keeper)


@contextmanager
def real_server(folder: Path) -> Iterator[RealServer]:
    """Start a ZooKeeper 3.9 as the suites need it: all types of nodes, a super user, frames as by default."""
    flags = embedded.JAVA_FLAGS
    embedded.JAVA_FLAGS = (*flags, *OPTIONS)
    server = EmbeddedZooKeeper(folder, durable=False)
    try:
        server.start()
        yield RealServer(server.ports[0])
    finally:
        embedded.JAVA_FLAGS = flags
        server.stop()
