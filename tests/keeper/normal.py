"""Replies and events in a form that is equal for two servers that do the same: no times, zxids counted from a base.

What is left out, and why:

* zxids are numbers relative to the first one of a run; both servers must use up the same number of them;
* times are compared only as far as a node that was never changed must have mtime = ctime;
* sessions are numbered in the order in which they are opened, passwords are left out;
* names of children, ephemeral nodes and identities are sorted: ZooKeeper has them in the order of a hash table.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from replitree.keeper.core.wire import Op, Reader, Refused, stat_of

Plain = tuple[Any, ...]


class Namer:
    """Numbers of one server in the order of their appearance."""

    def __init__(self) -> None:
        self.base_zxid = 0
        self._sessions: dict[int, int] = {0: 0}

    def zxid(self, zxid: int) -> int:
        """Return a zxid from the base on; 0 and less mean no transaction, older ones are all alike."""
        return zxid if zxid <= 0 else max(zxid - self.base_zxid, 0) + 1

    def session(self, session: int) -> int:
        return self._sessions.setdefault(session, len(self._sessions))


def response(namer: Namer, frame: bytes) -> Plain:
    """Return the response to a handshake."""
    reader = Reader(frame)
    version, timeout_ms, session, password = reader.integer(), reader.integer(), reader.long(), reader.buffer()
    assert password is not None
    return ("response", version, timeout_ms, namer.session(session), len(password), any(password), frame[reader.at :])


def reply(namer: Namer, frame: bytes, ops: dict[int, int]) -> Plain:
    """Return a reply or an event.

    Parameters
    ----------
    namer
        Of the server.
    frame
        Without its length.
    ops
        Types of the requests by their xids; auth, pings and watches have fixed ones.
    """
    xid, zxid, code = struct.unpack_from(">iqi", frame)
    reader = Reader(frame, 16)
    if xid == -1 and xid not in ops:
        kind, state = reader.integer(), reader.integer()
        return ("event", namer.zxid(zxid), code, kind, state, reader.buffer(), frame[reader.at :])
    decode = _RECORDS.get(ops.get(xid, 0))
    record: Any = ()
    if decode and code == 0:
        try:
            record = decode(namer, reader)
        except Refused:
            record = "cut short"
    return ("reply", xid, namer.zxid(zxid), code, record, frame[reader.at :])


def _stat(namer: Namer, reader: Reader) -> Plain:
    stat = stat_of(reader.take(68))
    times = stat.mtime_ms == stat.ctime_ms if stat.version == 0 else "changed"
    zxids = [namer.zxid(each) for each in (stat.czxid, stat.mzxid, stat.pzxid)]
    owner = namer.session(stat.owner)
    return (*zxids, times, stat.version, stat.cversion, stat.aversion, owner, stat.data_bytes, stat.children)


def _path(_namer: Namer, reader: Reader) -> Plain:
    return (reader.buffer(),)


def _path_stat(namer: Namer, reader: Reader) -> Plain:
    return (reader.buffer(), *_stat(namer, reader))


def _names(_namer: Namer, reader: Reader) -> Plain:
    return tuple(sorted(str(reader.buffer()) for _ in range(reader.integer())))


def _names_stat(namer: Namer, reader: Reader) -> Plain:
    return (_names(namer, reader), _stat(namer, reader))


def _acl_stat(namer: Namer, reader: Reader) -> Plain:
    acl = sorted((reader.integer(), reader.buffer(), reader.buffer()) for _ in range(reader.integer()))
    return (tuple(acl), _stat(namer, reader))


def _identities(_namer: Namer, reader: Reader) -> Plain:
    return tuple(sorted((reader.buffer(), reader.buffer()) for _ in range(reader.integer())))


def _nothing(_namer: Namer, _reader: Reader) -> Plain:
    return ()


def _code(_namer: Namer, reader: Reader) -> Plain:
    return (reader.integer(),)


def _multi(namer: Namer, reader: Reader) -> Plain:
    found = list[Plain]()
    while True:
        op, end, code = reader.integer(), reader.take(1), reader.integer()
        if end != b"\0":
            return (*found, (op, end, code))
        found.append((op, end, code, (_code if op == -1 else _RECORDS.get(op, _nothing))(namer, reader)))


_RECORDS: dict[int, Callable[[Namer, Reader], Plain]] = {
    Op.CREATE: _path,
    Op.CREATE2: _path_stat,
    Op.CREATE_CONTAINER: _path_stat,
    Op.CREATE_TTL: _path_stat,
    Op.EXISTS: _stat,
    Op.SET_DATA: _stat,
    Op.SET_ACL: _stat,
    Op.GET_DATA: _path_stat,
    Op.GET_ACL: _acl_stat,
    Op.GET_CHILDREN: _names,
    Op.GET_CHILDREN2: _names_stat,
    Op.GET_EPHEMERALS: _names,
    Op.WHO_AM_I: _identities,
    Op.MULTI: _multi,
    Op.MULTI_READ: _multi,
}
