"""Bytes of ZooKeeper's client protocol: frames, primitive types, handshakes, headers, events, Stat.

All integers are big endian.  A frame is a length of 4 bytes and that many bytes.  A buffer is a length and bytes; the length -1
stands for "null".  A vector is a count and its items.  The protocol has no version; servers tell clients apart only by what
the handshake holds.

(Facts: ZooKeeper 3.9.5, its `zookeeper.jute` and its sources; checked against a running server by `tests/keeper`.)
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Final, NamedTuple, TypeVar

T = TypeVar("T")

FRAME_BYTES_MAX: Final = 0xFFFFF
"""Largest frame of a client, in bytes; ZooKeeper's default of `jute.maxbuffer`."""

PASSWORD_BYTES: Final = 16

XID_EVENT: Final = -1
XID_PING: Final = -2

NO_ZXID: Final = -1
"""Zxid of replies that no state stands behind: events of `setWatches`, refusals of unknown requests."""

_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_HEADER = struct.Struct(">iqi")
_REQUEST = struct.Struct(">ii")
_EVENT = struct.Struct(">iqiii")
_STAT = struct.Struct(">qqqqiiiqiiq")

STAT_BYTES: Final = _STAT.size
_SYNC_CONNECTED = 3


class Op(IntEnum):
    """Types of requests."""

    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    RECONFIG = 16
    CHECK_WATCHES = 17
    REMOVE_WATCHES = 18
    CREATE_CONTAINER = 19
    DELETE_CONTAINER = 20
    CREATE_TTL = 21
    MULTI_READ = 22
    AUTH = 100
    SET_WATCHES = 101
    GET_EPHEMERALS = 103
    GET_ALL_CHILDREN_NUMBER = 104
    SET_WATCHES2 = 105
    ADD_WATCH = 106
    WHO_AM_I = 107
    CLOSE_SESSION = -11


class Code(IntEnum):
    """Error codes of replies.  There is none for "unknown": then the server closes the connection."""

    OK = 0
    SYSTEM_ERROR = -1
    RUNTIME_INCONSISTENCY = -2
    MARSHALLING_ERROR = -5
    UNIMPLEMENTED = -6
    BAD_ARGUMENTS = -8
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_ACL = -114
    AUTH_FAILED = -115
    NO_WATCHER = -121
    RECONFIG_DISABLED = -123


class EventType(IntEnum):
    """What an event reports of its path."""

    CREATED = 1
    DELETED = 2
    DATA_CHANGED = 3
    CHILDREN_CHANGED = 4


class Refused(Exception):
    """A request has no effect; its reply carries the code."""

    def __init__(self, code: Code) -> None:
        super().__init__(code)
        self.code = code


class Reader:
    """Reads primitive types from the bytes of one frame.

    Every method raises `Refused` with `MARSHALLING_ERROR` when the frame ends too early or a length is impossible.  Bytes that
    are left at the end are ignored, as ZooKeeper does.

    Parameters
    ----------
    data
        The frame, without its length.
    at
        Where to begin, in bytes.
    """

    __slots__ = ("at", "data")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def take(self, count: int) -> bytes:
        """Return the next bytes."""
        end = self.at + count
        if count < 0 or end > len(self.data):
            raise Refused(Code.MARSHALLING_ERROR)
        taken = self.data[self.at : end]
        self.at = end
        return taken

    def integer(self) -> int:
        """Return a signed integer of 4 bytes."""
        end = self.at + _INT.size
        if end > len(self.data):
            raise Refused(Code.MARSHALLING_ERROR)
        value: int = _INT.unpack_from(self.data, self.at)[0]
        self.at = end
        return value

    def long(self) -> int:
        """Return a signed integer of 8 bytes."""
        value: int = _LONG.unpack(self.take(8))[0]
        return value

    def boolean(self) -> bool:
        """Return a truth value of 1 byte."""
        return self.take(1) != b"\0"

    def buffer(self) -> bytes | None:
        """Return bytes, or None for null."""
        length = self.integer()
        return None if length == -1 else self.take(length)

    def text(self) -> bytes:
        """Return text as UTF-8; null is refused."""
        found = self.text_or_none()
        if found is None:
            raise Refused(Code.MARSHALLING_ERROR)
        return found

    def text_or_none(self) -> bytes | None:
        """Return text as UTF-8, or None for null.

        Bytes that are not UTF-8 become U+FFFD, as in Java, so that every text that is stored can be sent to any client.
        """
        found = self.buffer()
        return found if found is None or found.isascii() else found.decode("utf-8", "replace").encode()

    def vector(self, item: Callable[[], T]) -> list[T] | None:
        """Return the items of a vector, or None for null; a negative count is no items."""
        count = self.integer()
        # Each item has 1 byte at least: a count beyond that needs no list.
        if count > len(self.data) - self.at:
            raise Refused(Code.MARSHALLING_ERROR)
        return None if count == -1 else [item() for _ in range(count)]


# --- what is sent ------------------------------------------------------------------------------------------------------------


def int_bytes(value: int) -> bytes:
    """Return a signed integer of 4 bytes."""
    return _INT.pack(value)


def buffer_bytes(value: bytes | None) -> bytes:
    """Return bytes, or null, with their length.

    >>> buffer_bytes(b"a").hex(), buffer_bytes(None).hex()
    ('0000000161', 'ffffffff')
    """
    return _INT.pack(-1) if value is None else _INT.pack(len(value)) + value


def vector_bytes(items: list[bytes]) -> bytes:
    """Return a vector of items that are encoded already."""
    return _INT.pack(len(items)) + b"".join(items)


def frame_bytes(payload: bytes) -> bytes:
    """Return a frame."""
    return _INT.pack(len(payload)) + payload


def reply_bytes(xid: int, zxid: int, code: int = 0, record: bytes = b"") -> bytes:
    """Return the frame of a reply; `record` is left out unless the code is 0."""
    return frame_bytes(_HEADER.pack(xid, zxid, code) + (record if code == 0 else b""))


def event_bytes(kind: EventType, path: bytes, zxid: int) -> bytes:
    """Return the frame of an event.

    Parameters
    ----------
    kind
        What happened.
    path
        The node that it happened to.
    zxid
        The transaction that did it; `NO_ZXID` for an event that `setWatches` derived.
    """
    return frame_bytes(_EVENT.pack(XID_EVENT, zxid, 0, kind, _SYNC_CONNECTED) + buffer_bytes(path))


# --- frames and handshakes ---------------------------------------------------------------------------------------------------


class BadFrame(Exception):
    """The connection can't go on: the length of a frame, or a handshake, is not one of this protocol."""


def take_frame(data: bytearray) -> bytes | None:
    """Take the first frame from what a connection has received; None if it is not whole yet.

    Raises
    ------
    BadFrame
        Its length is negative or above `FRAME_BYTES_MAX`.
    """
    if len(data) < _INT.size:
        return None
    length: int = _INT.unpack_from(data)[0]
    if not 0 <= length <= FRAME_BYTES_MAX:
        raise BadFrame(f"a frame of {length} bytes")
    end = _INT.size + length
    if len(data) < end:
        return None
    frame = bytes(data[_INT.size : end])
    del data[:end]
    return frame


class ConnectRequest(NamedTuple):
    """The first frame of a connection.

    Attributes
    ----------
    last_zxid
        The largest zxid that the client has seen.
    timeout_ms
        The session timeout that it asks for, in milliseconds.
    session
        The session that it resumes, 0 for a new one.
    password
        The session's password; None if the client sent null.
    has_read_only
        Whether it sent the byte `readOnly`; the response then has it, too.
    """

    last_zxid: int
    timeout_ms: int
    session: int
    password: bytes | None
    has_read_only: bool


def connect_request(frame: bytes) -> ConnectRequest:
    """Decode the first frame of a connection.

    Raises
    ------
    BadFrame
        It is too short.
    """
    reader = Reader(frame)
    try:
        reader.integer()  # the version of the protocol, which is 0 and not looked at
        last_zxid, timeout_ms, session = reader.long(), reader.integer(), reader.long()
        password = reader.buffer()
    except Refused as error:
        raise BadFrame("a handshake that is cut short") from error
    return ConnectRequest(last_zxid, timeout_ms, session, password, has_read_only=reader.at < len(frame))


def connect_response(timeout_ms: int, session: int, password: bytes, *, with_read_only: bool) -> bytes:
    """Return the frame that answers a handshake; timeout 0 and session 0 tell that the session is gone."""
    record = struct.pack(">iiq", 0, timeout_ms, session) + buffer_bytes(password)
    return frame_bytes(record + b"\0" * with_read_only)


def request_header(frame: bytes) -> tuple[int, int]:
    """Return xid and type of a request.

    Raises
    ------
    BadFrame
        The frame is shorter than a header.
    """
    if len(frame) < _REQUEST.size:
        raise BadFrame("a request without a header")
    xid, op = _REQUEST.unpack_from(frame)
    return xid, op


# --- Stat --------------------------------------------------------------------------------------------------------------------


class Stat(NamedTuple):
    """What the protocol tells of a node beside its data; times are milliseconds since 1970."""

    czxid: int
    mzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    cversion: int
    aversion: int
    owner: int
    data_bytes: int
    children: int
    pzxid: int

    def pack(self) -> bytes:
        """Return the 68 bytes that are sent."""
        return _STAT.pack(*self)


def stat_of(record: bytes) -> Stat:
    """Return the Stat at the end of a record."""
    return Stat._make(_STAT.unpack_from(record, len(record) - STAT_BYTES))


def int32(value: int) -> int:
    """Return a number as Java's `int` would hold it.

    >>> int32(2**31), int32(-(2**31) - 1)
    (-2147483648, 2147483647)
    """
    return (value + 2**31) % 2**32 - 2**31
