"""The page's HTTP server: files, a few read-only answers in JSON, and a stream of overviews.

=====================================  ==================================================================================
``GET /?key=…``                        takes the one-time key and gives the cookie
``GET /``, ``/static/…``               the page and its files
``GET /api/overview``                  tables, replicas and findings, as they were seen last
``GET /api/looks``                     positions and states of the last minutes
``GET /api/log?table=&after=&base=``   the entries of one log, and the state that they are applied to
``GET /api/parts?table=``              the parts that a replica shows now, with their sizes
``GET /api/history?table=&limit=``     what happened to a table, in words, also what the log has no more
``GET /api/shards?table=``             which shard owns how many buckets, and what moves
``GET /api/waits?table=``              of each partition with several parts, why they are not merged
``GET /api/aside?table=``              what each replica keeps aside: detached parts, frozen snapshots
``GET /api/tablets``                   the tablets that the page was told of
``GET /api/trace``                     the trace that the page was told of
``GET /api/events``                    server-sent events: each new overview
=====================================  ==================================================================================

Guarantees: every answer has `door.HEADERS`; a browser without the cookie gets 403 and an explanation, whatever the path; no
request changes anything in the cluster; bad input is a 400 with a sentence.

Absent on purpose: TLS and other addresses than loopback.  Look from elsewhere through a tunnel.
"""

from __future__ import annotations

import asyncio
import importlib.resources
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from replitree.errors import BadInput, ReplitreeError, TableNotFound
from replitree.ui import door
from replitree.ui.aside import aside_of
from replitree.ui.extras import Extras, read_trace
from replitree.ui.observer import Observer
from replitree.ui.tablets import Tablets

if TYPE_CHECKING:
    from replitree.client.connection import Connection

VIEWERS_MAX = 64
"""Streams of events at once; each is an open tab."""

HEARTBEAT_S = 15.0
"""How often a stream without news says that it is alive, in seconds."""

HISTORY_SHOWN_MAX = 5000
INDEX_DIGITS_MAX = 18

TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}
"""Kinds of files that browsers get; others are not served."""

_OBSERVER = web.AppKey("observer", Observer)
_ADMISSION = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>replitree</title>
<link rel="icon" href="data:,">{head}</head>
<body><main><h1>replitree</h1><p>{text}</p></main></body></html>"""
_LOCKED = (
    "This page opens with the address that <code>replitree up</code> or <code>replitree ui</code> has printed; the key in it "
    "works once. For another browser run <code>replitree ui</code>: it prints a new address."
)
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class PageServer:
    """Serves the page of one cluster.

    Parameters
    ----------
    connection
        The cluster; `close` leaves it open.
    key
        The one-time key.
    extras
        What else it shows.
    """

    def __init__(self, connection: Connection, key: str, extras: Extras | None = None) -> None:
        self._connection = connection
        self._door = door.Door(key)
        self._files = page_files()
        extras = extras or Extras()
        self._trace = extras.trace
        self._tablets = Tablets(extras.tablets)
        self._streams: set[asyncio.Queue[dict[str, Any]]] = set()
        self._loop = asyncio.get_running_loop()
        self._observer = Observer(connection, self._publish)
        self._port = 0
        app = web.Application(middlewares=[self._guarded], client_max_size=0)
        app.add_routes(
            [
                web.get("/", self._index),
                web.get("/static/{path:.+}", self._file),
                web.get("/api/overview", self._overview),
                web.get("/api/looks", self._looks),
                web.get("/api/log", self._log),
                web.get("/api/parts", self._parts),
                web.get("/api/history", self._history),
                web.get("/api/shards", self._shards),
                web.get("/api/waits", self._waits),
                web.get("/api/aside", self._aside),
                web.get("/api/tablets", self._tablets_seen),
                web.get("/api/trace", self._trace_told),
                web.get("/api/events", self._events),
            ]
        )
        # No access log: it would have the key.
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)

    async def serve(self, listening: socket.socket) -> None:
        """Answer on a socket that listens already, until `close`."""
        self._port = listening.getsockname()[1]
        await self._runner.setup()
        await web.SockSite(self._runner, listening).start()

    async def close(self) -> None:
        """End all streams and answers."""
        for stream in self._streams:
            stream.put_nowait({})
        await self._runner.cleanup()
        await asyncio.to_thread(self._observer.close)

    # --- the door -------------------------------------------------------------------------------------------------------

    @property
    def _cookie(self) -> str:
        # Cookies do not tell ports apart: two pages on one machine would overwrite each other's.
        return f"replitree-page-{self._port}"

    @web.middleware
    async def _guarded(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        try:
            answer = await self._answer(request, handler)
        except web.HTTPException as refused:
            answer = _failed(refused.status, refused.reason)
        except BadInput as error:
            answer = _failed(400, str(error))
        except TableNotFound as error:
            answer = _failed(404, str(error))
        except ReplitreeError as error:
            answer = _failed(503, f"{type(error).__name__}: {error}")
        if not answer.prepared:
            answer.headers.update(door.HEADERS)
        return answer

    async def _answer(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        if not door.is_local(request.headers.get("Host", "")):
            return _failed(421, "the page answers to 127.0.0.1 and localhost only; open it through a tunnel")
        if request.path == "/" and "key" in request.query:
            return self._admit(request.query["key"])
        if not self._door.knows(request.cookies.get(self._cookie, "")):
            return _admission(403, _LOCKED)
        if not door.is_own(request.headers.get("Sec-Fetch-Site")):
            return _failed(403, "another site has asked for this")
        return await handler(request)

    def _admit(self, key: str) -> web.Response:
        cookie = self._door.enter(key)
        if cookie is None:
            return _admission(403, f"This key was used before, or is wrong. {_LOCKED}")
        # Not a redirect: after a link from another site a browser would follow it without the new cookie.
        answer = _admission(200, '<a href="/">Open the page</a>', '<meta http-equiv="refresh" content="0;url=/">')
        answer.set_cookie(self._cookie, cookie, httponly=True, samesite="Strict", path="/")
        return answer

    # --- files ----------------------------------------------------------------------------------------------------------

    async def _index(self, _request: web.Request) -> web.StreamResponse:
        return self._served("index.html")

    async def _file(self, request: web.Request) -> web.StreamResponse:
        return self._served(request.match_info["path"])

    def _served(self, name: str) -> web.Response:
        found = self._files.get(name)
        if found is None:
            raise web.HTTPNotFound
        kind, body = found
        return web.Response(body=body, content_type=kind, charset="utf-8")

    # --- answers --------------------------------------------------------------------------------------------------------

    async def _overview(self, _request: web.Request) -> web.StreamResponse:
        return _json(self._observer.latest)

    async def _looks(self, _request: web.Request) -> web.StreamResponse:
        return _json(self._observer.looks())

    async def _log(self, request: web.Request) -> web.StreamResponse:
        after = _number(request.query, "after", 0)
        base = _number(request.query, "base", -1)
        return await self._of_log(
            request, lambda name: self._observer.view(name).log(after, base if base >= 0 else None)
        )

    async def _parts(self, request: web.Request) -> web.StreamResponse:
        return await self._of_log(request, lambda name: self._observer.view(name).parts())

    async def _of_log(self, request: web.Request, read: Callable[[str], dict[str, Any]]) -> web.StreamResponse:
        name = _text(request.query, "table")
        try:
            return _json(await asyncio.to_thread(read, name))
        except ReplitreeError:
            self._observer.forget(name)
            raise

    async def _waits(self, request: web.Request) -> web.StreamResponse:
        return await self._of_log(request, lambda name: self._observer.view(name).waits())

    async def _aside(self, request: web.Request) -> web.StreamResponse:
        name = _text(request.query, "table")
        return await self._read(lambda: aside_of(self._connection.hosted(name)))

    async def _tablets_seen(self, _request: web.Request) -> web.StreamResponse:
        return await self._read(self._tablets.look)

    async def _trace_told(self, _request: web.Request) -> web.StreamResponse:
        return await self._read(lambda: read_trace(self._trace))

    async def _read(self, read: Callable[[], Any]) -> web.StreamResponse:
        return _json(await asyncio.to_thread(read))

    async def _history(self, request: web.Request) -> web.StreamResponse:
        name, limit = _text(request.query, "table"), _number(request.query, "limit", 200)
        if not 1 <= limit <= HISTORY_SHOWN_MAX:
            raise BadInput(f"limit is 1 to {HISTORY_SHOWN_MAX:,} entries")

        def read() -> Any:
            table = self._connection.hosted(name) if "~" in name else self._connection.table(name)
            return table.history(limit)

        return _json(await asyncio.to_thread(read))

    async def _shards(self, request: web.Request) -> web.StreamResponse:
        name = _text(request.query, "table")
        found = await asyncio.to_thread(lambda: self._connection.shards(name).status())
        moves = [{"source": each.source, "target": each.target, "buckets": len(each.buckets)} for each in found.moves]
        owned = [
            {"shard": shard, "weight": found.weights.get(shard), "buckets": buckets}
            for shard, buckets in sorted(found.owned.items())
        ]
        far = {"rows": found.rows, "bytes": found.bytes, "on_its_way": found.on_its_way, "idle_s": found.idle_s}
        return _json({"table": name, "owned": owned, "moves": moves, **far})

    # --- the stream -----------------------------------------------------------------------------------------------------

    async def _events(self, request: web.Request) -> web.StreamResponse:
        if len(self._streams) >= VIEWERS_MAX:
            return _failed(503, f"{VIEWERS_MAX} tabs look already; close some")
        answer = web.StreamResponse(headers={**door.HEADERS, "Content-Type": "text/event-stream"})
        news: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._streams.add(news)
        self._observer.join()
        try:
            await answer.prepare(request)
            if self._observer.latest["at"] is not None or self._observer.latest["problem"]:
                await _send(answer, self._observer.latest)
            while True:
                try:
                    overview = await asyncio.wait_for(news.get(), HEARTBEAT_S)
                except TimeoutError:
                    await answer.write(b": alive\n\n")
                    continue
                while not news.empty():
                    # A slow browser gets the newest state, not all that it missed.
                    overview = news.get_nowait()
                if not overview:
                    return answer
                await _send(answer, overview)
        except ConnectionResetError:
            return answer
        finally:
            self._streams.discard(news)
            self._observer.leave()

    def _publish(self, overview: dict[str, Any]) -> None:
        # The loop may have ended while a last look was under way.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._tell, overview)

    def _tell(self, overview: dict[str, Any]) -> None:
        for stream in self._streams:
            stream.put_nowait(overview)


def page_files() -> dict[str, tuple[str, bytes]]:
    """Return what browsers may get: (kind, content) by path below ``static/``."""
    found: dict[str, tuple[str, bytes]] = {}
    static = importlib.resources.files("replitree.ui") / "static"
    folders = [("", static)]
    while folders:
        prefix, folder = folders.pop()
        for each in folder.iterdir():
            if each.is_dir():
                folders.append((f"{prefix}{each.name}/", each))
            elif PurePath(each.name).suffix in TYPES:
                found[f"{prefix}{each.name}"] = (TYPES[PurePath(each.name).suffix], each.read_bytes())
    return found


async def _send(answer: web.StreamResponse, overview: dict[str, Any]) -> None:
    # JSON has no line breaks but those between its tokens, and msgspec writes none.
    await answer.write(b"event: overview\ndata: " + msgspec.json.encode(overview) + b"\n\n")


def _text(query: Mapping[str, str], name: str) -> str:
    if name not in query:
        raise BadInput(f"the address wants {name}=…")
    return query[name]


def _number(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= INDEX_DIGITS_MAX):
        raise BadInput(f"{name} is a whole number")
    return int(text)


def _json(value: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")


def _failed(status: int, message: str) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode({"error": message}), content_type="application/json")


def _admission(status: int, text: str, head: str = "") -> web.Response:
    return web.Response(status=status, text=_ADMISSION.format(head=head, text=text), content_type="text/html")
