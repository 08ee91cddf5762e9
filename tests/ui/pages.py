"""A page that is served in this process, and what asks it."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from replitree.client.connection import Connection
from replitree.ui.extras import Extras
from replitree.ui.process import address_of, listen
from replitree.ui.server import PageServer

KEY = "the one-time key of the tests"


@dataclass(frozen=True)
class Answer:
    """What came back, whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def cookie(self) -> str:
        """Name and value of the cookie that was set."""
        return self.headers["set-cookie"].partition(";")[0]


@dataclass
class Page:
    """A page, and the cookie with which it is asked once `enter` was called."""

    port: int
    address: str
    cookie: str = ""

    def ask(self, path: str, *, method: str = "GET", **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            cookies = {"Cookie": self.cookie} if self.cookie else {}
            connection.request(method, path, headers={**cookies, **headers})
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read())
        finally:
            connection.close()

    def enter(self) -> Page:
        """Use the key."""
        answer = self.ask(f"/?key={KEY.replace(' ', '+')}")
        assert answer.status == 200, answer
        self.cookie = answer.cookie
        return self

    @contextmanager
    def events(self) -> Iterator[Iterator[Any]]:
        """Listen to the stream; gives each overview."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", "/api/events", headers={"Cookie": self.cookie})
        answer = connection.getresponse()
        assert answer.status == 200, answer.status
        try:
            yield (json.loads(line[6:]) for line in iter(answer.readline, b"") if line.startswith(b"data: "))
        finally:
            answer.close()
            connection.close()


@contextmanager
def page_of(connection: Connection, extras: Extras | None = None) -> Iterator[Page]:
    """Serve the page of a cluster on a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def on_loop(coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(60)

    async def begin() -> PageServer:
        server = PageServer(connection, KEY, extras)
        await server.serve(listening)
        return server

    with listen(0) as listening:
        server = on_loop(begin())
        try:
            yield Page(listening.getsockname()[1], address_of(listening, KEY))
        finally:
            on_loop(server.close())
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()
