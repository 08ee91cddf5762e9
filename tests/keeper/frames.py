"""Requests of ZooKeeper's client protocol as bytes, for tests: also those that no client would send."""

from __future__ import annotations

import struct

from replitree.keeper.core.acls import OPEN
from replitree.keeper.core.wire import Op, buffer_bytes, frame_bytes, int_bytes, vector_bytes

NO_TTL = -1
END = int_bytes(-1) + b"\1" + int_bytes(-1)


def text(value: str | bytes | None) -> bytes:
    return buffer_bytes(value.encode() if isinstance(value, str) else value)


def long_bytes(value: int) -> bytes:
    return struct.pack(">q", value)


def request(xid: int, op: int, body: bytes = b"") -> bytes:
    return frame_bytes(struct.pack(">ii", xid, op) + body)


def handshake(
    session: int = 0,
    password: bytes | None = bytes(16),
    timeout_ms: int = 30_000,
    last_zxid: int = 0,
    read_only: bytes = b"\0",
) -> bytes:
    return frame_bytes(struct.pack(">iqiq", 0, last_zxid, timeout_ms, session) + buffer_bytes(password) + read_only)


def create_body(path: str | bytes | None, data: bytes | None = b"", acl: bytes = OPEN, flags: int = 0) -> bytes:
    return text(path) + buffer_bytes(data) + acl + int_bytes(flags)


def create_ttl_body(
    path: str | bytes, ttl_ms: int, flags: int = 5, data: bytes | None = b"", acl: bytes = OPEN
) -> bytes:
    return create_body(path, data, acl, flags) + long_bytes(ttl_ms)


def watched(path: str | bytes | None, *, watch: bool = False) -> bytes:
    return text(path) + (b"\1" if watch else b"\0")


def versioned(path: str | bytes | None, version: int = -1) -> bytes:
    return text(path) + int_bytes(version)


def set_body(path: str | bytes | None, data: bytes | None, version: int = -1) -> bytes:
    return text(path) + buffer_bytes(data) + int_bytes(version)


def acl_bytes(*elements: tuple[int, str | None, str | None]) -> bytes:
    return vector_bytes([int_bytes(bits) + text(scheme) + text(name) for bits, scheme, name in elements])


def multi_body(*operations: tuple[int, bytes]) -> bytes:
    return b"".join(int_bytes(op) + b"\0" + int_bytes(-1) + body for op, body in operations) + END


def auth_body(scheme: str, credentials: bytes) -> bytes:
    return int_bytes(0) + text(scheme) + buffer_bytes(credentials)


def set_watches_body(seen: int, *vectors: list[str]) -> bytes:
    return long_bytes(seen) + b"".join(vector_bytes([text(path) for path in paths]) for paths in vectors)


PING = request(-2, Op.PING)
CLOSE = request(0, Op.CLOSE_SESSION)
