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
    acl: list[Permission]
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
    acl: list[Permission]
    version: int


class Check(NamedTuple):
    """Require a node to be at a version; only in a multi."""

    path: bytes
    version: int


Change: TypeAlias = Create | Delete | SetData | SetAcl | Check

NO_TTL = -1
CREATIONS = frozenset((Op.CREATE, Op.CREATE2, Op.CREATE_CONTAINER, Op.CREATE_TTL))
WRITES = CREATIONS | {Op.DELETE, Op.SET_DATA, Op.SET_ACL, Op.MULTI, Op.RECONFIG, Op.CLOSE_SESSION}
"""Requests that go through the log."""

_IN_MULTI = CREATIONS | {Op.DELETE, Op.SET_DATA, Op.CHECK}


def read_change(op: int, reader: Reader) -> Change:
    """Decode one change.

    Raises
    ------
    Refused
        `MARSHALLING_ERROR`: the record is cut short, or the type is not one of a change.
    """
    if op in CREATIONS:
        path, data, acl, flags = reader.text(), reader.buffer(), read_acl(reader), reader.int()
        return Create(Op(op), path, data, acl, flags, reader.long() if op == Op.CREATE_TTL else NO_TTL)
    if op == Op.DELETE:
        return Delete(reader.text(), reader.int())
    if op == Op.SET_DATA:
        return SetData(reader.text(), reader.buffer(), reader.int())
    if op == Op.SET_ACL:
        return SetAcl(reader.text(), read_acl(reader), reader.int())
    if op == Op.CHECK:
        return Check(reader.text(), reader.int())
    raise Refused(Code.MARSHALLING_ERROR)


def read_multi(reader: Reader) -> list[tuple[int, Change]]:
    """Decode the changes of a multi, each with the type that its header has.

    Raises
    ------
    Refused
        `MARSHALLING_ERROR`: it is cut short, or a type is not allowed in it.
    """
    found = list[tuple[int, Change]]()
    while True:
        op, is_end = read_multi_header(reader)
        if is_end:
            return found
        if op not in _IN_MULTI:
            raise Refused(Code.MARSHALLING_ERROR)
        found.append((op, read_change(op, reader)))


def read_multi_header(reader: Reader) -> tuple[int, bool]:
    """Return the type of the next operation of a multi, and whether it is the mark of the end."""
    op, is_end = reader.int(), reader.bool()
    reader.int()  # an error code, which has no meaning in a request
    return op, is_end
