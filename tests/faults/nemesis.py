"""Faults on real processes, drawn from a seed: what is hurt, when, and how it is healed again."""

from __future__ import annotations

import http.client
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from replitree.client.cluster import LocalCluster
from replitree.client.table import Table

MOMENT_S_MAX = 0.4
"""A fault strikes at a random moment of this length after the last one was healed."""

LONG_PAUSE_S = 25.0
"""Longer than a session lives without its process."""

KINDS = ("kill", "kill", "kill", "kill-two", "pause", "zookeeper", "corrupt")
"""The usual mixture.  `long-pause` is there too, when it is asked for."""


@dataclass(slots=True)
class Nemesis:
    """Hurts a cluster, one fault after the other.

    Attributes
    ----------
    pause_s_max
        Longest pause of a process (SIGSTOP) or of ZooKeeper, in seconds.
    """

    cluster: LocalCluster
    table: Table
    random: random.Random
    kinds: tuple[str, ...] = KINDS
    pause_s_max: float = 3.0

    def run(self, rounds: int, over: Callable[[], bool]) -> Counter[str]:
        """Go on for so many rounds or until `over`; return how often each fault struck."""
        struck: Counter[str] = Counter()
        for _ in range(rounds):
            if over():
                break
            self._moment(MOMENT_S_MAX)
            kind = self.random.choice(self.kinds)
            getattr(self, "_" + kind.replace("-", "_"))()
            struck[kind] += 1
        return struck

    def _moment(self, longest_s: float) -> None:
        threading.Event().wait(self.random.uniform(0, longest_s))

    def _kill(self) -> None:
        name = self.random.choice(self.cluster.names)
        self.cluster.kill(name)
        self._moment(MOMENT_S_MAX)
        self.cluster.start(name)

    def _kill_two(self) -> None:
        names = self.random.sample(self.cluster.names, min(2, len(self.cluster.names)))
        for name in names:
            self.cluster.kill(name)
            self._moment(0.05)
        for name in names:
            self.cluster.start(name)

    def _pause(self) -> None:
        self._stop_for(self.random.uniform(0, self.pause_s_max))

    def _long_pause(self) -> None:
        self._stop_for(LONG_PAUSE_S)

    def _stop_for(self, seconds: float) -> None:
        pid = self.random.choice([entry.pid for entry in self.cluster.processes])
        os.kill(pid, signal.SIGSTOP)
        try:
            threading.Event().wait(seconds)
        finally:
            os.kill(pid, signal.SIGCONT)

    def _zookeeper(self) -> None:
        zookeeper = self.cluster.zookeeper
        assert zookeeper is not None
        zookeeper.kill_server(0)
        self._moment(self.pause_s_max)
        zookeeper.start_server(0)

    def _corrupt(self) -> None:
        """Flip a byte of one part on one replica; its own check or a reader's finds it."""
        entry = self.random.choice(self.cluster.processes)
        files = sorted(self.cluster.folder.glob(f"{entry.name}/data/tables/*/parts/*/data-0.parquet"))
        if not files:
            return
        file = self.random.choice(files)
        content = bytearray(file.read_bytes())
        content[self.random.randrange(len(content))] ^= 0xFF
        file.write_bytes(bytes(content))
        address = next(replica.address for replica in self.table.replicas() if replica.name == entry.name)
        connection = http.client.HTTPConnection(address, timeout=30)
        try:
            path = f"/v1/tables/{self.table.name}/parts/{file.parent.name}/check"
            connection.request("POST", path, headers={"Authorization": f"Bearer {self.cluster.access.token}"})
            connection.getresponse().read()
        finally:
            connection.close()
