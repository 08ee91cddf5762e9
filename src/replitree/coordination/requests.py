"""The requests that a replica sends all day, leaner than kazoo's own: they are a good part of what a small insert costs.

What is different from kazoo's `transaction()` and `get_async`, and nothing else is:

* Reads of several nodes, or of several nodes' children, are one request, ZooKeeper's ``multiRead``: the server does a quarter
  of the work.

* A transaction becomes bytes once, in the thread that wants it, from our own operations; kazoo makes an object of each, several
  buffers of each object, and again tuples of the answer, in the one thread that all requests share.
* A path that is plain, as all of ours are, is taken as it is.  Any other goes through kazoo's own check.
* A `Reply` is one lock; kazoo's result has a condition, callbacks and a handler.

The format is that of ZooKeeper's ``MultiTransactionRecord`` and ``MultiResponse``, which no version has changed since 3.4, and
since 3.6 also for reads.

Absent on purpose: sessions, connections, watches.  Those are kazoo's, and so is the queue that the requests go through.
"""

from __future__ import annotations

import struct
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, ClassVar, assert_never

from kazoo.exceptions import EXCEPTIONS, MarshallingError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.paths import _prefix_root
from kazoo.protocol.serialization import Exists, GetData
from kazoo.security import OPEN_ACL_UNSAFE
from typing_extensions import override

from replitree.protocol.core import effects as fx
from replitree.protocol.core.stamps import BEFORE_ALL, StampedNode, Zxid

_CREATE, _DELETE, _GET, _SET, _CHILDREN, _CHECK, _MULTI, _MULTI_READ, _ERROR = 1, 2, 4, 5, 8, 13, 14, 22, -1
_EPHEMERAL, _SEQUENTIAL = 1, 2
_STAT_BYTES = 68
_stat = struct.Struct(
    "!24xqi"
).unpack_from  # time and version of the last change; what comes before and after is not needed
_stamps = struct.Struct(
    "!qq16xii16xi"
).unpack_from  # transactions of creation and last change; version, changes of the children; number of the children

_int = struct.Struct("!i").pack
_read_int = struct.Struct("!i").unpack_from
_header = struct.Struct("!iBi")
_HEADERS = {kind: _header.pack(kind, 0, -1) for kind in (_CREATE, _DELETE, _GET, _SET, _CHILDREN, _CHECK)}
_END = _header.pack(-1, 1, -1)


class Reply:
    """The answer to one request: set once, by kazoo's thread, and awaited by ours."""

    __slots__ = ("_error", "_first", "_open", "_value", "seen", "zxid")

    def __init__(self) -> None:
        self.zxid = 0
        """The transaction that the server had done last when it answered: of a transaction, that one."""
        self.seen: Zxid = BEFORE_ALL
        """The last transaction of which the connection had told when the request was sent on it; kazoo's thread sets it."""
        self._value: Any = None
        self._error: BaseException | None = None
        # The first outcome takes it, and never gives it back.
        self._first = threading.Lock()
        self._open = threading.Lock()
        self._open.acquire()

    def set(self, value: Any = None) -> None:
        """Take the answer; the first one counts."""
        if self._first.acquire(blocking=False):
            self._value = value
            self._open.release()

    def set_exception(self, error: BaseException) -> None:
        """Take what became of the request instead of an answer; the first word counts."""
        if self._first.acquire(blocking=False):
            self._error = error
            self._open.release()

    def wait(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds; say whether there is an answer."""
        if self._open.acquire(timeout=timeout):
            self._open.release()
            return True
        return False

    def get(self, timeout: float) -> Any:
        """Return the answer, or raise what came instead, within `timeout` seconds.

        Raises
        ------
        KazooTimeoutError
            There is none yet.
        """
        if not self.wait(timeout):
            raise KazooTimeoutError
        if self._error is not None:
            raise self._error
        return self._value


class _Request(ABC):
    """What kazoo's connection wants a request to be: a type, and ways to and from bytes."""

    type: ClassVar[int]

    def __init__(self, data: bytes) -> None:
        self._data = data

    def serialize(self) -> bytes:
        """Return the request's bytes."""
        return self._data

    def deserialize(self, data: bytes, offset: int) -> list[Any]:
        """Return one result for each operation or path, in order.

        Raises
        ------
        MarshallingError
            The bytes are no such answer: what became of the request is not known.
        """
        # Any other error would be taken for a refusal of the request's path, though the request may be done.
        try:
            return self._results(data, offset)
        # RuntimeError comes from kazoo, of an error code that it does not know.
        except (struct.error, ValueError, LookupError, RuntimeError) as error:
            raise MarshallingError(f"ZooKeeper's answer can't be read: {error}") from error

    @abstractmethod
    def _results(self, data: bytes, offset: int) -> list[Any]:
        """Read the results; any of the errors that `deserialize` turns into its own may be raised."""


class _Transaction(_Request):
    """A transaction; its results are the path of a created node, True, or an exception."""

    type = _MULTI

    @override
    def _results(self, data: bytes, offset: int) -> list[Any]:
        results: list[Any] = []
        while True:
            kind, done, _ = _header.unpack_from(data, offset)
            offset += _header.size
            if done:
                return results
            if kind == _CREATE:
                path, offset = _text(data, offset)
                results.append(path)
            elif kind == _ERROR:
                # A code that kazoo does not know raises here, and ends as an answer that can't be read.
                results.append(EXCEPTIONS[_read_int(data, offset)[0]]())
                offset += 4
            else:
                results.append(True)
                # Only a set answers with a stat; checks and deletes have nothing after their header.
                offset += _STAT_BYTES if kind == _SET else 0


class _Reads(_Request):
    """Reads of several nodes, or of their children's names; the results are these, or why they could not be read."""

    type = _MULTI_READ

    @override
    def _results(self, data: bytes, offset: int) -> list[fx.Node | tuple[str, ...] | Exception]:
        results: list[fx.Node | tuple[str, ...] | Exception] = []
        while True:
            kind, done, _ = _header.unpack_from(data, offset)
            offset += _header.size
            if done:
                return results
            number = _read_int(data, offset)[0]
            offset += 4
            if kind == _ERROR:
                results.append(EXCEPTIONS[number]())
                continue
            if kind == _CHILDREN:
                names: list[str] = []
                for _ in range(number):
                    name, offset = _text(data, offset)
                    names.append(name)
                results.append(tuple(sorted(names)))
                continue
            size = max(0, number)  # -1: created with no value at all
            changed, version = _stat(data, offset + size)
            results.append(fx.Node(bytes(data[offset : offset + size]), fx.Version(version), changed))
            offset += size + _STAT_BYTES


class _StampedReads(_Request):
    """Reads of several nodes with their stamps; the results are these, or why they could not be read."""

    type = _MULTI_READ

    @override
    def _results(self, data: bytes, offset: int) -> list[StampedNode | Exception]:
        results: list[StampedNode | Exception] = []
        while True:
            kind, done, _ = _header.unpack_from(data, offset)
            offset += _header.size
            if done:
                return results
            number = _read_int(data, offset)[0]
            offset += 4
            if kind == _ERROR:
                results.append(EXCEPTIONS[number]())
                continue
            size = max(0, number)  # -1: created with no value at all
            created, changed, version, child_changes, children = _stamps(data, offset + size)
            value = bytes(data[offset : offset + size])
            # Of all children that there ever were: twice that number, less those that there are now.
            counted = (child_changes + children) // 2
            results.append(StampedNode(value, fx.Version(version), Zxid(created), Zxid(changed), counted))
            offset += size + _STAT_BYTES


def _text(data: bytes, offset: int) -> tuple[str, int]:
    """Return a text, and where what comes after it begins."""
    size = _read_int(data, offset)[0]
    end = offset + 4 + size
    # A negative size would lead back, and the loop that reads would never end.
    if size < 0 or end > len(data):
        raise ValueError(f"a text of {size} bytes")
    return data[offset + 4 : end].decode(), end


def encode_transaction(client: Any, operations: Sequence[fx.Operation]) -> bytes:
    """Return the bytes of a transaction.

    Raises
    ------
    ValueError
        A path goes up.
    """
    acl = _encode_acl(tuple(client.default_acl or OPEN_ACL_UNSAFE))
    pieces: list[bytes] = []
    for operation in operations:
        path = _path(client, operation.path).encode()
        begin = _int(len(path)), path
        match operation:
            case fx.Check(_, version):
                pieces += (_HEADERS[_CHECK], *begin, _int(version))
            case fx.Create(_, value, ephemeral, sequential):
                flags = (_EPHEMERAL if ephemeral else 0) | (_SEQUENTIAL if sequential else 0)
                pieces += (_HEADERS[_CREATE], *begin, _int(len(value)), value, acl, _int(flags))
            case fx.Set(_, value, version):
                pieces += (_HEADERS[_SET], *begin, _int(len(value)), value, _int(version))
            case fx.Delete(_, version):
                pieces += (_HEADERS[_DELETE], *begin, _int(version))
            case _:
                assert_never(operation)
    return b"".join((*pieces, _END))


@cache  # a process has one set of rights
def _encode_acl(entries: tuple[Any, ...]) -> bytes:
    texts = [(entry.perms, entry.id.scheme.encode(), entry.id.id.encode()) for entry in entries]
    pieces = [_int(perms) + _int(len(scheme)) + scheme + _int(len(user)) + user for perms, scheme, user in texts]
    return _int(len(entries)) + b"".join(pieces)


def send_transaction(client: Any, data: bytes) -> Reply:
    """Send an encoded transaction; the answer is a list with one result for each operation, in order."""
    return _send(client, _Transaction(data))


def send_get(client: Any, path: str) -> Reply:
    """Ask for a node; the answer is its value and its stat."""
    return _send(client, GetData(_path(client, path), None))


def send_get_many(client: Any, paths: Sequence[str]) -> Reply:
    """Ask for several nodes at once; the answer is a list with a node, or why it could not be read, for each path, in order."""
    return _send(client, _Reads(_encode_reads(client, _GET, paths)))


def send_get_stamped(client: Any, paths: Sequence[str]) -> Reply:
    """Ask for several nodes with their stamps; the answer is as of `send_get_many`, and `Reply.seen` is known with it."""
    return _send(client, _StampedReads(_encode_reads(client, _GET, paths)))


def send_children_many(client: Any, paths: Sequence[str]) -> Reply:
    """Ask for several nodes' children at once; the answer is a list with their names, or why not, for each path, in order."""
    return _send(client, _Reads(_encode_reads(client, _CHILDREN, paths)))


def _encode_reads(client: Any, kind: int, paths: Sequence[str]) -> bytes:
    pieces: list[bytes] = []
    for path in paths:
        text = _path(client, path).encode()
        pieces += (_HEADERS[kind], _int(len(text)), text, b"\0")  # no watch
    return b"".join((*pieces, _END))


def send_exists(client: Any, path: str, watch: Callable[[Any], None] | None) -> Reply:
    """Ask whether there is a node; the answer is its stat or None."""
    return _send(client, Exists(_path(client, path), watch))


def _send(client: Any, request: Any) -> Reply:
    reply = Reply()
    client._call(request, reply)  # noqa: SLF001 - what all of kazoo's own requests go through
    return reply


def _path(client: Any, path: str) -> str:
    """Return a path as the server is to see it."""
    # What kazoo would change or refuse goes through kazoo; all other paths are as they are.
    if client.chroot or "//" in path or "/." in path or path[-1] == "/" or path[0] != "/":
        checked: str = _prefix_root(client.chroot, path)
        return checked
    return path
