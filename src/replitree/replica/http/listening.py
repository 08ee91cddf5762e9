"""A port: what to say when it can't be listened on, and how every connection begins where TLS is spoken.

The first byte decides before anything is read: a client that speaks HTTP in clear text gets an answer in clear text that says
what is wrong, and nothing else of what it has sent is looked at.
"""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from typing import Protocol

from replitree.errors import ReplitreeError
from replitree.tls import HANDSHAKE_BYTE, Contexts

HANDSHAKE_S = 10.0
"""Seconds that a handshake may take."""

GOODBYE_S = 2.0
"""Seconds for which the end of a connection waits for the client's own goodbye."""


def why_not_listening(host: str, port: int, error: OSError) -> str:
    """Return what the operating system refused, and what to do; of a name that can't be resolved, what the resolver says.

    >>> why_not_listening("127.0.0.1", 80, PermissionError(13, "bind: permission denied"))
    "can't listen on 127.0.0.1:80 (Permission denied): name another address, or port 0 for a free one"
    """
    number = error.errno or 0
    reason = os.strerror(number) if number > 0 else error.strerror
    return f"can't listen on {host}:{port} ({reason}): name another address, or port 0 for a free one"


class Greeted(Protocol):
    """What hears how a handshake has ended; one of these is called, on the loop."""

    def secured(self, transport: asyncio.Transport) -> None:
        """Go on with this transport."""

    def in_clear(self) -> None:
        """Refuse a client that speaks clear text; the connection is as it was."""

    def not_secured(self, reason: str) -> None:
        """End: there is no TLS with this client."""


class Handshake:
    """One handshake.  Made on the loop, in `connection_made`: nothing has been read yet.

    Parameters
    ----------
    loop, transport
        Of the connection.
    protocol
        Gets what comes by TLS.
    contexts
        Of the server.
    greeted
        Hears the end.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.Transport,
        protocol: asyncio.Protocol,
        contexts: Contexts,
        greeted: Greeted,
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._protocol = protocol
        self._contexts = contexts
        self._greeted = greeted
        self._task: asyncio.Task[None] | None = None
        transport.pause_reading()
        # A copy of the descriptor: the loop lets no other reader have that of a transport.
        self._peeked: socket.socket | None = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
        loop.add_reader(self._peeked, self._first_byte)

    def cancel(self) -> None:
        """End it: the connection is closed."""
        self._end_peek()
        if self._task is not None:
            self._task.cancel()

    def _first_byte(self) -> None:
        assert self._peeked is not None, "no reader is left behind"
        try:
            first = self._peeked.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError:
            first = b""
        self._end_peek()
        if not first:
            # The client has closed it; the transport finds that out as usual.
            self._transport.resume_reading()
        elif first[0] == HANDSHAKE_BYTE:
            self._task = self._loop.create_task(self._secure())
        else:
            self._greeted.in_clear()
            self._transport.resume_reading()

    def _end_peek(self) -> None:
        if self._peeked is not None:
            self._loop.remove_reader(self._peeked)
            self._peeked.close()
            self._peeked = None

    async def _secure(self) -> None:
        try:
            context = self._contexts.server()
            transport = await self._loop.start_tls(
                self._transport,
                self._protocol,
                context,
                server_side=True,
                ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=GOODBYE_S,
            )
        except (OSError, TimeoutError, ReplitreeError) as error:
            self._greeted.not_secured(getattr(error, "reason", None) or type(error).__name__)
            return
        if transport is None:
            # It was closed in the middle of the handshake, which asyncio takes for no error.
            with suppress(OSError):
                self._transport.abort()
            self._greeted.not_secured("the connection ended")
            return
        self._greeted.secured(transport)


__all__ = ["Greeted", "Handshake", "why_not_listening"]
