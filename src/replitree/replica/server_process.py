"""The process of a server: its configuration, its data folder, its port, its session; what ends it; its exit status.

One line of JSON on standard output says that the server has joined its tables, and where it listens; systemd is told when they
serve reads (`replitree.replica.service_manager`).
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from replitree import private
from replitree.coordination.zookeeper import ZooKeeperCoordination
from replitree.errors import CoordinationUnavailable, ReplitreeError
from replitree.replica.http.http_server import HttpServer
from replitree.replica.kit.config import Address, ServerConfig, load_config, parse_address, read_token, server_contexts
from replitree.replica.kit.data_folder import lock_data_folder
from replitree.replica.kit.logs import hide, set_up_logging
from replitree.replica.server import Server
from replitree.replica.service_manager import notify, tell_when_ready
from replitree.replica.starting import StartingServer
from replitree.wire import tracing

if TYPE_CHECKING:
    from replitree.coordination.trace import CommitTrace

SWITCH_S = 0.0005
"""How long a thread may keep the interpreter from the others: most of ours wait for a disk or a socket and then need little."""

COLLECT_OBJECTS = 10_000
"""New objects between two collections of garbage."""


async def serve(config: ServerConfig, config_file: Path | None = None) -> None:
    """Run a server until it is told to stop; `config_file` as of `Server`.

    Raises
    ------
    ReplitreeError
        It can't start, or must stop: the message says why and what to do.
    """
    token = read_token(Path(config.token_file))
    hide(token)
    if config.otel:
        tracing.enable(instance=config.name)
    is_group = config.files_group_readable
    # Libraries make files, too: the object store's client for one.
    os.umask(private.GROUP_UMASK if is_group else private.PRIVATE_UMASK)
    lock = lock_data_folder(Path(config.data), group=is_group)
    listen = parse_address(config.listen, "listen")
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    holder = StartingServer()
    tls = server_contexts(
        config.tls_files,
        wants_certificates=config.tls_clients == "with_certificate",
        takes_clear_text=config.tls_plain_replicas,
    )
    is_secure = bool(config.tls_certificate)
    http = HttpServer(holder, token, config, tls if is_secure else None)
    loading: asyncio.Task[None] | None = None
    try:
        address = Address(listen.host, await http.listen(listen.host, listen.port), is_secure)
        advertised = address
        if config.advertise:
            advertised = replace(parse_address(config.advertise, "advertise"), is_secure=is_secure)
        trace: CommitTrace | None = None
        if config.trace:
            trace = import_module("replitree.coordination.trace").CommitTrace(Path(config.trace), config.name)
        session = ZooKeeperCoordination(
            config.zookeeper, session_timeout_s=config.session_timeout_s, trace=trace, connect=False, tls=tls
        )
        server = Server(config, token, advertised, session, session.url.root, trace, config_file, tls)
        server.on_failure = partial(loop.call_soon_threadsafe, stop.set)
        if not await _started(server, session, stop, holder):
            return
        loading = loop.create_task(_load_the_rest(server, http))
        print(msgspec.json.encode({"ready": True, "address": str(address)}).decode(), flush=True)  # noqa: T201
        telling = loop.create_task(tell_when_ready(server.waiting))
        await stop.wait()
        telling.cancel()
        notify("STOPPING=1")
        server.log.info("stopping")
        await asyncio.to_thread(server.stop)
        if server.failure is not None:
            raise server.failure
    finally:
        if loading is not None:
            await asyncio.wait({loading})
        await http.close()
        os.close(lock)


async def _started(server: Server, session: ZooKeeperCoordination, stop: asyncio.Event, holder: StartingServer) -> bool:
    """Connect and start; False: the server was stopped before it had a connection, and its session is closed.

    Raises
    ------
    CoordinationUnavailable
        Coordination did not answer.
    """

    async def close_unheard() -> None:
        await stop.wait()
        # With a connection the start comes to its end, and the drain begins.
        if not session.is_connected():
            await asyncio.to_thread(session.close)

    closing = asyncio.create_task(close_unheard())
    try:
        await asyncio.to_thread(session.connect)
        holder.server = server
        await asyncio.to_thread(server.start)
    except CoordinationUnavailable:
        if not stop.is_set():
            raise
        server.log.info("stopped before it was started: coordination did not answer")
        return False
    finally:
        closing.cancel()
    return True


async def _load_the_rest(server: Server, http: HttpServer) -> None:
    """Load what no request has needed so far."""
    try:
        await asyncio.to_thread(server.load_the_rest)
        await http.load()
    except Exception:  # noqa: BLE001 - the request that needs it gets the error
        server.log.defect("not everything can be loaded")
    # Modules and settings stay for good, so the collector skips them.  Requests make few cycles, so it runs less often.
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_OBJECTS, 20, 20)
    gc.enable()


def main(config_path: str) -> int:
    """Run the server of a configuration file; return the exit status."""
    set_up_logging()
    sys.setswitchinterval(SWITCH_S)
    path = Path(config_path)
    try:
        config = load_config(path)
        set_up_logging(config.log_level, config.log_format)
        asyncio.run(serve(config, path))
    except ReplitreeError as error:
        print(f"replitree server: {error}", file=sys.stderr)  # noqa: T201
        return 2 if type(error).__name__ in ("BadInput", "InvalidName") else 1
    return 0
