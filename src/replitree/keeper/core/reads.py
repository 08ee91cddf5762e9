"""Requests that are answered from the state, without the log: reads, and whatever concerns watches.

Reads do not check whether a path is valid: no node has an invalid one, and the empty path is the root.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from replitree.keeper.core.acls import ADMIN, READ, Identities, permits, shown, user_of
from replitree.keeper.core.paths import node_at
from replitree.keeper.core.requests import read_multi_header
from replitree.keeper.core.state import State, acl_of, descendants
from replitree.keeper.core.tree import ephemerals_of
from replitree.keeper.core.watches import PERSISTENT, RECURSIVE, STANDARD, Event, Watches
from replitree.keeper.core.wire import (
    STAT_BYTES,
    Code,
    EventType,
    Op,
    Reader,
    Refused,
    Stat,
    buffer_bytes,
    int_bytes,
    stat_of,
    vector_bytes,
)

_MULTI_END = int_bytes(-1) + b"\1" + int_bytes(-1)


class Asker(NamedTuple):
    """The connection that sent a request.

    Attributes
    ----------
    connection
        Whose watches are set.
    session
        Its session.
    identities
        Those that it had when the request came.
    """

    connection: int
    session: int
    identities: Identities


class Answer(NamedTuple):
    """The record of a reply, and the events that go before it."""

    record: bytes = b""
    events: tuple[Event, ...] = ()


def answer(state: State, watches: Watches, asker: Asker, op: int, body: Reader) -> Answer:
    """Answer a request from the state.

    Parameters
    ----------
    state
        Is not changed.
    watches
        Gets the watches that the request sets.
    asker
        The connection that sent the request.
    op, body
        The request; its type is one of `READS`.

    Raises
    ------
    Refused
        With the code of the reply.
    """
    found = READS[op](state, watches, asker, body)
    return found if isinstance(found, Answer) else Answer(found)


def _readable(state: State, path: bytes, identities: Identities, bits: int = READ) -> bytes:
    """Return the record of a node that the asker may read."""
    at = node_at(path)
    record: bytes | None = state.nodes.get(at)
    if record is None:
        raise Refused(Code.NO_NODE)
    if not permits(acl_of(state, at), bits, identities):
        raise Refused(Code.NO_AUTH)
    return record


def _exists(state: State, watches: Watches, asker: Asker, body: Reader) -> bytes:
    path, is_watched = body.text(), body.boolean()
    if b"\0" in path:
        raise Refused(Code.BAD_ARGUMENTS)
    is_there = node_at(path) in state.nodes
    record = _readable(state, path, asker.identities) if is_there else b""
    if is_watched:
        # Also of a node that does not exist: its creation is what the client waits for.
        watches.data.add(path, asker.connection, STANDARD)
    if not is_there:
        raise Refused(Code.NO_NODE)
    return record[-STAT_BYTES:]


def _get_data(state: State, watches: Watches, asker: Asker, body: Reader) -> bytes:
    path, is_watched = body.text(), body.boolean()
    record = _readable(state, path, asker.identities)
    if is_watched:
        watches.data.add(path, asker.connection, STANDARD)
    return record


def _get_acl(state: State, _watches: Watches, asker: Asker, body: Reader) -> bytes:
    path = body.text()
    record = _readable(state, path, asker.identities, READ | ADMIN)
    return shown(acl_of(state, node_at(path)), asker.identities) + record[-STAT_BYTES:]


def _get_children(state: State, watches: Watches, asker: Asker, body: Reader) -> bytes:
    path, is_watched = body.text(), body.boolean()
    _readable(state, path, asker.identities)
    if is_watched:
        watches.children.add(path, asker.connection, STANDARD)
    return vector_bytes([buffer_bytes(name) for name in state.children.get(node_at(path), ())])


def _get_children2(state: State, watches: Watches, asker: Asker, body: Reader) -> bytes:
    begin = body.at
    names = _get_children(state, watches, asker, body)
    path = Reader(body.data, begin).text()
    record: bytes = state.nodes[node_at(path)]
    return names + record[-STAT_BYTES:]


def _get_all_children_number(state: State, _watches: Watches, asker: Asker, body: Reader) -> bytes:
    path = body.text()
    _readable(state, path, asker.identities)
    # By its empty name, the root counts itself, as ZooKeeper's does.
    return int_bytes(len(descendants(state, node_at(path))) + (path == b""))


def _get_ephemerals(state: State, _watches: Watches, asker: Asker, body: Reader) -> bytes:
    prefix = body.buffer() or b""
    is_any = prefix.strip() in (b"", b"/")
    found = [path for path in ephemerals_of(state, asker.session) if is_any or path.startswith(prefix)]
    return vector_bytes([buffer_bytes(path) for path in found])


def _sync(_state: State, _watches: Watches, _asker: Asker, body: Reader) -> bytes:
    # The node need not exist.  The front waits for what was sent before; here is only the reply.
    return buffer_bytes(body.text_or_none())


def _who_am_i(_state: State, _watches: Watches, asker: Asker, _body: Reader) -> bytes:
    return vector_bytes([buffer_bytes(each.scheme) + buffer_bytes(user_of(each)) for each in asker.identities])


def _multi_read(state: State, watches: Watches, asker: Asker, body: Reader) -> bytes:
    results, operations = list[bytes](), list[tuple[int, Reader]]()
    # All are decoded before the first is answered: a request that is cut short is refused as a whole.
    while not (header := read_multi_header(body))[1]:
        if header[0] not in (Op.GET_DATA, Op.GET_CHILDREN):
            raise Refused(Code.MARSHALLING_ERROR)
        # The byte that asks for a watch is read and not obeyed: a part of a `multiRead` sets none, as in ZooKeeper.
        operations.append((header[0], Reader(buffer_bytes(body.text()) + b"\0")))
        body.boolean()
    for op, one in operations:
        try:
            record = (_get_data if op == Op.GET_DATA else _get_children)(state, watches, asker, one)
            results.append(int_bytes(op) + b"\0" + int_bytes(0) + record)
        except Refused as error:
            results.append(int_bytes(-1) + b"\0" + int_bytes(error.code) + int_bytes(error.code))
    return b"".join(results) + _MULTI_END


# --- watches -----------------------------------------------------------------------------------------------------------------


def _add_watch(_state: State, watches: Watches, asker: Asker, body: Reader) -> bytes:
    path, mode = body.text(), body.integer()
    if mode not in (0, 1):
        raise Refused(Code.MARSHALLING_ERROR)
    watches.add(path, asker.connection, RECURSIVE if mode else PERSISTENT)
    # Java's client needs these four bytes, and closes the connection without them.
    return int_bytes(0)


def _check_watches(_state: State, watches: Watches, asker: Asker, body: Reader) -> bytes:
    if not watches.has(body.text(), asker.connection, body.integer()):
        raise Refused(Code.NO_WATCHER)
    return b""


def _remove_watches(_state: State, watches: Watches, asker: Asker, body: Reader) -> bytes:
    if not watches.remove(body.text(), asker.connection, body.integer()):
        raise Refused(Code.NO_WATCHER)
    return b""


def _set_watches(state: State, watches: Watches, asker: Asker, body: Reader) -> Answer:
    return _again(state, watches, asker, body, 3)


def _set_watches2(state: State, watches: Watches, asker: Asker, body: Reader) -> Answer:
    return _again(state, watches, asker, body, 5)


def _again(state: State, watches: Watches, asker: Asker, body: Reader, vectors: int) -> Answer:
    """Set watches that the client had on an earlier connection; what it has missed meanwhile is an event at once."""
    seen = body.long()
    paths = [_given(body.vector(body.text)) for _ in range(vectors)]
    events = list[Event]()
    for place, (table, missed) in enumerate(
        ((watches.data, _of_data), (watches.data, _of_exist), (watches.children, _of_children))
    ):
        for path in paths[place]:
            record = state.nodes.get(node_at(path))
            kind = missed(stat_of(record) if record else None, seen)
            if kind is None:
                table.add(path, asker.connection, STANDARD)
            else:
                events.append(Event(asker.connection, kind, path, acl_of(state, node_at(path))))
    for mode, added in zip((PERSISTENT, RECURSIVE), paths[3:], strict=False):
        for path in added:
            watches.add(path, asker.connection, mode)
    return Answer(b"", tuple(events))


def _given(paths: list[bytes] | None) -> list[bytes]:
    if paths is None:
        raise Refused(Code.MARSHALLING_ERROR)
    return paths


def _of_data(stat: Stat | None, seen: int) -> EventType | None:
    if stat is None:
        return EventType.DELETED
    # Greater, not at least: the client has seen everything up to and with this transaction.
    return EventType.DATA_CHANGED if stat.mzxid > seen else None


def _of_exist(stat: Stat | None, _seen: int) -> EventType | None:
    return None if stat is None else EventType.CREATED


def _of_children(stat: Stat | None, seen: int) -> EventType | None:
    if stat is None:
        return EventType.DELETED
    return EventType.CHILDREN_CHANGED if stat.pzxid > seen else None


READS: dict[int, Callable[[State, Watches, Asker, Reader], bytes | Answer]] = {
    Op.EXISTS: _exists,
    Op.GET_DATA: _get_data,
    Op.GET_ACL: _get_acl,
    Op.GET_CHILDREN: _get_children,
    Op.GET_CHILDREN2: _get_children2,
    Op.GET_ALL_CHILDREN_NUMBER: _get_all_children_number,
    Op.GET_EPHEMERALS: _get_ephemerals,
    Op.SYNC: _sync,
    Op.WHO_AM_I: _who_am_i,
    Op.MULTI_READ: _multi_read,
    Op.ADD_WATCH: _add_watch,
    Op.CHECK_WATCHES: _check_watches,
    Op.REMOVE_WATCHES: _remove_watches,
    Op.SET_WATCHES: _set_watches,
    Op.SET_WATCHES2: _set_watches2,
}
"""Requests that `answer` knows."""
