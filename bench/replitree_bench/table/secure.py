"""Inserts and a bulk load by TLS, in turn with the same in clear text.

Two clusters of two replicas and one ZooKeeper each run side by side; one speaks TLS everywhere (clients, replicas, ZooKeeper),
with certificates that are issued for the run.  One of them is idle while the other is measured.  The rows of the bulk load
hardly compress, and go to the replica as from another machine: a client on the replica's machine would write its files where
they lie.

Keys::

    connect_ms                  one new connection, with a request that needs no token
    inserts_per_s_<n>_clients   acknowledged inserts of 100 rows per second, on connections that stay open
    bulk_rows_per_s             one insert of `ROWS` rows from Arrow, until it is acknowledged
    copied_rows_per_s           the same, until the second replica has it, too
    cpu_ms_<n>_clients          CPU time of an insert, of client, replicas and ZooKeeper together, until both replicas have it
    cpu_s_bulk                  the same of the bulk load
    paired_<key>                the ratio of both runs of a round: the median over the rounds, which a machine that is busier in
                                some rounds than in others distorts little
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing
from pathlib import Path
from typing import TypeAlias
from unittest import mock

from typing_extensions import override

from replitree.client import LocalCluster
from replitree.client.insert import upload
from replitree.client.transport.http import HttpClient
from replitree.errors import ReplitreeError
from replitree_bench.kit.clients import cpu_s
from replitree_bench.kit.report import Measured, Report, medians
from replitree_bench.kit.systems import Ours
from replitree_bench.table.copying import random_rows
from replitree_bench.table.inserts import in_turn

INSERTS = {1: 50, 16: 200, 64: 400}
"""Inserts of a round, by the number of clients that send them."""

ROWS = 1_000_000
CONNECTIONS = 20
"""New connections of a round."""

CONNECT_S_MAX = 30.0


NOTES = {"machine": "clients and both clusters share the cores; one cluster is idle while the other is measured"}

Start: TypeAlias = "Callable[[Mapping[str, object] | None], AbstractContextManager[tuple[LocalCluster, Path]]]"


class Remote(Ours):
    """A client as on a machine of its own.

    Parameters
    ----------
    cluster
        The processes of which CPU time is counted, and who is connected to them.
    """

    def __init__(self, cluster: LocalCluster) -> None:
        super().__init__(cluster)
        self._cluster = cluster
        self._rows = random_rows(0, ROWS)
        # The threads have the connections.
        self._clients = {clients: ThreadPoolExecutor(clients) for clients in INSERTS}

    def insert_all(self, clients: int, first: int, inserts: int) -> float:
        """Insert blocks by so many clients; return the seconds."""
        begin = time.perf_counter()
        list(self._clients[clients].map(self.insert, range(first, first + inserts)))
        return time.perf_counter() - begin

    def connect_s(self) -> float:
        """Return the seconds of a new connection with one request, of several one after the other."""
        address = self._tables[0].replicas()[0].address
        begin = time.perf_counter()
        for _ in range(CONNECTIONS):
            with closing(HttpClient("", self._cluster.access.tls)) as client:
                client.request(address, "GET", "/health", timeout_s=CONNECT_S_MAX)
        return (time.perf_counter() - begin) / CONNECTIONS

    @override
    def bulk(self, rows: int) -> float:
        """Insert the first of the rows; return the seconds until they are acknowledged."""
        data = self._rows.slice(0, rows)
        with mock.patch.object(upload, "this_machine", return_value="another machine"):
            begin = time.perf_counter()
            self._inserted(self._tables[0].insert(data))
            return time.perf_counter() - begin

    def cpu_s(self) -> float:
        """Return the seconds of CPU time that this process, the replicas and ZooKeeper have used."""
        assert self._cluster.zookeeper is not None, "the cluster has one of its own"
        zookeeper = self._cluster.zookeeper.pid(0)
        assert zookeeper is not None, "it runs"
        return sum(map(cpu_s, (os.getpid(), zookeeper, *(each.pid for each in self._cluster.processes))))


def measure(system: Remote, number: int, *, rows: int = ROWS) -> Measured:
    """Run the workload once.

    Parameters
    ----------
    system
        One of the two clusters.
    number
        Of the round: each has tables of its own.
    rows
        Of the bulk load.
    """
    system.create(f"small_{number}")
    measured: Measured = {"connect_ms": 1e3 * system.connect_s()}
    first = 0
    for clients, inserts in INSERTS.items():
        system.prepare(first, inserts)
        before = system.cpu_s()
        measured[f"inserts_per_s_{clients}_clients"] = inserts / system.insert_all(clients, first, inserts)
        system.wait_equal()
        measured[f"cpu_ms_{clients}_clients"] = 1e3 * (system.cpu_s() - before) / inserts
        first += inserts
    system.create(f"bulk_{number}")
    before = system.cpu_s()
    seconds = system.bulk(rows)
    copied_s = seconds + system.wait_equal()
    measured["cpu_s_bulk"] = system.cpu_s() - before
    return measured | {"bulk_rows_per_s": rows / seconds, "copied_rows_per_s": rows / copied_s}


def tls_report(start: Start, rounds: int, say: Callable[[str], None]) -> Report:
    """Measure two clusters in turn.

    Parameters
    ----------
    start
        Starts a cluster with these settings, and gives it and a folder.
    rounds
        How many; paired figures need several.
    say
        Tells people how far it is.
    """
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="replitree-bench-")))
        systems = [Remote(stack.enter_context(start(each))[0]) for each in (tls_settings(place), None)]
        for system in systems:
            # The first connections, imports and tables of a cluster are no part of a round.
            measure(system, rounds, rows=100_000)
        found = in_turn(systems, rounds, measure, say)
    ours = paired(*found) | medians(found[0])
    return Report("tls", ours, medians(found[1]), rounds, "the same cluster in clear text", NOTES)


def paired(secure: Sequence[Measured], plain: Sequence[Measured]) -> Measured:
    """Return the median over the rounds of the ratio of each figure.

    >>> paired([{"x": 1.0}, {"x": 9.0}], [{"x": 2.0}, {"x": 10.0}])
    {'paired_x': 0.7}
    """
    ratios = {
        key: [ours[key] / theirs[key] for ours, theirs in zip(secure, plain, strict=True) if theirs[key]]
        for key in plain[0]
    }
    return {f"paired_{key}": round(statistics.median(each), 3) for key, each in ratios.items()}


def tls_settings(folder: Path) -> dict[str, object]:
    """Write an authority, and a certificate for this machine, into a folder; return the settings of servers that use them.

    Raises
    ------
    ReplitreeError
        trustme, which makes them, is not installed.
    """
    try:
        import trustme
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
        from cryptography.hazmat.primitives.serialization import load_pem_private_key as load_key
    except ModuleNotFoundError as error:
        raise ReplitreeError("trustme is not installed, which makes the certificates: pip install trustme") from error
    authority = trustme.CA()
    made = authority.issue_cert("127.0.0.1")
    # Java reads keys as PKCS#8 only.
    key = load_key(made.private_key_pem.bytes(), None).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    chain = b"".join(each.bytes() for each in made.cert_chain_pems)
    written = {"tls_ca": authority.cert_pem.bytes(), "tls_certificate": chain, "tls_key": key}
    for name, data in written.items():
        (folder / name).touch(0o600)
        (folder / name).write_bytes(data)
    return {name: str(folder / name) for name in written}


__all__ = ["Remote", "measure", "paired", "tls_report", "tls_settings"]
