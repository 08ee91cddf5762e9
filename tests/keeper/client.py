"""A client of the core in memory that shows the bytes of each reply."""

from __future__ import annotations

import struct
from typing import NamedTuple

from replitree.keeper.core.wire import EventType, Op, Stat, stat_of, take_frame
from tests.keeper.frames import create_body, handshake, request, set_body, text, versioned, watched
from tests.keeper.memory import MemoryKeeper


class Reply(NamedTuple):
    """A reply."""

    xid: int
    zxid: int
    code: int
    record: bytes

    @property
    def stat(self) -> Stat:
        return stat_of(self.record)


class Event(NamedTuple):
    """An event."""

    zxid: int
    kind: int
    path: str


class Response(NamedTuple):
    """The response to a handshake."""

    frame: bytes
    timeout_ms: int
    session: int
    password: bytes


class Client:
    """One connection.

    Parameters
    ----------
    keeper
        What to connect to.
    hello
        The handshake; that of a new session by default.
    """

    def __init__(self, keeper: MemoryKeeper, hello: bytes | None = None, address: str = "127.0.0.1") -> None:
        self.keeper = keeper
        self.connection = keeper.connect(address)
        self.is_closed = False
        self._xid = 0
        self._buffer = bytearray()
        self.response: Response | None = None
        self.heard: list[Reply | Event] = []
        keeper.send(self.connection, handshake() if hello is None else hello)
        self.listen()

    @property
    def session(self) -> int:
        assert self.response is not None
        return self.response.session

    @property
    def password(self) -> bytes:
        assert self.response is not None
        return self.response.password

    def again(self, timeout_ms: int = 30_000) -> Client:
        """Resume the session on another connection."""
        return Client(self.keeper, handshake(self.session, self.password, timeout_ms))

    def send(self, data: bytes) -> None:
        self.keeper.send(self.connection, data)
        self.listen()

    def listen(self) -> None:
        """Take what has come."""
        data, self.is_closed = self.keeper.take(self.connection)
        self._buffer += data
        while (frame := take_frame(self._buffer)) is not None:
            if self.response is None:
                _, timeout_ms, session, length = struct.unpack_from(">iiqi", frame)
                self.response = Response(frame, timeout_ms, session, frame[20 : 20 + length])
                continue
            xid, zxid, code = struct.unpack_from(">iqi", frame)
            if xid == -1:
                kind, _, length = struct.unpack_from(">iii", frame, 16)
                self.heard.append(Event(zxid, kind, frame[28 : 28 + length].decode()))
            else:
                self.heard.append(Reply(xid, zxid, code, frame[16:]))

    def take(self) -> list[Reply | Event]:
        """Return what was heard since the last time."""
        self.listen()
        heard, self.heard = self.heard, []
        return heard

    def events(self) -> list[tuple[int, str]]:
        """Return kinds and paths of the events since the last time; there are no replies."""
        return [(each.kind, each.path) for each in self.take() if isinstance(each, Event)]

    def call(self, op: int, body: bytes = b"", xid: int | None = None) -> Reply:
        """Send a request and return its reply; events before it are kept."""
        self._xid += 1
        self.send(request(self._xid if xid is None else xid, op, body))
        reply = self.heard.pop()
        assert isinstance(reply, Reply)
        return reply

    # --- requests ------------------------------------------------------------------------------------------------------------

    def create(
        self, path: str, data: bytes | None = b"", flags: int = 0, op: int = Op.CREATE, **others: bytes
    ) -> Reply:
        return self.call(op, create_body(path, data, flags=flags, **others))

    def set(self, path: str, data: bytes | None = b"", version: int = -1) -> Reply:
        return self.call(Op.SET_DATA, set_body(path, data, version))

    def delete(self, path: str, version: int = -1) -> Reply:
        return self.call(Op.DELETE, versioned(path, version))

    def exists(self, path: str, *, watch: bool = False) -> Reply:
        return self.call(Op.EXISTS, watched(path, watch=watch))

    def get(self, path: str, *, watch: bool = False) -> Reply:
        return self.call(Op.GET_DATA, watched(path, watch=watch))

    def data(self, path: str) -> bytes:
        """Return a node's data."""
        record = self.get(path).record
        return record[4 : 4 + int.from_bytes(record[:4], "big")]

    def children(self, path: str, *, watch: bool = False) -> list[str]:
        """Return names of children, sorted."""
        record = self.call(Op.GET_CHILDREN, watched(path, watch=watch)).record
        found, at = list[str](), 4
        for _ in range(int.from_bytes(record[:4], "big")):
            length = int.from_bytes(record[at : at + 4], "big")
            found.append(record[at + 4 : at + 4 + length].decode())
            at += 4 + length
        return sorted(found)

    def add_watch(self, path: str, mode: int) -> Reply:
        return self.call(Op.ADD_WATCH, text(path) + mode.to_bytes(4, "big", signed=True))

    def ping(self) -> Reply:
        return self.call(Op.PING, xid=-2)

    def close(self) -> Reply:
        return self.call(Op.CLOSE_SESSION)


CREATED, DELETED, CHANGED, CHILDREN = (
    EventType.CREATED,
    EventType.DELETED,
    EventType.DATA_CHANGED,
    EventType.CHILDREN_CHANGED,
)
