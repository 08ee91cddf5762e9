"""Requests that change the tree, decoded from the bytes of a client."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from replitree.keeper.core.acls import Permission, read_acl
from replitree.keeper.core.wire import Code, Op, Reader, Refused


class Create(NamedTuple):
    """Create a node; `op` is one of the four types of creation and decides about containers and times to live."""

    op: Op
    path: bytes
    data: bytes | None
    acl: list[Permission] | None
    flags: int
    ttl_ms: int


class Delete(NamedTuple):
    """Delete a node."""

    path: bytes
    version: int


class SetData(NamedTuple):
    """Replace a node's data."""

    path: bytes
    data: bytes | None
    version: int


class SetAcl(NamedTuple):
    """Replace a node's ACL."""

    path: bytes
    acl: list[Permission] | None
    version: int


class Check(NamedTuple):
    """Require a node to be at a version; only in a multi."""

    path: bytes
    version: int


Change: TypeAlias = Create | Delete | SetData | SetAcl | Check

Asked: TypeAlias = Change | list[tuple[int, Change]] | Code
"""A change; the changes of a multi, each with the type that its result has; or an error, whatever the state is."""

NO_TTL = -1
CREATIONS = frozenset((Op.CREATE, Op.CREATE2, Op.CREATE_CONTAINER, Op.CREATE_TTL))
WRITES = CREATIONS | {Op.DELETE, Op.SET_DATA, Op.SET_ACL, Op.MULTI, Op.RECONFIG, Op.CLOSE_SESSION}
"""Requests that go through the log."""

_CONTAINER = 4
_TTL_FLAGS = (5, 6)
_FLAGS = range(7)
_READS_IN_MULTI = (Op.GET_DATA, Op.GET_CHILDREN)
_IN_MULTI = CREATIONS | {Op.DELETE, Op.SET_DATA, Op.CHECK}


class _Uncounted(Refused):
    """The one error of a multi that uses up no zxid: an ACL that is null."""


def read_request(op: int, reader: Reader) -> Asked:
    """Decode a request that changes the tree.

    Raises
    ------
    Refused
        `MARSHALLING_ERROR`: its bytes are none of such a request, so that it uses up no zxid.  An error that is returned does.
    """
    if op == Op.RECONFIG:
        for _ in range(3):
            reader.text_or_none()
        reader.long()
        return Code.RECONFIG_DISABLED
    if op == Op.MULTI:
        return _read_multi(reader)
    return _read_change(op, reader)


def _read_change(op: int, reader: Reader) -> Change | Code:
    """Decode one change; one of a null path is an error that uses up a zxid."""
    path = reader.text_or_none()
    at, null_path = path or b"", Code.MARSHALLING_ERROR
    found: Change
    if op in CREATIONS:
        data, acl, flags = reader.buffer(), read_acl(reader), reader.integer()
        found = Create(Op(op), at, data, acl, flags, reader.long() if op == Op.CREATE_TTL else NO_TTL)
    elif op == Op.DELETE:
        found = Delete(at, reader.integer())
    elif op == Op.SET_DATA:
        found, null_path = SetData(at, reader.buffer(), reader.integer()), Code.BAD_ARGUMENTS
    elif op == Op.SET_ACL:
        found, null_path = SetAcl(at, read_acl(reader), reader.integer()), Code.BAD_ARGUMENTS
    elif op == Op.CHECK:
        found = Check(at, reader.integer())
    else:
        raise Refused(Code.MARSHALLING_ERROR)
    return null_path if path is None else found


def _read_multi(reader: Reader) -> list[tuple[int, Change]] | Code:
    found, has_reads = list[tuple[int, Change]](), False
    try:
        while not (header := read_multi_header(reader))[1]:
            op = header[0]
            if op in _READS_IN_MULTI:
                reader.text_or_none()
                reader.boolean()
                has_reads = True
            elif op in _IN_MULTI and not isinstance(change := _read_change(op, reader), Code):
                found.append(_in_multi(op, change))
            else:
                return Code.MARSHALLING_ERROR
            if has_reads and found:
                return Code.MARSHALLING_ERROR
    except _Uncounted:
        raise
    except Refused as error:
        return error.code
    return Code.MARSHALLING_ERROR if has_reads else found


def _in_multi(op: int, change: Change) -> tuple[int, Change]:
    if not isinstance(change, Create) or op == Op.CREATE_TTL:
        return op, change
    # Alone, wrong flags are refused with BAD_ARGUMENTS; in a multi ZooKeeper can't even decode them.
    if change.flags not in _FLAGS:
        raise Refused(Code.MARSHALLING_ERROR)
    if change.acl is None:
        raise _Uncounted(Code.MARSHALLING_ERROR)
    if change.flags in _TTL_FLAGS:
        raise Refused(Code.MARSHALLING_ERROR)
    # In a multi the flags make a container, too, not only the type.
    if change.flags == _CONTAINER:
        return Op.CREATE_CONTAINER, change._replace(op=Op.CREATE_CONTAINER)
    return op, change


def read_multi_header(reader: Reader) -> tuple[int, bool]:
    """Return the type of the next operation of a multi, and whether it is the mark of the end."""
    op, is_end = reader.integer(), reader.boolean()
    reader.integer()  # an error code, which has no meaning in a request
    return op, is_end
