"""Buckets move between real processes, under inserts and reads; the process that carries the moves on is killed."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import replitree
from replitree.client.cluster import LocalCluster
from replitree.client.connection import Connection
from replitree.client.table import Table
from tests.waiting import wait_for

pytestmark = pytest.mark.system

ROWS = 40
BUCKETS = 64


class Traffic:
    """A client that inserts and one that reads, until it is told to stop; `inserted` are the keys that were acknowledged."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stopped = threading.Event()
        self.inserted = 0
        self.reads = 0
        self.problems = list[str]()
        self._threads = [threading.Thread(target=self._guarded, args=(each,)) for each in (self._insert, self._read)]

    @contextmanager
    def running(self) -> Iterator[Traffic]:
        for each in self._threads:
            each.start()
        try:
            yield self
        finally:
            self._stopped.set()
            for each in self._threads:
                each.join()
        assert self.problems == []

    def _guarded(self, work: Callable[[Table], None]) -> None:
        try:
            with replitree.connect(self._folder) as connection:
                while not self._stopped.is_set():
                    work(connection.table("d"))
        except Exception as error:  # noqa: BLE001 - whatever goes wrong is told by the test
            self.problems.append(repr(error))
            self._stopped.set()

    def _insert(self, table: Table) -> None:
        keys = list(range(self.inserted, self.inserted + ROWS))
        table.insert({"k": keys, "p": [key % 3 for key in keys]}, token=f"t{self.inserted}", timeout_s=60.0)
        self.inserted += ROWS

    def _read(self, table: Table) -> None:
        due = self.inserted
        keys = table.to_arrow(["k"], level="linearizable", timeout_s=60.0)["k"].to_pylist()
        if len(set(keys)) != len(keys):
            self.problems.append(f"a read shows {len(keys) - len(set(keys))} rows twice")
        if not set(range(due)) <= set(keys):
            self.problems.append(f"a read leaves out {sorted(set(range(due)) - set(keys))[:5]} of {due}")
        some = random.Random(due).randrange(max(due, 1))
        if due and table.to_arrow(["k"], f"k = {some}").num_rows != 1:
            self.problems.append(f"a read of key {some} alone does not find it once")
        self.reads += 1


def create(connection: Connection, cluster: LocalCluster) -> None:
    cluster.create_table(
        "d",
        "k bigint not null, p int not null",
        order_by="k",
        partition_by="p",
        shard_by="k",
        shards=2,
        buckets=BUCKETS,
    )
    assert connection.tables() == ("d",)


def begin_in_a_process(folder: Path, buckets: str, target: int) -> subprocess.Popen[bytes]:
    """Move buckets by a command in a process of its own."""
    command = ["shard", "move", "d", "--buckets", buckets, "--to", str(target), "--dir", str(folder)]
    return subprocess.Popen(
        [sys.executable, "-m", "replitree.cli.main", *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def test_servers_move_a_quarter_of_the_buckets_after_the_process_that_began_was_killed(tmp_path: Path) -> None:
    settings = {"carry_moves_after_s": 1.0}
    with (
        LocalCluster(tmp_path / "cluster", 2, settings=settings) as cluster,
        replitree.connect(cluster.folder) as connection,
    ):
        create(connection, cluster)
        with Traffic(cluster.folder).running() as traffic:
            wait_for(lambda: traffic.inserted >= 400 or traffic.problems, "there are rows")
            begun = begin_in_a_process(cluster.folder, "0-15", 1)
            wait_for(lambda: connection.shards("d").status().moves or traffic.problems, "the move has begun", 60.0)
            begun.kill()
            begun.wait()
            reads = traffic.reads
            wait_for(lambda: traffic.reads > reads + 1 or traffic.problems, "reads go on", 60.0)
            wait_for(lambda: not connection.status().moving or traffic.problems, "a server has moved them", 120.0)
            reads = traffic.reads
            wait_for(lambda: traffic.reads > reads + 1 or traffic.problems, "reads go on", 60.0)
        status = connection.shards("d").status()
        assert (status.moves, status.owned) == ((), {0: 16, 1: 48})
        found = connection.table("d").to_arrow(["k"], level="linearizable")["k"].to_pylist()
        assert sorted(found) == list(range(traffic.inserted))


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(3))
def test_buckets_move_to_and_fro_while_processes_and_replicas_are_killed(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with LocalCluster(tmp_path / "cluster", 3) as cluster, replitree.connect(cluster.folder) as connection:
        create(connection, cluster)
        with Traffic(cluster.folder).running() as traffic:
            for turn in range(8):
                begun = begin_in_a_process(cluster.folder, "0-31", 1 - turn % 2)
                end = time.monotonic() + chance.uniform(0.5, 4.0)
                wait_for(lambda end=end: time.monotonic() > end, "it is killed at any moment")  # type: ignore[misc]
                begun.kill()
                begun.wait()
                if turn % 3 == 2:
                    name = chance.choice(["r1", "r2", "r3"])
                    # It comes back at once: rows that only it has, no other replica can show.
                    cluster.kill(name)
                    cluster.start(name)
                connection.shards("d").carry()
                assert traffic.problems == []
        found = connection.table("d").to_arrow(["k"], level="linearizable")["k"].to_pylist()
        assert sorted(found) == list(range(traffic.inserted))
