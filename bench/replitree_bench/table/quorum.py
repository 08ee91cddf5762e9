"""Quorum inserts: blocks of 100 rows that both replicas have on disk before the client hears so, by 1 and by 50 clients.

Keys::

    p50_ms, p99_ms                       latency of an insert by one client that takes the replicas in turn
    inserts_per_s_<n>_clients            acknowledged inserts per second
    p50_ms_50_clients, p99_ms_…          latency of an insert with 50 in flight
    zk_requests_per_insert_<n>_clients   requests of the whole cluster to ZooKeeper, until quiet
    repeated_per_insert_50_clients       how often a client had to say its insert again, because it was refused at once
    client_cores_50_clients              how busy the clients' process was: near 1.0, the clients were the limit

ClickHouse 18.16 lets one insert with a quorum be open at a time and refuses the others; its clients say them again after
`AGAIN_S`, as a user would have to.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from replitree_bench.kit.clients import run_clients
from replitree_bench.kit.report import Measured, quantile
from replitree_bench.kit.systems import System

INSERTS = 100
CLIENTS_MANY = 50
INSERTS_MANY = 1000
INSERTS_MANY_PEER = 100
"""Inserts with many clients: the peer needs a minute for these, because most are refused dozens of times."""

WARM_UPS = 10
QUIET_S = 3.0
"""How long to wait until background work has asked ZooKeeper for all it wants, in seconds."""

AGAIN_S = 0.05
"""How long a client waits before it says a refused insert again."""


class QuorumSystem(System, Protocol):
    """What this workload asks of a system, besides."""

    def insert_with_quorum(self, block: int) -> bool:
        """Insert one block at replica 1 or 2 in turn, acknowledged when both have it.

        Returns
        -------
        False when it was refused because another one is open, and nothing was written.
        """


def measure(
    system: QuorumSystem, number: int, *, inserts: int = INSERTS, many: int = INSERTS_MANY, quiet_s: float = QUIET_S
) -> Measured:
    """Run the workload once.

    Parameters
    ----------
    system
        Ours or the peer.
    number
        Of the round: each has a table of its own.
    inserts, many
        By one client, and by `CLIENTS_MANY`.
    quiet_s
        See `QUIET_S`.
    """
    system.create(f"quorum_{number}")
    system.prepare(0, WARM_UPS + inserts + many)
    for block in range(WARM_UPS):
        _insert(system, block, lambda: None)
    alone = _level(system, 1, WARM_UPS, inserts, quiet_s)
    measured = alone | _level(system, CLIENTS_MANY, WARM_UPS + inserts, many, quiet_s)
    return {"p50_ms": measured.pop("p50_ms_1_clients"), "p99_ms": measured.pop("p99_ms_1_clients")} | measured


def _level(system: QuorumSystem, clients: int, first: int, inserts: int, quiet_s: float) -> Measured:
    """Run one number of clients."""
    lock, repeated = threading.Lock(), [0]

    def count() -> None:
        with lock:
            repeated[0] += 1

    system.wait_equal()
    before = system.coordination_requests()
    load = run_clients(clients, inserts, lambda block: _insert(system, first + block, count))
    system.wait_equal()
    time.sleep(quiet_s)
    measured = {
        f"p50_ms_{clients}_clients": 1e3 * quantile(load.latencies_s, 0.5),
        f"p99_ms_{clients}_clients": 1e3 * quantile(load.latencies_s, 0.99),
        f"inserts_per_s_{clients}_clients": load.per_second,
        f"zk_requests_per_insert_{clients}_clients": (system.coordination_requests() - before) / inserts,
    }
    if clients > 1:
        measured[f"repeated_per_insert_{clients}_clients"] = repeated[0] / inserts
        measured[f"client_cores_{clients}_clients"] = load.client_cores
    return measured


def _insert(system: QuorumSystem, block: int, repeated: Callable[[], None]) -> None:
    """Insert a block, as often as it takes."""
    while not system.insert_with_quorum(block):
        repeated()
        time.sleep(AGAIN_S)
