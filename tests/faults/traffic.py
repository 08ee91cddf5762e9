"""A process of visitors that write down what they ask and hear: ``python -m tests.faults.traffic ORDER``.

It ends when it is told to (SIGTERM), with 0; a visitor that met something that should never happen ends it with 1.
"""

from __future__ import annotations

import signal
import sys
import traceback
from pathlib import Path

import msgspec

from replitree.client.connection import Connection, connect
from replitree.errors import ReplitreeError
from replitree.wire.history_recorder import Recorder
from replitree_verify.nemesis.visitors import Crowd
from tests.faults.skew import Skew

CONNECTIONS = 2
"""Of one process; each has a history of its own."""


class Order(msgspec.Struct, frozen=True):
    """What a process of clients is to do.

    Attributes
    ----------
    url, token_file, table, replicas
        Of the cluster.
    seed, first, clients
        The number of its first client among all, and how many it has; what they do is drawn from the seed.
    folder
        Where histories go: one for each connection.
    skew
        How wrong its clock is.
    """

    url: str
    token_file: str
    table: str
    replicas: tuple[str, ...]
    seed: int
    first: int
    clients: int
    folder: str
    skew: Skew = Skew()


def run(order: Order) -> int:
    """Let the clients act until the process is told to stop; return the exit status."""
    connections = [_connect(order, number) for number in range(CONNECTIONS)]
    numbers = range(order.first, order.first + order.clients)
    crowd = Crowd(connections, order.table, order.replicas, order.seed, numbers)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: crowd.stop())
    crowd.start()
    crowd.finish()
    for connection in connections:
        connection.close()
    return 1 if crowd.has_failed else 0


def _connect(order: Order, number: int) -> Connection:
    file = Path(order.folder) / f"clients-{order.first}-{number}.jsonl"
    return connect(order.url, token_file=order.token_file, record=Recorder(file, name=f"p{order.first}.{number}"))


def main(path: str) -> int:
    """Do what a file says."""
    order = msgspec.json.decode(Path(path).read_bytes(), type=Order)
    order.skew.install()
    try:
        return run(order)
    except ReplitreeError:
        traceback.print_exc()
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
