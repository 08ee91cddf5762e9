"""TCP links that can be hurt: every connection between two processes of a run goes through one of these.

A *link* joins a source to a target.  Each of its two directions has *conditions*: it is held, or slow; they add up.  What
is held is neither lost nor answered; it goes on when the direction is open again, as TCP itself would send it again, or it is
lost when the connection is reset.  A *front* is a port with a target behind it; it tells its links apart by the address that a
connection comes from, so that several sources may call one address.

What a link can't do to a connection: lose or repeat bytes in the middle of a stream, or reorder them.  TCP does not do that
either.

One thread with an event loop of its own carries all links of a run.  The methods of `Network` and `Link` are called from other
threads and return when the change holds: after `Link.set(up=HELD)` no byte goes up any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from replitree.coordination.embedded import LOCALHOST
from replitree.replica.http.connections import stop_listening
from tests.last_turns import last_turns

T = TypeVar("T")

CHUNK_BYTES = 1 << 16
HEAD_BYTES = 64
"""So much of the beginning of the answers of the last connection is kept."""


@dataclass(frozen=True, slots=True)
class Condition:
    """How one direction of a link is.

    Attributes
    ----------
    held
        Nothing passes.
    delay_s
        Seconds that each piece (of at most 64 KiB) waits.
    bytes_per_s
        Bandwidth of each connection; 0: unlimited.
    """

    held: bool = False
    delay_s: float = 0.0
    bytes_per_s: float = 0.0


HELD = Condition(held=True)


class Link:
    """The connections from one source to one target.

    Attributes
    ----------
    source, target
        Names, for people.
    accepted, passed
        How many connections began, and how many bytes passed upwards and downwards.
    head
        First bytes that the target sent on the last connection.
    says
        Bytes that a source may say first on a connection, and what of their length the target hears instead.
    """

    def __init__(self, network: Network, source: str, target: str) -> None:
        self.source, self.target = source, target
        self.accepted, self.passed = 0, [0, 0]
        self.head = b""
        self.says: dict[bytes, bytes] = {}
        self._network = network
        self._refusing = False
        self._up, self._down = _Flow(self.passed, 0), _Flow(self.passed, 1)
        self._connections: set[_Pair] = set()

    def __str__(self) -> str:  # type: ignore[explicit-override]  # `typing.override` is not in Python 3.11
        """Return ``source>target``."""
        return f"{self.source}>{self.target}"

    @property
    def open_connections(self) -> int:
        """How many connections there are now."""
        return len(self._connections)

    def impose(self, condition: Condition, *, up: bool = True, down: bool = True) -> None:
        """Let a condition hold in one direction or both, besides those that hold already."""

        async def change() -> None:
            for flow in self._flows(up=up, down=down):
                flow.conditions.append(condition)
                flow.changed()

        self._network.call(change)

    def lift(self, condition: Condition, *, up: bool = True, down: bool = True) -> None:
        """End a condition; nothing happens where it does not hold."""

        async def change() -> None:
            for flow in self._flows(up=up, down=down):
                if condition in flow.conditions:
                    flow.conditions.remove(condition)
                flow.changed()

        self._network.call(change)

    def _flows(self, *, up: bool = True, down: bool = True) -> list[_Flow]:
        return [flow for flow, wanted in ((self._up, up), (self._down, down)) if wanted]

    def refuse(self, *, refusing: bool) -> None:
        """Reset new connections at once, or take them again."""

        async def change() -> None:
            self._refusing = refusing

        self._network.call(change)

    def reset(self) -> None:
        """End every connection with a reset; what was on its way is lost."""

        async def change() -> None:
            for pair in tuple(self._connections):
                pair.abort()

        self._network.call(change)

    def clear(self) -> None:
        """Let everything through again."""

        async def change() -> None:
            self._refusing = False
            for flow in self._flows():
                flow.conditions.clear()
                flow.changed()

        self._network.call(change)

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: tuple[str, int]) -> None:
        """Join a connection that was accepted with one to the target.  A new connection needs both directions."""
        pair = _Pair(writer)
        self.accepted += 1
        if self._refusing:
            pair.abort()
            return
        self._connections.add(pair)
        try:
            await self._up.gate()
            await self._down.gate()
            if not pair.aborted:
                await self._join(reader, pair, address)
        except BaseException as error:
            pair.abort()
            if not isinstance(error, OSError):  # that is: the target does not listen, or one end has gone
                raise
        finally:
            pair.close()
            self._connections.discard(pair)

    async def _join(self, reader: asyncio.StreamReader, pair: _Pair, address: tuple[str, int]) -> None:
        there, pair.target = await asyncio.open_connection(*address, limit=CHUNK_BYTES)
        self.head = b""
        pumps = [
            asyncio.create_task(self._up.pump(reader, pair.target, self._say)),
            asyncio.create_task(self._down.pump(there, pair.source, self._remember)),
        ]
        pair.pumps = pumps
        if pair.aborted:
            pair.abort()
        await asyncio.gather(*pumps, return_exceptions=True)

    def _say(self, place: int, data: bytes) -> bytes:
        for said, heard in self.says.items() if place == 0 else ():
            data = data.replace(said, heard)
        return data

    def _remember(self, place: int, data: bytes) -> bytes:
        if place < HEAD_BYTES:
            self.head = (self.head + data)[:HEAD_BYTES]
        return data


class _Flow:
    """One direction of a link."""

    def __init__(self, passed: list[int], place: int) -> None:
        self.conditions: list[Condition] = []
        self._open = asyncio.Event()
        self._open.set()
        self._passed, self._place = passed, place

    @property
    def is_held(self) -> bool:
        return any(condition.held for condition in self.conditions)

    def changed(self) -> None:
        (self._open.clear if self.is_held else self._open.set)()

    async def gate(self) -> None:
        """Wait until the direction is open; the caller does what it wants to do without waiting in between."""
        while self.is_held:
            await self._open.wait()

    async def pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        heard: Callable[[int, bytes], bytes],
    ) -> None:
        """Pass on what comes, and the end of it; `heard` is called with each piece and where in the stream it begins."""
        place = 0
        try:
            while data := await reader.read(CHUNK_BYTES):
                await self._slow_down(len(data))
                await self.gate()
                writer.write(heard(place, data))
                place += len(data)
                self._passed[self._place] += len(data)
                await writer.drain()
            await self.gate()
            if writer.can_write_eof():
                writer.write_eof()
        except OSError:  # an end that breaks off breaks the other off, as soon as that may hear of it
            await self.gate()
            _abort(writer)

    async def _slow_down(self, size: int) -> None:
        pause = sum(
            condition.delay_s + (size / condition.bytes_per_s if condition.bytes_per_s else 0.0)
            for condition in self.conditions
        )
        if pause:
            await asyncio.sleep(pause)


class _Pair:
    """A connection from a source, and ours to the target."""

    def __init__(self, source: asyncio.StreamWriter) -> None:
        self.source = source
        self.target: asyncio.StreamWriter | None = None
        self.pumps: list[asyncio.Task[None]] = []
        self.aborted = False

    def abort(self) -> None:
        """End both with a reset; what is in our hands is lost."""
        self.aborted = True
        for pump in self.pumps:
            pump.cancel()
        for writer in (self.source, self.target):
            if writer is not None:
                _abort(writer)

    def close(self) -> None:
        """End both in order, after what is still to be sent.  One that was aborted stays so."""
        for writer in (self.source, self.target):
            if writer is not None:
                writer.close()


def _abort(writer: asyncio.StreamWriter) -> None:
    """End a connection with a reset: what was not sent is lost."""
    end = writer.get_extra_info("socket")
    if end is not None:
        with contextlib.suppress(OSError):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class Network:
    """The thread that carries all links, and their fronts."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)
        self._thread.start()
        self._servers: list[asyncio.Server] = []

    def link(self, source: str, target: str) -> Link:
        """Make a link; it carries nothing until a front leads to it."""
        return Link(self, source, target)

    def front(self, links: Mapping[str, Link], port: int, target_port: int) -> int:
        """Listen at a port, and return it.

        Parameters
        ----------
        links
            By the address that a connection comes from; ``""`` for all others.
        port, target_port
            On 127.0.0.1; port 0 takes a free one.
        """

        async def arrived(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            source = writer.get_extra_info("peername")
            link = links.get(source[0] if source else "") or links[""]
            with contextlib.suppress(asyncio.CancelledError):  # by `close`; asyncio's streams would report it
                await link.carry(reader, writer, (LOCALHOST, target_port))

        async def listen() -> int:
            server = await asyncio.start_server(arrived, LOCALHOST, port, limit=CHUNK_BYTES)
            self._servers.append(server)
            return int(server.sockets[0].getsockname()[1])

        return self.call(listen)

    def call(self, what: Callable[[], Awaitable[T]]) -> T:
        """Do something in the links' own thread, and return when it is done."""

        async def do() -> T:
            return await what()

        return asyncio.run_coroutine_threadsafe(do(), self._loop).result()

    def close(self) -> None:
        """End all connections and the thread."""
        self.call(self._end)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        for server in self._servers:
            await stop_listening(server)
        await last_turns()
