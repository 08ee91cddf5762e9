"""The replica's HTTP servers: the fast path, which listens, and the general one behind it, which is loaded when it is needed.

aiohttp takes a fifth of a second to load, and a replica must not wait for that before it can recover or answer readers.  What
comes for the general server meanwhile waits on its connection.
"""

from __future__ import annotations

import asyncio
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from replitree.replica.audit import Audit
from replitree.replica.http.connections import WaitingConnection
from replitree.replica.http.fast_path import FastPath
from replitree.replica.http.gate import Gate, Tables
from replitree.replica.http.insert_requests import InsertRequests
from replitree.replica.http.refusals import kinds_only
from replitree.replica.kit.config import IDLE_S_MAX, ServerConfig
from replitree.tls import Contexts

if TYPE_CHECKING:
    from aiohttp import web

    from replitree.replica.http.http_api import HttpApi

SHUTDOWN_S = 5.0
"""How long requests that are being served may take to end when the server stops."""


class HttpServer:
    """Serves a replica's tables over HTTP.  Made on the loop.

    Parameters
    ----------
    tables
        The server around it.
    token
        The cluster's shared secret.
    config
        Has the limits of connections, bodies and inserts.
    tls
        With which every connection begins; None: all are in clear text.
    """

    def __init__(self, tables: Tables, token: str, config: ServerConfig, tls: Contexts | None = None) -> None:
        folder = Path(config.data) if config.audit else None
        self.audit = Audit(folder, config.audit_bytes_max, config.audit_files, lambda: tables.log)
        gate = Gate(tables, token, Path(config.tokens_file) if config.tokens_file else None, self.audit)
        self.inserts = InsertRequests(config)
        self._general = _General(tables, gate, self.inserts, is_secure=tls is not None)
        self.fast_path = FastPath(config, gate, self.inserts, self._general, tls)

    async def listen(self, host: str, port: int) -> int:
        """Listen for connections and return the port.  Raises as `FastPath.listen`."""
        return await self.fast_path.listen(host, port)

    async def load(self) -> None:
        """Load the general server now, so that no request has to wait for it."""
        await asyncio.shield(self._general.loading())

    async def close(self) -> None:
        """Stop listening, and close every connection."""
        await self.fast_path.close()
        await self._general.close()
        self.inserts.bodies.close()
        await asyncio.to_thread(self.audit.close)


class _General:
    """The general server, loaded once."""

    def __init__(self, tables: Tables, gate: Gate, inserts: InsertRequests, *, is_secure: bool) -> None:
        if is_secure:
            # By TLS asyncio sends files in pieces of 16 KiB, each with a round over a thread: 54 MB/s.  In pieces of
            # `CHUNK_BYTES` aiohttp reaches 544 MB/s on the same machine.  It looks for this variable when it is loaded.
            os.environ["AIOHTTP_NOSENDFILE"] = "1"
        self._tables = tables
        self._gate = gate
        self._inserts = inserts
        self._loading: asyncio.Task[web.AppRunner] | None = None
        self._runner: web.AppRunner | None = None

    def protocol(self) -> asyncio.Protocol | None:
        """Return what serves one more connection; None as long as the server is not loaded."""
        if self._runner is None:
            return None
        assert self._runner.server is not None, "the runner is set up when it is loaded"
        return self._runner.server()

    def connections(self) -> int:
        """Return how many connections it has."""
        return 0 if self._runner is None or self._runner.server is None else len(self._runner.server.connections)

    def when_loaded(self, connection: WaitingConnection) -> None:
        """Load the server, and then tell a connection."""

        def tell(loading: asyncio.Task[web.AppRunner]) -> None:
            if loading.cancelled() or loading.exception() is not None:
                connection.close()
            else:
                connection.general_is_loaded()

        self.loading().add_done_callback(tell)

    def loading(self) -> asyncio.Task[web.AppRunner]:
        """Return the loading, begun if need be."""
        if self._loading is None or (self._loading.done() and self._runner is None):
            self._loading = asyncio.get_running_loop().create_task(self._load())
        return self._loading

    async def close(self) -> None:
        """Close every connection that the server has."""
        if self._loading is not None:
            await asyncio.wait({self._loading})
        if self._runner is not None:
            await self._runner.cleanup()

    async def _load(self) -> web.AppRunner:
        try:
            api, runner_class = await asyncio.to_thread(_import)
            application = api(self._tables, self._gate, self._inserts).application()
            runner = runner_class(
                application,
                access_log=None,
                shutdown_timeout=SHUTDOWN_S,
                keepalive_timeout=IDLE_S_MAX,
                auto_decompress=False,  # `replitree.replica.http.received` does that, within a limit
                logger=kinds_only(partial(self._gate.refused, None)),
            )
            await runner.setup()
        except Exception:
            self._gate.defect("the general HTTP server can't be loaded")
            raise
        self._runner = runner
        return runner


def _import() -> tuple[type[HttpApi], type[web.AppRunner]]:
    from aiohttp import web

    from replitree.replica.http.http_api import HttpApi

    return HttpApi, web.AppRunner
