"""The core behind a TCP port, for clients that are programs of others; its log is committed at once."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from typing_extensions import override

from replitree.coordination.embedded import LOCALHOST
from replitree.keeper.core.batch import decode_batch, encode_batch
from replitree.keeper.core.front import Front
from tests.keeper.memory import LIMITS, SUPER_DIGEST, begun

TICK_S = 0.1


class _Protocol(asyncio.Protocol):
    def __init__(self, server: TcpKeeper) -> None:
        self._server = server
        self._number = 0

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._number = self._server.front.connected(transport.get_extra_info("peername")[0])
        self._server.transports[self._number] = transport

    @override
    def data_received(self, data: bytes) -> None:
        self._server.front.received(self._number, data, time.monotonic_ns())
        self._server.wake()

    @override
    def connection_lost(self, _error: Exception | None) -> None:
        self._server.transports.pop(self._number, None)
        self._server.front.disconnected(self._number)
        self._server.wake()


class TcpKeeper:
    """A server in the loop of its thread."""

    def __init__(self) -> None:
        self.front = Front(begun(), 1, LIMITS, time.monotonic_ns(), SUPER_DIGEST)
        self.transports: dict[int, asyncio.Transport] = {}
        self.port = 0
        self.loop = asyncio.new_event_loop()
        self._is_woken = False

    def wake(self) -> None:
        """Work off what has come, once, at the end of this turn of the loop."""
        if not self._is_woken:
            self._is_woken = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._is_woken = False
        while batch := self.front.take_batch(time.time_ns() // 1_000_000):
            self.front.committed(decode_batch(encode_batch(batch)))
        for output in self.front.take_output():
            if transport := self.transports.get(output.connection):
                transport.write(output.data)
                if output.is_closed:
                    transport.close()

    def _tick(self) -> None:
        self.front.tick(time.monotonic_ns())
        self.wake()
        asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def cut(self) -> None:
        """Abort all connections, from another thread; the sessions stay."""

        def abort() -> None:
            for transport in list(self.transports.values()):
                transport.abort()

        self.loop.call_soon_threadsafe(abort)

    async def serve(self, is_ready: threading.Event, end: asyncio.Event) -> None:
        """Serve until the end is set."""
        server = await asyncio.get_running_loop().create_server(lambda: _Protocol(self), LOCALHOST, 0)
        self.port = server.sockets[0].getsockname()[1]
        self._tick()
        is_ready.set()
        await end.wait()
        server.close()
        for transport in list(self.transports.values()):
            transport.abort()


@contextmanager
def served() -> Iterator[TcpKeeper]:
    """Run a server in a thread."""
    keeper, is_ready, end = TcpKeeper(), threading.Event(), asyncio.Event()
    loop = keeper.loop
    thread = threading.Thread(target=lambda: loop.run_until_complete(keeper.serve(is_ready, end)))
    thread.start()
    try:
        assert is_ready.wait(60)
        yield keeper
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join(60)
        loop.close()
