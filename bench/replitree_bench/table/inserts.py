"""Small inserts: 400 blocks of 100 rows by 1, 4, 16 (and 64) clients, alternating between two replicas.

Keys::

    inserts_per_s_<n>_clients            acknowledged inserts per second
    replica_lag_s                        after the 16 clients: until both replicas show the last row
    lag_p50_ms, lag_p99_ms               one insert at replica 1 at a time: from its acknowledgement until replica 2 shows it
    zk_requests_per_insert               requests of the whole cluster to ZooKeeper, until quiet, over 1, 4 and 16 clients
    zk_requests_per_insert_<n>_clients   the same for one number of clients
    p50_ms_<n>_clients, p99_ms_…         latency of an insert
    client_cores_16_clients              how busy the clients' process was: near 1.0, the clients were the limit

Both systems are asked over kept HTTP connections by threads of this process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from replitree_bench.kit.clients import run_clients
from replitree_bench.kit.report import Measured, quantile
from replitree_bench.kit.systems import System

S = TypeVar("S")

INSERTS = 400
CLIENTS = (1, 4, 16)
CLIENTS_MANY = 64
LAG_INSERTS = 50
QUIET_S = 3.0
"""How long to wait until background work has asked ZooKeeper for all it wants, in seconds."""


def measure(
    system: System, number: int, *, many: bool = True, inserts: int = INSERTS, quiet_s: float = QUIET_S
) -> Measured:
    """Run the workload once.

    Parameters
    ----------
    system
        Ours or the peer.
    number
        Of the round: each has tables of its own.
    many
        Also with `CLIENTS_MANY` clients.
    inserts
        By each number of clients.
    quiet_s
        See `QUIET_S`.
    """
    measured: Measured = {}
    system.create(f"small_{number}")
    system.prepare(0, inserts * (len(CLIENTS) + 1))
    total = requests_total = 0
    for clients in CLIENTS:
        requests = _level(system, clients, total, inserts, measured, quiet_s)
        requests_total += requests
        total += inserts
    measured["zk_requests_per_insert"] = requests_total / total
    if many:
        system.create(f"many_{number}")
        system.prepare(0, 4 * inserts)
        _level(system, CLIENTS_MANY, 0, 4 * inserts, measured, quiet_s)
    system.create(f"lag_{number}")
    system.prepare(0, LAG_INSERTS)
    lags = [1e3 * system.visible_after_s(block) for block in range(LAG_INSERTS)]
    measured["lag_p50_ms"] = quantile(lags, 0.5)
    measured["lag_p99_ms"] = quantile(lags, 0.99)
    return measured


def _level(system: System, clients: int, first: int, inserts: int, measured: Measured, quiet_s: float) -> int:
    """Run one number of clients; return the requests to ZooKeeper until quiet."""
    before = system.coordination_requests()
    load = run_clients(clients, inserts, lambda block: system.insert(first + block))
    measured[f"inserts_per_s_{clients}_clients"] = load.per_second
    measured[f"p50_ms_{clients}_clients"] = 1e3 * quantile(load.latencies_s, 0.5)
    measured[f"p99_ms_{clients}_clients"] = 1e3 * quantile(load.latencies_s, 0.99)
    lag = system.wait_equal()
    if clients == CLIENTS[-1]:
        measured["replica_lag_s"] = lag
        measured[f"client_cores_{clients}_clients"] = load.client_cores
    time.sleep(quiet_s)
    requests = system.coordination_requests() - before
    measured[f"zk_requests_per_insert_{clients}_clients"] = requests / inserts
    return requests


def in_turn(
    systems: Sequence[S], rounds: int, run: Callable[[S, int], Measured], say: Callable[[str], None]
) -> list[list[Measured]]:
    """Run every system in every round; who begins changes from round to round.

    Returns
    -------
    list[list[Measured]]
        For each system, what it reached in each round.
    """
    found: list[list[Measured]] = [[] for _ in systems]
    for number in range(rounds):
        order = list(range(len(systems)))
        for i in order if number % 2 == 0 else order[::-1]:
            say(f"round {number + 1} of {rounds}: {type(systems[i]).__name__.lower()}")
            found[i].append(run(systems[i], number))
    return found


def zookeeper_address(url: str) -> str:
    """Return ``host:port`` of the first server of a coordination url.

    >>> zookeeper_address("zk://127.0.0.1:2181/replitree")
    '127.0.0.1:2181'
    """
    return url.removeprefix("zk://").rpartition("@")[2].partition("/")[0].partition(",")[0]


def folder_for(folder: Path, name: str) -> Path:
    """Make a folder for one part of a run."""
    path = folder / name
    path.mkdir(parents=True, exist_ok=True)
    return path
