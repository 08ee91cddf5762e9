"""Write requests: what is checked, in which order, and what is replied.

The order decides which error a client hears when several things are wrong.  It is ZooKeeper's.
"""

from __future__ import annotations

from typing import NamedTuple

from replitree.keeper.core import tree
from replitree.keeper.core.acls import ADMIN, CREATE, DELETE, READ, WRITE, Identities, checked_acl, permits
from replitree.keeper.core.paths import SPECIAL, check_valid, checked_parent
from replitree.keeper.core.requests import Asked, Change, Check, Create, Delete, SetAcl, SetData
from replitree.keeper.core.state import State, acl_of
from replitree.keeper.core.wire import STAT_BYTES, Code, Op, Refused, buffer_bytes, int_bytes, stat_of

TTL_MS_MAX = 2**40 - 1
ANY_VERSION = -1

_EPHEMERAL, _SEQUENTIAL = (1, 3), (2, 3, 6)
_FLAGS_MAX = 6
_TTL_FLAGS = (5, 6)
_END = int_bytes(-1) + b"\1" + int_bytes(-1)


class Request(NamedTuple):
    """Whose request it is, and when it is applied."""

    session: int
    identities: Identities
    at: tree.Moment


class Done(NamedTuple):
    """What a request has done: the record of its reply, and the changes in their order."""

    record: bytes
    changes: list[tree.Change]


def perform(state: State, request: Request, asked: Asked) -> Done:
    """Change the state as a client asks; the caller undoes what is there when it is refused.

    Raises
    ------
    Refused
        With the code of the reply.
    """
    if isinstance(asked, Code):
        raise Refused(asked)
    return _multi(state, request, asked) if isinstance(asked, list) else _change(state, request, asked)


def _change(state: State, request: Request, change: Change) -> Done:
    if isinstance(change, Create):
        return _create(state, request, change)
    _check_session(state, request)
    match change:
        case Delete():
            return _delete(state, request, change)
        case SetData():
            return _set_data(state, request, change)
        case SetAcl():
            return _set_acl(state, request, change)
        case Check():
            return _check(state, request, change)


def _create(state: State, request: Request, create: Create) -> Done:
    _check_flags(create)
    _check_session(state, request)
    parent = checked_parent(create.path)
    acl = checked_acl(create.acl, request.identities)
    if parent not in state.nodes:
        raise Refused(Code.NO_NODE)
    _check_permission(state, request, parent, CREATE)
    path = create.path
    if create.flags in _SEQUENTIAL:
        path += b"%010d" % state.counters.get(parent, 0)
    check_valid(path)
    if path in state.nodes:
        raise Refused(Code.NODE_EXISTS)
    if stat_of(state.nodes[parent]).owner:
        raise Refused(Code.NO_CHILDREN_FOR_EPHEMERALS)
    owner, lifetime_ms = 0, tree.PERSISTENT
    # The type decides about containers and times to live; the flags about the rest only.
    if create.op == Op.CREATE_CONTAINER:
        lifetime_ms = tree.CONTAINER
    elif create.op == Op.CREATE_TTL:
        lifetime_ms = create.ttl_ms
    elif create.flags in _EPHEMERAL:
        owner = request.session
    change = tree.create(state, path, create.data, acl, owner, lifetime_ms, request.at)
    stat = b"" if create.op == Op.CREATE else state.nodes[path][-STAT_BYTES:]
    return Done(buffer_bytes(path) + stat, [change])


def _check_flags(create: Create) -> None:
    is_ttl = create.flags in _TTL_FLAGS
    # ZooKeeper 3.9.5 takes createTTL with other flags and no time, and stops for good when it applies that.
    if not 0 <= create.flags <= _FLAGS_MAX or is_ttl != (create.op == Op.CREATE_TTL):
        raise Refused(Code.BAD_ARGUMENTS)
    if is_ttl and not 0 < create.ttl_ms <= TTL_MS_MAX:
        raise Refused(Code.BAD_ARGUMENTS)


def _delete(state: State, request: Request, delete: Delete) -> Done:
    path, parent = delete.path, checked_parent(delete.path)
    if path in SPECIAL:
        raise Refused(Code.BAD_ARGUMENTS)
    if parent not in state.nodes:
        raise Refused(Code.NO_NODE)
    _check_permission(state, request, parent, DELETE)
    _check_version(stat_of(_node(state, path)).version, delete.version)
    if path in state.children:
        raise Refused(Code.NOT_EMPTY)
    return Done(b"", [tree.delete(state, path, request.at.zxid)])


def _set_data(state: State, request: Request, change: SetData) -> Done:
    check_valid(change.path)
    node = _node(state, change.path)
    _check_permission(state, request, change.path, WRITE)
    _check_version(stat_of(node).version, change.version)
    done = tree.set_data(state, change.path, change.data, request.at)
    return Done(state.nodes[change.path][-STAT_BYTES:], [done])


def _set_acl(state: State, request: Request, change: SetAcl) -> Done:
    check_valid(change.path)
    acl = checked_acl(change.acl, request.identities)
    node = _node(state, change.path)
    _check_permission(state, request, change.path, ADMIN)
    _check_version(stat_of(node).aversion, change.version)
    tree.set_acl(state, change.path, acl)
    return Done(state.nodes[change.path][-STAT_BYTES:], [])


def _check(state: State, request: Request, check: Check) -> Done:
    check_valid(check.path)
    node = _node(state, check.path)
    _check_permission(state, request, check.path, READ)
    _check_version(stat_of(node).version, check.version)
    return Done(b"", [])


def _multi(state: State, request: Request, operations: list[tuple[int, Change]]) -> Done:
    results, changes = list[bytes](), list[tree.Change]()
    for place, (op, change) in enumerate(operations):
        try:
            done = _change(state, request, change)
        except Refused as error:
            state.undo()
            return Done(_failed(place, len(operations), error.code), [])
        results.append(_result(op, 0) + done.record)
        changes += done.changes
    return Done(b"".join(results) + _END, changes)


def _result(op: int, code: int) -> bytes:
    """Return the header of one result."""
    # All types of creation that answer with a Stat look alike to clients.
    shown = Op.CREATE2 if op in (Op.CREATE_CONTAINER, Op.CREATE_TTL) else op
    return int_bytes(shown) + b"\0" + int_bytes(code)


def _failed(place: int, count: int, code: Code) -> bytes:
    codes = [Code.OK] * place + [code] + [Code.RUNTIME_INCONSISTENCY] * (count - place - 1)
    return b"".join(_result(-1, each) + int_bytes(each) for each in codes) + _END


def _node(state: State, path: bytes) -> bytes:
    record: bytes | None = state.nodes.get(path)
    if record is None:
        raise Refused(Code.NO_NODE)
    return record


def _check_session(state: State, request: Request) -> None:
    # An entry may hold requests behind the one that ended their session.
    if request.session not in state.sessions:
        raise Refused(Code.SESSION_EXPIRED)


def _check_permission(state: State, request: Request, path: bytes, bits: int) -> None:
    if not permits(acl_of(state, path), bits, request.identities):
        raise Refused(Code.NO_AUTH)


def _check_version(found: int, wanted: int) -> None:
    if wanted not in (ANY_VERSION, found):
        raise Refused(Code.BAD_VERSION)
