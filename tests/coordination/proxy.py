"""A TCP proxy that knows ZooKeeper's frames: it counts requests, and cuts the connection at a chosen point of a commit.

Every frame is a length and that many bytes.  A request begins with its number and its type; an answer with the number of its
request.  The first frame in each direction begins the session and has neither.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections import Counter
from enum import Enum

from replitree.coordination.embedded import LOCALHOST

MULTI_READ = 22
KINDS = {3: "exists", 4: "get", 8: "children", 9: "sync", 12: "children", 14: "commit"}
"""Types of the requests that count.  Pings (11), authentication (100) and the end of a session (-11) don't."""


class Fault(Enum):
    """What happens to the next commit (or other request, `Proxy.victim`), or the next connection."""

    NONE = "nothing"
    CUT_BEFORE_REQUEST = "the connection is cut; the server never sees the request"
    CUT_UNTIL_MENDED = "the same, and new connections are refused until `mend`"
    CUT_BEFORE_ANSWER = "the server answers, then the connection is cut; the client never sees the answer"
    SWALLOW_ANSWER = "the server answers; the client sees neither the answer nor anything after it, and no end either"
    SKIP_ANSWER = "the server answers; the client does not see the answer, and sees what comes after it"
    SWALLOW_HELLO = "the next connection is taken, and never answered; the server does not see it"
    FORGET_SESSION = "the next connection begins a new session, although the client asked for its old one"


class Proxy:
    """Forwards a port of its own to a server's port."""

    def __init__(self, target_port: int) -> None:
        self.requests: Counter[str] = Counter()
        self.numbers: list[int] = []
        self.kinds: list[str] = []
        self.fault = Fault.NONE
        self.victim = "commit"
        self._target_port = target_port
        self._cut = self._held = False
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server((LOCALHOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self._start(self._accept)

    def cut(self) -> None:
        """End all connections and refuse new ones."""
        with self._lock:
            self._cut = True
        self._end_all()

    def hold(self) -> None:
        """Let no answer through any more, on any connection; all of them stay open."""
        with self._lock:
            self._held = True

    def mend(self) -> None:
        """Let connections through again; those that were held are ended."""
        with self._lock:
            was_held, self._cut, self._held = self._held, False, False
        if was_held:
            self._end_all()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._end_all()

    def _start(self, what: object, *arguments: object) -> None:
        assert callable(what)
        threading.Thread(target=what, args=arguments, daemon=True, name="proxy").start()

    def _end_all(self) -> None:
        with self._lock:
            ends = list(self._open)
        for end in ends:
            self._end(end)

    def _end(self, *ends: socket.socket) -> None:
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
            with self._lock:
                self._open.discard(end)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                refused = self._cut
            if refused:
                client.close()
                continue
            try:
                server = socket.create_connection((LOCALHOST, self._target_port))
            except OSError:
                client.close()
                continue
            with self._lock:
                self._open |= {client, server}
            lost = _LostAnswer()
            self._start(self._forward_requests, client, server, lost)
            self._start(self._forward_answers, client, server, lost)

    def _forward_requests(self, client: socket.socket, server: socket.socket, lost: _LostAnswer) -> None:
        with contextlib.suppress(OSError):
            hello = _frame(client)
            if self.fault is Fault.SWALLOW_HELLO:
                self.fault = Fault.NONE
                _frame(client)  # until the client has had enough
                hello = b""
            server.sendall(self._hello(hello))
            while frame := _frame(client):
                number, kind = _asked(frame)
                if KINDS.get(kind) == self.victim and self.fault is not Fault.NONE:
                    fault, self.fault = self.fault, Fault.NONE
                    self._cut |= fault is Fault.CUT_UNTIL_MENDED
                    if fault in (Fault.CUT_BEFORE_REQUEST, Fault.CUT_UNTIL_MENDED):
                        break
                    lost.number, lost.fault = number, fault
                if kind in KINDS:
                    self.requests[KINDS[kind]] += 1
                    self.numbers.append(number)
                    self.kinds.append(KINDS[kind])
                server.sendall(frame)
        self._end(client, server)

    def _hello(self, frame: bytes) -> bytes:
        """Pass the first frame on: length, protocol, last transaction, timeout, session (8 bytes), password (4 + 16), flag."""
        if self.fault is not Fault.FORGET_SESSION:
            return frame
        self.fault = Fault.NONE
        return frame[:20] + bytes(8) + frame[28:32] + bytes(16) + frame[48:]

    def _forward_answers(self, client: socket.socket, server: socket.socket, lost: _LostAnswer) -> None:
        with contextlib.suppress(OSError):
            hello = _frame(server)
            if not self._held:
                client.sendall(hello)
            silent = False
            while frame := _frame(server):
                (number,) = struct.unpack_from(">i", frame, 4)
                if lost.number is not None and number == lost.number:
                    if lost.fault is Fault.CUT_BEFORE_ANSWER:
                        break
                    if lost.fault is Fault.SKIP_ANSWER:
                        continue
                    silent = True
                if not silent and not self._held:
                    client.sendall(frame)
        self._end(client, server)


class _LostAnswer:
    """Number of the request whose answer the client must not see, on one connection."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.fault = Fault.NONE


def _asked(frame: bytes) -> tuple[int, int]:
    """Return a request's number and its kind; of several reads, the kind of the first."""
    number, kind = struct.unpack_from(">ii", frame, 4)
    return number, struct.unpack_from(">i", frame, 12)[0] if kind == MULTI_READ else kind


def _frame(end: socket.socket) -> bytes:
    """Read one frame with its length; nothing at the end."""
    head = _exactly(end, 4)
    return head and head + _exactly(end, struct.unpack(">i", head)[0])


def _exactly(end: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        some = end.recv(size - len(data))
        if not some:
            return b""
        data += some
    return data
