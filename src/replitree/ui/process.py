"""The page as a process: it listens on loopback, says where, and serves until it is stopped."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from replitree.errors import BadInput
from replitree.ui.door import new_key

if TYPE_CHECKING:
    from replitree.client.connection import Connection
    from replitree.ui.extras import Extras

LOOPBACK = "127.0.0.1"
WAITING_MAX = 64


def listen(port: int) -> socket.socket:
    """Return a socket that listens on loopback.

    Parameters
    ----------
    port
        0: any that is free.

    Raises
    ------
    BadInput
        The port is taken, or this user may not listen there.
    """
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((LOOPBACK, port))
        listening.listen(WAITING_MAX)
    except OSError as error:
        listening.close()
        raise BadInput(
            f"can't listen on port {port} of {LOOPBACK} ({error.strerror}); choose another --port"
        ) from error
    return listening


def address_of(listening: socket.socket, key: str) -> str:
    """Return the address that a browser opens; its key works once."""
    return f"http://{LOOPBACK}:{listening.getsockname()[1]}/?key={key}"


def run_page(connection: Connection, port: int, say: Callable[[str], None], extras: Extras | None = None) -> None:
    """Serve the page of a cluster until SIGINT or SIGTERM.

    Parameters
    ----------
    connection
        The cluster.
    port
        Where to listen; 0: any port that is free.
    say
        Gets the address, with its one-time key, when the page is there.

    Raises
    ------
    BadInput
        The port is taken.
    """
    import asyncio

    listening, key = listen(port), new_key()
    with listening:
        asyncio.run(serve_page(connection, listening, key, lambda: say(address_of(listening, key)), extras))


async def serve_page(
    connection: Connection,
    listening: socket.socket,
    key: str,
    ready: Callable[[], None] = lambda: None,
    extras: Extras | None = None,
) -> None:
    """Serve the page on a socket that listens already, until SIGINT or SIGTERM; call `ready` once it answers."""
    # What serving needs is loaded here: `up` needs only `listen` and `address_of`.
    import asyncio
    import signal

    from replitree.ui.server import PageServer

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    server = PageServer(connection, key, extras)
    await server.serve(listening)
    ready()
    try:
        await stop.wait()
    finally:
        await server.close()
