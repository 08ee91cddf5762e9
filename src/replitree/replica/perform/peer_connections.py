"""The connections of one part exchange: each thread keeps its own to every source, and all of them end together.

Guarantees: after `close` none is open, whichever thread opened it, and none is opened again: a thread that asks for one, or
uses one that was closed meanwhile, gets `Closed`.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable

from typing_extensions import override

from replitree.tls import Contexts, open_connection, split_address


class Closed(http.client.HTTPException):
    """No more requests are sent: this replica of the table is being stopped.  It fetches what it lacks when it runs again."""

    def __init__(self) -> None:
        super().__init__(
            "this replica is being stopped and fetches nothing any more; it goes on when it is started again"
        )


class PeerConnections:
    """The connections.  Any thread may use them.

    Parameters
    ----------
    silence_s
        How long a source may send nothing, in seconds.
    """

    def __init__(self, silence_s: float) -> None:
        self._silence_s = silence_s
        self._mine = _OfThread()
        self._all: set[_PeerConnection] = set()
        self._ended = threading.Event()

    def check(self) -> None:
        """Do nothing while requests may be sent.

        Raises
        ------
        Closed
            There will be no more.
        """
        if self._ended.is_set():
            raise Closed

    def to(self, address: str, tls: Contexts) -> http.client.HTTPConnection:
        """Return this thread's connection to a source, ``host:port`` or ``https://host:port``.

        Raises
        ------
        Closed
            There will be no more requests.
        """
        self.check()
        connection = self._mine.by_address.get(address)
        if connection is None:
            connection = _PeerConnection(address, tls, self._silence_s, self.check)
            self._mine.by_address[address] = connection
            self._all.add(connection)
        return connection

    def drop(self, address: str) -> None:
        """End this thread's connection to a source, if there is one."""
        connection = self._mine.by_address.pop(address, None)
        if connection is not None:
            self._all.discard(connection)
            connection.close()

    def refuse(self) -> None:
        """Let no further request begin; those that are under way go on."""
        self._ended.set()

    def close(self) -> None:
        """End every connection for good."""
        self.refuse()
        for connection in list(self._all):
            connection.close()


class _OfThread(threading.local):
    """The connections of one thread."""

    def __init__(self) -> None:
        self.by_address: dict[str, _PeerConnection] = {}


class _PeerConnection(http.client.HTTPConnection):
    """A connection that does not come back once all have ended: it looks once more when it has connected."""

    def __init__(self, address: str, tls: Contexts, silence_s: float, check: Callable[[], None]) -> None:
        super().__init__(split_address(address)[1], timeout=silence_s)
        self._address = address
        self._tls = tls
        self._silence_s = silence_s
        self._check = check

    @override
    def connect(self) -> None:
        self._check()
        self.sock = open_connection(self._address, self._tls, self._silence_s)
        self.sock.settimeout(self._silence_s)
        try:
            self._check()
        except Closed:
            self.close()
            raise


__all__ = ["Closed", "PeerConnections"]
