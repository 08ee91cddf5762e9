"""One kazoo client that lives exactly as long as one ZooKeeper session.

Guarantees:

* A `ZooKeeperSession` is over once and stays over: when the ensemble expires it, when kazoo comes back with another session
  number, when it is discarded.  kazoo itself would go on with a new session; here the client is thrown away.
* Its first request is a sync, and ZooKeeper answers the requests of a session in their order.  So no read of a session shows
  an older state than an earlier session of this process has seen, although a new client may be connected to a member that lags.
* Events reach `on_event` in the order in which they happened, on kazoo's connection thread: the receiver only enqueues.
* `discard` never blocks, not even on a client that is stuck; a thread of its own waits for the end.
* kazoo's records below INFO are dropped, whatever the level: among them are all requests with all their bytes, passwords too.

`_KazooHandler` is how kazoo touches the world.  Three things are cheaper or safer here than in kazoo's own:

* kazoo wakes its connection thread with one byte per request through a blocking pair of sockets, which is full after some
  280 requests without a connection, and then every caller blocks for good (kazoo issue 577).  Here it is a counter.
* kazoo builds a selector for every wait, several per request.
* watches take no detour through a queue and a second thread of kazoo's.

`_KazooConnection` measures how long the server has been silent, ends a session that is over by that measure
(`_KazooConnection._connect`), and corrects three things that kazoo does wrong when a session comes back on another connection:

* kazoo waits for as long as the session lives, if there is one server, for the answer to its first frame.  A lone ZooKeeper
  3.9 that is connected to before it has loaded its data fails while it refuses the connection, which stays open without an
  answer: the session ended, although the server was back.  Here another connection is tried while it still lives.
* kazoo counts requests anew.  ZooKeeper tells the commits of a session apart by these numbers: one that was sent on the last
  connection and is late would be taken for the one of the same number on this connection, and answer it.
* kazoo's thread ends with an error of its own when an answer is missing before another one, as when the session has been moved
  meanwhile: ZooKeeper then does not answer the commits, and hangs up, but what it sends before that may hold later answers.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionClosedError, ConnectionDropped, ConnectionLoss, SessionExpiredError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import Connect, Sync
from kazoo.protocol.states import Callback, KazooState, WatchedEvent
from kazoo.retry import KazooRetry
from kazoo.security import make_digest_acl

from replitree.coordination.port import Connected, Event, SessionLost, Suspended, Watched
from replitree.coordination.requests import Reply
from replitree.coordination.url import CoordinationUrl
from replitree.errors import BadInput, CoordinationUnavailable
from replitree.protocol.core.stamps import BEFORE_ALL, Zxid
from replitree.tls import SECURE, Contexts, TlsFailed, open_connection, refusal

_HELLO_S_MIN = 2.0
"""For how long, in seconds, the answer to a connection's first frame is waited for at least, unless the session is shorter."""
_EXPIRY_SHARE = 1.1
"""After this share of its timeout in silence a session is over by our clock: see `_KazooConnection._connect`."""

_LOOK_S = 0.1
"""Pause between two looks whether every server was refused, in seconds."""

_RETRY_FIRST_S, _RETRY_LAST_S = 0.05, 1.0  # pauses between attempts to connect; kazoo's own grow to an hour

log = logging.getLogger(__name__)
log.addFilter(lambda record: record.levelno >= logging.INFO)  # see the module's docstring: secrets


class ZooKeeperSession:
    """A client and its session.

    Parameters
    ----------
    url
        The ensemble, and the credentials of this process.
    timeout_s
        After how many seconds of silence the ensemble ends the session.
    on_event
        Receives this session and what happened to it; must not block.
    tls
        What TLS is made with, where the url wants it.
    heard_at
        When something was heard of the ensemble last, in monotonic seconds; None: now.
    """

    def __init__(
        self,
        url: CoordinationUrl,
        timeout_s: float,
        on_event: Callable[[ZooKeeperSession, Event], None],
        tls: Contexts,
        heard_at: float | None = None,
    ) -> None:
        self.number = 0
        """The session's number; 0 until it has begun."""
        self.over = False
        """Whether the session ended.  An answer that comes after it is not to be believed."""
        self._servers = url.servers
        self._hosts = set(url.hosts)
        self._on_event = on_event
        self._ready = threading.Event()  # set while connected, and for good when over
        self._is_current = False  # whether a sync was answered
        self._last_watch: object = None
        self._discarding = threading.Lock()
        self._discarder: threading.Thread | None = None
        self._handler = handler = _KazooHandler(tls, is_secure=url.is_secure)
        user = url.credentials
        self._client: Any = KazooClient(
            hosts=url.servers,
            timeout=timeout_s,
            handler=handler,
            connection_retry=KazooRetry(
                max_tries=-1, delay=_RETRY_FIRST_S, max_delay=_RETRY_LAST_S, sleep_func=handler.sleep_func
            ),
            auth_data=[("digest", f"{user.user}:{user.password}")] if user else None,
            default_acl=[make_digest_acl(user.user, user.password, all=True)] if user else None,
            logger=log,
        )
        connection = _KazooConnection(self._client, self._client._conn_retry.copy(), log)  # noqa: SLF001
        connection.granted_s = timeout_s
        connection.heard_at = time.monotonic() if heard_at is None else heard_at
        self._client._connection = connection  # noqa: SLF001 - kazoo has no parameter for it
        self._client.add_listener(self._on_state)

    @property
    def seen(self) -> int:
        """The last transaction of which the servers have told; their numbers go on from session to session."""
        return int(self._client._connection.seen)  # noqa: SLF001 - kazoo forgets its own when a session ends

    @property
    def timeout_s(self) -> float:
        """The session's timeout, as the ensemble has granted it."""
        return float(self._client._connection.granted_s)  # noqa: SLF001

    @property
    def heard_at(self) -> float:
        """When something was heard of the ensemble last, in monotonic seconds."""
        return float(self._client._connection.heard_at)  # noqa: SLF001

    @property
    def problem(self) -> str:
        """Why there was no TLS with a server, the last time; "": nothing was wrong with that."""
        return self._handler.problem

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection now."""
        return self._ready.is_set() and not self.over

    def start(self, timeout_s: float, *, is_first: bool) -> bool:
        """Connect; say whether the session began in time.

        Parameters
        ----------
        timeout_s
            How long it may take, in seconds.
        is_first
            It does not wait when a certificate or a file is wrong for every server: the operator must mend it before the
            process starts.
        """
        # Never `start`: it blocks for as long as kazoo tries.
        self._client.start_async()
        deadline = time.monotonic() + timeout_s
        while (left := deadline - time.monotonic()) > 0 and not self._ready.wait(min(left, _LOOK_S)):
            if is_first and self._handler.refused >= self._hosts:
                return False
        return self._ready.is_set() and not self.over

    def client(self, deadline: float) -> Any:
        """Return the connected client; wait for the connection until `deadline` (monotonic seconds).

        Raises
        ------
        CoordinationUnavailable
            The session is over, or the connection did not come back in time.
        """
        if not self._ready.is_set() and not self._ready.wait(max(0.0, deadline - time.monotonic())):
            raise CoordinationUnavailable(
                f"no connection to ZooKeeper at {self._servers}; it is tried again all the time"
            )
        if self.over:
            raise CoordinationUnavailable("the ZooKeeper session ended; begin a new one with reconnect()")
        return self._client

    def on_watch(self, event: WatchedEvent) -> None:
        """Receive a watch.  Given to kazoo as it is: a second registration of a path replaces the first."""
        if event.path is None or event is self._last_watch:
            # The connection was lost, which `_on_state` tells; or node and children watch of a deleted node.
            return
        self._last_watch = event
        self._on_event(self, Watched(event.path))

    def discard(self) -> threading.Thread:
        """End the session; return the thread that waits for the client's end."""
        self.over = True
        # Threads that wait for a connection are woken to hear that there will be none.
        self._ready.set()
        with self._discarding:
            if self._discarder is None:
                self._discarder = threading.Thread(target=self._stop, name="replitree-zookeeper-end", daemon=True)
                self._discarder.start()
            return self._discarder

    def _on_state(self, state: str) -> None:
        """Receive a change of state, on kazoo's connection thread, before any request that is affected by it is answered."""
        if self.over:
            return
        if state == KazooState.SUSPENDED:
            self._ready.clear()
            self._on_event(self, Suspended())
            return
        # Another number than before means that kazoo has begun a new session by itself: this one is over.
        number = self._client.client_id[0] if state == KazooState.CONNECTED else None
        if number is not None and number == (self.number or number):
            self.number = number
            if not self._is_current:
                # The first request of this connection is a sync: the member that was reached may lag.  It goes to the front of
                # the queue, for a thread that had the client before the last connection was lost may have queued a read since.
                synced = self._client.handler.async_result()
                synced.rawlink(self._on_synced)
                sync = Sync(self._client.chroot or "/")
                self._client._queue.appendleft((sync, synced))  # noqa: SLF001 - kazoo can only append
                self._client._connection._write_sock.send(b"\0")  # noqa: SLF001 - one byte for each request that is queued
            self._on_event(self, Connected())
            # After the event: a thread that sends from now on is behind it in the listeners' order.
            self._ready.set()
            return
        self._on_event(self, SessionLost())
        self.discard()

    def _on_synced(self, answer: Any) -> None:
        """Receive the answer to the sync, on kazoo's connection thread; without an answer the next connection asks again."""
        if answer.successful():
            self._is_current = True
        elif not isinstance(answer.exception, ConnectionLoss | ConnectionClosedError | SessionExpiredError):
            # The server refuses a sync and is still connected: what it shows may be older.
            self._on_event(self, SessionLost())
            self.discard()

    def _stop(self) -> None:
        # A client that was broken by its peer may fail in any way while it is put away; nothing depends on it any more.
        with contextlib.suppress(Exception):
            self._client.stop()
        with contextlib.suppress(Exception):
            self._client.close()


class _KazooConnection(ConnectionHandler):  # type: ignore[misc]  # kazoo ships no types
    """kazoo's connection, for all of a session's connections: see the module's docstring."""

    _number = 0
    heard_at = 0.0
    granted_s = 0.0
    seen = 0
    # Of this connection alone.  A session that comes back on another member may find an older state there than pings and
    # watches of the connection before have told of: kazoo asks the member for the last answer's transaction only.
    told = BEFORE_ALL

    @property
    def _xid(self) -> int:
        return self._number

    @_xid.setter
    def _xid(self, number: int | None) -> None:
        self._number = number or self._number

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        if isinstance(request, Connect):
            timeout = min(timeout, max(_HELLO_S_MIN, request.time_out / 1000.0 / 3))
        answer = super()._invoke(timeout, request, xid)
        self.heard_at = time.monotonic()
        if isinstance(request, Connect) and answer[0].time_out > 0:
            self.granted_s = answer[0].time_out / 1000.0
        return answer

    def _read_header(self, timeout: float) -> Any:
        answer = super()._read_header(timeout)
        self.heard_at, self.seen = time.monotonic(), max(self.seen, answer[0].zxid)
        self.told = Zxid(max(self.told, answer[0].zxid))
        return answer

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        # In the thread that also reads the answers, at the moment of sending: the request is answered on this connection, or
        # not at all.  A request that is sent again on the next one is marked again.
        queue = self.client._queue  # noqa: SLF001
        if queue and isinstance(queue[0][1], Reply):
            queue[0][1].seen = self.told
        super()._send_request(read_timeout, connect_timeout)

    def _connect(self, host: str, hostip: str, port: int) -> Any:
        """Connect once; the session is over when nothing was heard for longer than it lives.

        kazoo tries for ever, with the last transaction that it has seen.  A ZooKeeper that has lost its data has not seen that
        transaction and hangs up ("Refusing session request ... as it has seen zxid ..., please try another server"), so this
        client would never learn that its session is gone.  A new client knows no transaction, and is taken.

        Nothing but liveness depends on the clock.  If the session still lives, it ends when it is closed, or expires; what is
        on its way in it is decided by the new epoch that each replica takes in the new session, as after every other end of a
        session.  The new client may be connected to a member that lags, so its first request is a sync.
        Whether transactions are gone that the old session has seen is asked then (`Coordination.has_gone_back`).
        """
        silent_s = time.monotonic() - self.heard_at
        if self.client._session_id and silent_s > self.granted_s * _EXPIRY_SHARE:  # noqa: SLF001
            raise SessionExpiredError(f"nothing was heard of ZooKeeper for {silent_s:.1f} s")
        self.told = BEFORE_ALL
        try:
            return super()._connect(host, hostip, port)
        except ConnectionDropped as error:
            # By TLS 1.3 a server refuses our certificate only when it is asked for the session.
            cause = error.__cause__ or error.__context__
            if isinstance(cause, OSError) and (why := refusal(cause, f"{host}:{port}", self._socket)):
                self.client.handler.problem = why
                self.client.handler.refused.add((host, port))
            raise

    def _read_response(self, header: Any, buffer: Any, offset: int) -> Any:
        pending = self.client._pending  # noqa: SLF001
        if pending and pending[0][2] != header.xid:
            raise ConnectionDropped(f"request {header.xid} was answered, and request {pending[0][2]} before it was not")
        if pending and isinstance(pending[0][1], Reply):
            pending[0][1].zxid = header.zxid
        return super()._read_response(header, buffer, offset)


class _KazooHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo ships no types
    """kazoo's way to threads and sockets, with cheaper waiting, and TLS that verifies names and reads new files."""

    def __init__(self, tls: Contexts, *, is_secure: bool) -> None:
        super().__init__()
        self.problem = ""
        self.refused: set[tuple[str, int]] = set()
        """Servers with which there is no TLS before a certificate or a file is another one."""
        self._tls = tls
        self._is_secure = is_secure

    def select(self, *arguments: Any) -> Any:
        # Answers that came in one record of TLS lie in the socket's memory, and the kernel has nothing more to tell.
        if self._is_secure and (ready := [each for each in arguments[0] if _has_decrypted(each)]):
            return ready, [], []
        try:
            return select.select(*arguments)
        # More than a thousand files are open, for which `select` has no room.
        except ValueError:
            return super().select(*arguments)

    def create_connection(self, address: tuple[str, int], hostname: str, timeout: float, **others: Any) -> Any:
        if not self._is_secure:
            return super().create_connection(address, hostname, timeout, **others)
        try:
            made = open_connection(f"{SECURE}{hostname}:{address[1]}", self._tls, timeout)
        except TlsFailed as error:
            self.problem = str(error)
            if isinstance(error.__cause__, BadInput | ssl.SSLCertVerificationError):
                self.refused.add((hostname, address[1]))
            raise
        self.problem = ""
        self.refused.discard((hostname, address[1]))
        return made

    def create_socket_pair(self) -> Any:
        if hasattr(os, "eventfd"):
            wake_up = _WakeUp()
            return wake_up, wake_up
        read, write = socket.socketpair()
        write.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        return read, write

    def dispatch_callback(self, callback: Callback) -> None:
        # In this thread: it is only ever `on_watch`, which only enqueues.
        callback.func(*callback.args)


def _has_decrypted(readable: object) -> bool:
    return isinstance(readable, ssl.SSLSocket) and readable.pending() > 0


class _WakeUp:
    """Both ends of kazoo's wake-up: a kernel counter that `send` raises and `recv` lowers by one; it never fills up."""

    def __init__(self) -> None:
        self._file = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK | os.EFD_SEMAPHORE)
        # A write after the end would hit whatever file has the number then.
        self._closing = threading.Lock()

    def fileno(self) -> int:
        return self._file

    def send(self, data: bytes) -> int:
        with self._closing:
            # Non-blocking: a counter takes any number of requests without a reader.
            os.eventfd_write(self._file, len(data))
        return len(data)

    def recv(self, _size: int) -> bytes:
        os.eventfd_read(self._file)
        return b"\0"

    def close(self) -> None:
        with self._closing:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1
