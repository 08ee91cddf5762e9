"""Small inserts: 400 blocks of 100 rows by 1, 4 and 16 clients, 1,600 by 64, alternating between two replicas.

Keys::

    inserts_per_s_<n>_clients            acknowledged inserts per second
    replica_lag_s                        after the 16 clients: until both replicas show the last row
    lag_p50_ms, lag_p99_ms               one insert at replica 1 at a time: from its acknowledgement until replica 2 shows it
    zk_requests_per_insert               requests of the whole cluster to ZooKeeper, until quiet, over 1, 4 and 16 clients
    zk_requests_per_insert_<n>_clients   the same for one number of clients
    p50_ms_<n>_clients, p99_ms_…         latency of an insert
    client_cores_16_clients              how busy the clients' process was: near 1.0, the clients were the limit
    refused_<n>_clients                  1 where the system refused an insert, because of too many parts; the round then has no
                                         other figure of these clients

Both systems are asked over kept HTTP connections by threads of this process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from replitree.errors import TooManyParts
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


def measure(system: System, number: int, *, inserts: int = INSERTS, quiet_s: float = QUIET_S) -> Measured:
    """Run the workload once.

    Parameters
    ----------
    system
        Ours or the peer.
    number
        Of the round: each has tables of its own.
    inserts
        By each number of clients up to 16; `CLIENTS_MANY` send four times as many.
    quiet_s
        See `QUIET_S`.
    """
    measured: Measured = {}
    system.create(f"small_{number}")
    system.prepare(0, inserts * len(CLIENTS))
    answered = 0
    requests = 0.0
    for i, clients in enumerate(CLIENTS):
        level = _level(system, clients, i * inserts, inserts, quiet_s)
        measured |= level
        if not level[f"refused_{clients}_clients"]:
            answered += inserts
            requests += inserts * level[f"zk_requests_per_insert_{clients}_clients"]
    if answered:
        measured["zk_requests_per_insert"] = requests / answered
    system.create(f"many_{number}")
    system.prepare(0, 4 * inserts)
    measured |= _level(system, CLIENTS_MANY, 0, 4 * inserts, quiet_s)
    system.create(f"lag_{number}")
    system.prepare(0, LAG_INSERTS)
    lags = [1e3 * system.visible_after_s(block) for block in range(LAG_INSERTS)]
    measured["lag_p50_ms"] = quantile(lags, 0.5)
    measured["lag_p99_ms"] = quantile(lags, 0.99)
    return measured


def _level(system: System, clients: int, first: int, inserts: int, quiet_s: float) -> Measured:
    """Run one number of clients; when it ends, the cluster is quiet."""
    before = system.coordination_requests()
    try:
        load = run_clients(clients, inserts, lambda block: system.insert(first + block))
    except TooManyParts:
        # A client that is told to come back later is no measurement: how long it waits would be its own choice.
        system.wait_equal()
        time.sleep(quiet_s)
        return {f"refused_{clients}_clients": 1.0}
    measured = {
        f"refused_{clients}_clients": 0.0,
        f"inserts_per_s_{clients}_clients": load.per_second,
        f"p50_ms_{clients}_clients": 1e3 * quantile(load.latencies_s, 0.5),
        f"p99_ms_{clients}_clients": 1e3 * quantile(load.latencies_s, 0.99),
    }
    lag = system.wait_equal()
    if clients == CLIENTS[-1]:
        measured["replica_lag_s"] = lag
        measured[f"client_cores_{clients}_clients"] = load.client_cores
    time.sleep(quiet_s)
    measured[f"zk_requests_per_insert_{clients}_clients"] = (system.coordination_requests() - before) / inserts
    return measured


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
