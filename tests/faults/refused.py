"""One client whose inserts are refused, beside three whose inserts are good: does it cost them anything?

``python -m tests.faults.refused [--refused 100] [--rounds 5]``

Three replicas; three clients insert single rows, each at a replica of its own, while a fourth sends inserts of too many
partitions to all of them in turn.  Rounds with and without the fourth alternate, so that what else the machine does meets both.
It prints the times of the good inserts and how often the replicas activated meanwhile, and ends with 1 when the 99th percentile
with the refused inserts is above 1.2 times the one without, or when a replica activated.
"""

from __future__ import annotations

import argparse
import http.client
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from replitree.client.cluster import LocalCluster
from replitree.client.table import Table
from tests.faults.arguments import say
from tests.replica.inprocess import as_stream

RATIO_MAX = 1.2
NAMES = ("r1", "r2", "r3")
INSERTS = 150
"""Good inserts of each client in a round."""


class Rounds:
    """A cluster and the clients of both kinds."""

    def __init__(self, cluster: LocalCluster, refused: int) -> None:
        self._cluster = cluster
        self._refused = refused
        self._table: Table = cluster.create_table(
            "t", "k bigint not null, p int not null", order_by="k", partition_by="p"
        )
        self._addresses = {replica.name: replica.address for replica in cluster.replicas()}
        self._token = {"Authorization": f"Bearer {cluster.access.token}"}
        self._next = 0

    def activations(self) -> float:
        """Return how often the table was activated by all replicas so far."""
        found = 0.0
        for address in self._addresses.values():
            connection = http.client.HTTPConnection(address, timeout=10)
            connection.request("GET", "/metrics", headers=self._token)
            text = connection.getresponse().read().decode()
            connection.close()
            lines = [line for line in text.splitlines() if line.startswith("replitree_activations_total{")]
            found += sum(float(line.rpartition(" ")[2]) for line in lines)
        return found

    def run(self, *, with_refused: bool) -> list[float]:
        """Do one round; return the seconds that each good insert took."""
        times: list[float] = []
        threads = [threading.Thread(target=self._insert, args=(name, times, self._first())) for name in NAMES]
        if with_refused:
            threads.append(threading.Thread(target=self._insert_wrong))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(times) == INSERTS * len(NAMES), "every good insert was taken"
        return times

    def _first(self) -> int:
        self._next += INSERTS
        return self._next

    def _insert(self, name: str, times: list[float], first: int) -> None:
        for key in range(first, first + INSERTS):
            began = time.perf_counter()
            self._table.insert({"k": [key], "p": [key % 3]}, replica=name)
            times.append(time.perf_counter() - began)

    def _insert_wrong(self) -> None:
        """Send what the replicas have to refuse, by HTTP: no client is in between that might refuse it first."""
        wrong = as_stream(pa.table({"k": pa.array(range(1001), pa.int64()), "p": pa.array(range(1001), pa.int32())}))
        headers = {"Authorization": f"Bearer {self._cluster.access.token}"}
        connections = [http.client.HTTPConnection(self._addresses[name], timeout=60) for name in NAMES]
        for number in range(self._refused):
            connection = connections[number % len(NAMES)]
            connection.request("POST", "/v1/tables/t/insert", wrong, headers)
            answer = connection.getresponse()
            assert (answer.status, b"1001 partitions" in answer.read()) == (400, True)
        for connection in connections:
            connection.close()


def percentile(times: Sequence[float], share: float) -> float:
    """Return a percentile, in milliseconds."""
    return sorted(times)[min(len(times) - 1, int(len(times) * share))] * 1000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--refused", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, LocalCluster(Path(folder) / "data", len(NAMES)) as cluster:
        rounds = Rounds(cluster, arguments.refused)
        rounds.run(with_refused=True)  # to warm up
        before = rounds.activations()
        without, beside = list[float](), list[float]()
        for _ in range(arguments.rounds):
            without += rounds.run(with_refused=False)
            beside += rounds.run(with_refused=True)
        activated = rounds.activations() - before
    for what, times in (("alone", without), ("beside", beside)):
        say(
            f"{what:7} p50 {percentile(times, 0.5):6.1f} ms  p99 {percentile(times, 0.99):6.1f} ms  inserts {len(times)}"
        )
    ratio = percentile(beside, 0.99) / percentile(without, 0.99)
    say(f"p99 beside / alone {ratio:.2f}  activations {activated:g}")
    return 1 if ratio > RATIO_MAX or activated else 0


if __name__ == "__main__":
    sys.exit(main())
