"""What systemd hears of a server: that it is ready, what it waits for until then, that it stops.

The protocol is that of ``sd_notify(3)``: a datagram of lines ``KEY=value`` to the socket that ``NOTIFY_SOCKET`` names.  Without
that variable nothing is sent, and a server that runs otherwise pays nothing.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping

from replitree.replica.kit.logs import Log

LOOK_S = 0.1
"""From one look at the tables to the next until they serve, in seconds."""

TOLD_MAX = 500
"""Characters of a status."""


def notify(*lines: str) -> None:
    """Send lines such as ``READY=1`` to the service manager that started this process, if one did."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            # A name that begins with @ is in the abstract namespace of Linux.
            channel.connect("\0" + address[1:] if address.startswith("@") else address)
            channel.sendall("\n".join(lines).encode())
    except OSError as error:
        Log().warning("the service manager can't be told", problem=error.strerror)


async def tell_when_ready(waiting: Callable[[], Mapping[str, str]]) -> None:
    """Tell the service manager that the server is ready when nothing waits any longer, and until then what waits.

    Parameters
    ----------
    waiting
        Returns why tables do not serve reads yet, by table.
    """
    if not os.environ.get("NOTIFY_SOCKET"):
        return
    told = ""
    while found := waiting():
        status = "; ".join(f"{table}: {why}" for table, why in found.items())[:TOLD_MAX].replace("\n", " ")
        if status != told:
            notify(f"STATUS={status}")
            told = status
        await asyncio.sleep(LOOK_S)
    notify("READY=1", "STATUS=all tables serve reads")


__all__ = ["notify", "tell_when_ready"]
