"""An HTTP proxy before an object store, which delays, fails and loses: what a busy store and its network do.

Each request suffers what is drawn from the proxy's `Mix`, by a generator with a seed:

=================  ============================================================================================================
`LOSE_REQUEST`     the connection is cut, and the store hears nothing
`LOSE_ANSWER`      the store does it, and the connection is cut before a byte of its answer has passed
`CUT_ANSWER`       the same, in the middle of the answer
`ERROR_AFTER`      the store does it, and the client is told 500
`SLOW_DOWN`        the client is told 503 Slow Down, and the store hears nothing
`LATE`             the connection is cut, and the store hears of it some time afterwards
`DELAY`            it takes longer
=================  ============================================================================================================

Requests and answers pass as they are, so their signatures stay good.  One thread with an event loop carries all of them; every
message is held in memory as a whole.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from replitree.coordination.embedded import LOCALHOST
from replitree.replica.http.connections import stop_listening
from tests.last_turns import last_turns

T = TypeVar("T")

HEAD_BYTES_MAX = 1 << 16
HEAD_END = b"\r\n\r\n"
LATE_S = (0.2, 3.0)
"""How much later the store hears of a late request, in seconds."""


class Ill(Enum):
    """What happens to a request."""

    LOSE_REQUEST = "lose-request"
    LOSE_ANSWER = "lose-answer"
    CUT_ANSWER = "cut-answer"
    ERROR_AFTER = "error-after"
    SLOW_DOWN = "slow-down"
    LATE = "late"
    DELAY = "delay"


@dataclass(frozen=True, slots=True)
class Mix:
    """How large the share of requests is that suffers each ill, and the longest delay in seconds."""

    shares: tuple[tuple[Ill, float], ...] = ()
    delay_s: float = 0.0

    @classmethod
    def even(cls, share: float, delay_s: float = 0.3) -> Mix:
        """Return a mix in which every ill has the same share."""
        return cls(tuple((ill, share) for ill in Ill), delay_s)

    def draw(self, chance: random.Random) -> Ill | None:
        """Draw what happens to one request."""
        left = chance.random()
        for ill, share in self.shares:
            left -= share
            if left < 0:
                return ill
        return None


CALM = Mix()

REASONS = {500: ("Internal Server Error", "InternalError"), 503: ("Slow Down", "SlowDown")}


class Ended(Exception):
    """One end of a connection has gone."""


class S3Proxy:
    """The proxy, on a free port of this machine.

    Parameters
    ----------
    target_port
        Where the store listens on this machine.
    seed
        Of what is drawn.

    Attributes
    ----------
    mix
        What requests suffer from now on; may be changed by any thread.
    is_refusing
        Whether every connection is cut.
    done
        How many requests suffered what; those that nothing happened to under None.
    """

    def __init__(self, target_port: int, seed: int = 0) -> None:
        self.mix = CALM
        self.is_refusing = False
        self.done: Counter[Ill | None] = Counter()
        self._target_port = target_port
        self._chance = random.Random(f"{seed}/proxy")
        self._late: set[asyncio.Task[None]] = set()
        self._carrying: set[asyncio.Task[None] | None] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="s3-proxy", daemon=True)
        self._thread.start()
        self.port = self._call(self._listen)

    @property
    def endpoint(self) -> str:
        """URL of the proxy."""
        return f"http://{LOCALHOST}:{self.port}"

    @property
    def late(self) -> int:
        """How many requests the store has still to hear of."""
        return len(self._late)

    def close(self) -> None:
        """End all connections, forget late requests, and end the thread."""
        self._call(self._end)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, what: Callable[[], Awaitable[T]]) -> T:
        async def do() -> T:
            return await what()

        return asyncio.run_coroutine_threadsafe(do(), self._loop).result()

    async def _listen(self) -> int:
        self._server = await asyncio.start_server(self._arrived, LOCALHOST, 0, limit=HEAD_BYTES_MAX)
        return int(self._server.sockets[0].getsockname()[1])

    async def _end(self) -> None:
        await stop_listening(self._server)
        await last_turns()

    # --- one connection -------------------------------------------------------------------------------------------------------

    async def _arrived(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        store, task = _Store(self._target_port), asyncio.current_task()
        # The loop forgets a client that has closed its end, and asyncio refers to the reader of the store's answer only weakly:
        # a task that waits for that answer would be collected as garbage.
        self._carrying.add(task)
        with suppress(Ended, OSError, asyncio.CancelledError):
            try:
                while not self.is_refusing:
                    await self._pass(reader, writer, store)
            finally:
                store.close()
                writer.transport.abort()
                self._carrying.discard(task)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, store: _Store) -> None:
        """Carry one request."""
        request = await _read(reader, "")
        ill = self.mix.draw(self._chance)
        self.done[ill] += 1
        if ill is Ill.LATE:
            late = asyncio.create_task(self._send_late(request, self._chance.uniform(*LATE_S)))
            self._late.add(late)
            late.add_done_callback(self._late.discard)
        if self.is_refusing or ill in (Ill.LATE, Ill.LOSE_REQUEST):
            raise Ended
        if ill is Ill.SLOW_DOWN:
            answer = _error(503)
        else:
            if ill is Ill.DELAY:
                await asyncio.sleep(self._chance.uniform(0, self.mix.delay_s))
            answer = await store.ask(request)
        await _answer(writer, answer, ill)

    async def _send_late(self, request: bytes, after_s: float) -> None:
        await asyncio.sleep(after_s)
        store = _Store(self._target_port)
        with suppress(Ended, OSError):
            try:
                await store.ask(request)
            finally:
                store.close()


async def _answer(writer: asyncio.StreamWriter, answer: bytes, ill: Ill | None) -> None:
    """Pass an answer on, or what becomes of it."""
    if ill is Ill.LOSE_ANSWER:
        raise Ended
    if ill is Ill.ERROR_AFTER:
        answer = _error(500)
    if ill is Ill.CUT_ANSWER:
        answer = answer[: len(answer) // 2]
    writer.write(answer)
    await writer.drain()
    if ill is Ill.CUT_ANSWER:
        writer.close()
        await writer.wait_closed()
        raise Ended


def _error(status: int) -> bytes:
    reason, code = REASONS[status]
    body = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
    head = f"HTTP/1.1 {status} {reason}\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


# --- messages -----------------------------------------------------------------------------------------------------------------


class _Store:
    """A connection to the store, made when it is needed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._ends: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: bytes) -> bytes:
        """Send a request and return its answer."""
        if self._ends is None:
            self._ends = await asyncio.open_connection(LOCALHOST, self._port, limit=HEAD_BYTES_MAX)
        reader, writer = self._ends
        writer.write(request)
        await writer.drain()
        return await _read(reader, request.partition(b" ")[0].decode())

    def close(self) -> None:
        """End it."""
        if self._ends is not None:
            self._ends[1].close()


async def _read(reader: asyncio.StreamReader, asked: str) -> bytes:
    """Read one message as a whole; of an answer `asked` says the method."""
    try:
        head = await reader.readuntil(HEAD_END)
        return head + await _read_body(reader, head, asked)
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise Ended from error


async def _read_body(reader: asyncio.StreamReader, head: bytes, asked: str) -> bytes:
    fields = _fields(head)
    if asked == "HEAD" or (asked and head.split(b" ", 2)[1] in (b"204", b"304")):
        return b""
    if "chunked" in fields.get("transfer-encoding", ""):
        return await _read_chunks(reader)
    if asked and "content-length" not in fields:
        return await reader.read()
    return await reader.readexactly(int(fields.get("content-length", 0)))


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    read = bytearray()
    while True:
        line = await reader.readuntil(b"\r\n")
        read += line
        size = int(line.partition(b";")[0], 16)
        if not size:
            break
        read += await reader.readexactly(size + 2)
    while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
        read += line
    return bytes(read + line)


def _fields(head: bytes) -> dict[str, str]:
    lines = head.decode("latin-1").split("\r\n")[1:]
    pairs = (line.partition(":") for line in lines if line)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}
