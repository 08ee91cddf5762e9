"""Asks the ZooKeeper servers themselves how they are, by the four-letter command ``srvr``, which they answer by default.

It needs no session and no credentials, and tells neither names nor data of nodes.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from replitree.client.admin.doctor_state import CoordinationServer
from replitree.tls import NO_FILES, SECURE, Contexts, open_connection

ANSWER_S_MAX = 2.0
"""How long a ZooKeeper server may take to say how it is, in seconds."""

ANSWER_BYTES_MAX = 1 << 16
LATENCY_READS = 5
"""Reads that are timed."""

_MODE = re.compile(r"^Mode: (\w+)", re.MULTILINE)
_NODES = re.compile(r"^Node count: (\d+)", re.MULTILINE)


def ask_servers(hosts: Sequence[tuple[str, int]], tls: Contexts | None = None) -> tuple[CoordinationServer, ...]:
    """Return how each of these servers is, in their order.

    Parameters
    ----------
    hosts
        Host and port of each.
    tls
        What TLS is made with; None: they speak clear text.
    """
    with ThreadPoolExecutor(max(1, len(hosts)), thread_name_prefix="replitree-doctor") as pool:
        return tuple(pool.map(partial(_ask_server, tls), hosts))


def read_srvr(address: str, answer: str) -> CoordinationServer:
    r"""Read the answer to ``srvr``; what it does not say is None.

    >>> read_srvr("zk1:2181", "Mode: follower\nNode count: 42\n").nodes
    42
    """
    if "not currently serving" in answer:
        return CoordinationServer(address=address, mode="not serving")
    mode, nodes = _MODE.search(answer), _NODES.search(answer)
    return CoordinationServer(
        address=address, mode=mode[1] if mode is not None else None, nodes=int(nodes[1]) if nodes is not None else None
    )


def typical_s(read: Callable[[], object]) -> float:
    """Return how long a read takes, in seconds."""
    times: list[float] = []
    for _ in range(LATENCY_READS):
        begin = time.monotonic()
        read()
        times.append(time.monotonic() - begin)
    # The median, because one slow read says little.
    return statistics.median(times)


def _ask_server(tls: Contexts | None, host: tuple[str, int]) -> CoordinationServer:
    address = f"{host[0]}:{host[1]}"
    try:
        connection = open_connection(f"{SECURE if tls else ''}{address}", tls or Contexts(NO_FILES), ANSWER_S_MAX)
    except OSError:
        return CoordinationServer(address=address, reachable=False)
    with connection:
        try:
            connection.settimeout(ANSWER_S_MAX)
            connection.sendall(b"srvr")
            answer = b""
            while len(answer) < ANSWER_BYTES_MAX and (piece := connection.recv(4096)):
                answer += piece
            return read_srvr(address, answer.decode("utf-8", "replace"))
        except OSError:
            # It took the connection, so it runs: `srvr` may be switched off there.
            return CoordinationServer(address=address)
