"""Reads at a replica whose ZooKeeper server still thinks that it leads: never stale, and with a `Sync` alone they are.

The old leader is stopped, the others elect another, and rows are inserted there.  Then the old one goes on, cut off from the
others, so that nothing but its own clock tells it that it is followed no more: for some seconds it answers as a leader.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from replitree.client.cluster import TOKEN_FILE
from replitree.client.connection import Connection, connect
from replitree.coordination.embedded import LOCALHOST
from replitree.coordination.url import ROOT_DEFAULT, SCHEME
from replitree.errors import Unavailable
from replitree_verify.histories.judge import Verdict, check
from replitree_verify.histories.reading import read_files
from replitree_verify.nemesis.visitors import SCHEMA, rows
from tests.faults import checks
from tests.faults.cluster import FaultCluster
from tests.faults.nemesis import changed
from tests.faults.proxy import HELD
from tests.faults.schedule import BOTH
from tests.faults.sync_alone import SYNC_ALONE
from tests.waiting import wait_for

pytestmark = pytest.mark.system

PINNED = {"r1": "zk2", "r2": "zk1", "r3": "zk3"}
OLD = PINNED["r3"]
SESSION_TIMEOUT_S = 40.0
"""Longer than the others need to elect another leader: r3 stays where it is."""

READ_S = 2.0

TRIES = 5
"""How often a replica that reads wrongly is given the chance to."""


def lead(cluster: FaultCluster, server: str) -> None:
    """Let a server of the ensemble be the leader."""
    ensemble, wanted = cluster.ensemble, cluster.servers.index(server)
    while (leader := ensemble.leader()) != wanted:
        if leader is not None:
            ensemble.kill_server(leader)
            gone = (None, leader)
            wait_for(lambda: ensemble.leader() not in gone, "another server leads")  # noqa: B023 - it is awaited
            ensemble.start_server(leader, wait=True)


@contextmanager
def asleep(cluster: FaultCluster) -> Iterator[None]:
    """Stop the old leader, cut it off, and let the others elect another; in the end let it go on as if nothing had been."""
    ensemble, number = cluster.ensemble, cluster.servers.index(OLD)
    pid = ensemble.pid(number)
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_for(lambda: ensemble.leader() not in (None, number), "another server leads")
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def read_at_the_deposed(cluster: FaultCluster) -> tuple[str, Verdict]:
    """Insert at the new leader, and read at the replica of the old one; return what the read said, and the verdict."""
    files = [cluster.folder / f"{name}.jsonl" for name in ("writer", "reader")]
    with ExitStack() as opened:
        writer, reader = (opened.enter_context(recorded(cluster, file)) for file in files)
        cluster.connection.create_table("t", SCHEMA, order_by="id", partition_by="shelf", wait_replicas=3)
        writer.table("t").insert(rows(range(2), 1), replica="r1")
        checks.wait_until_equal(cluster.connection.table("t"), cluster.names)
        others = [name for name in cluster.servers if name != OLD]
        links = [link for other in others for link in (cluster.link(OLD, other), cluster.link(other, OLD))]
        behind, heard = reader.table("t").replica("r3"), "rows"
        with changed(links, HELD, BOTH):
            with asleep(cluster):
                writer.table("t").insert(rows(range(2, 4), 1), replica="r1")
            try:
                behind.to_arrow(["id"], level="linearizable", timeout_s=READ_S)
            except Unavailable:
                heard = "nothing"
        checks.wait_until_equal(cluster.connection.table("t"), cluster.names)
        assert behind.to_arrow(["id"], level="linearizable").num_rows == 4
    return heard, check(read_files(files))


def recorded(cluster: FaultCluster, file: Path) -> Connection:
    """Connect to the servers that stay awake, and record what is asked and answered.

    A client that happens to try the stopped server several times in a row waits there until its session is over.
    """
    awake = [port for name, port in zip(cluster.servers, cluster.ensemble.ports, strict=True) if name != OLD]
    url = f"{SCHEME}{','.join(f'{LOCALHOST}:{port}' for port in awake)}{ROOT_DEFAULT}"
    return connect(url, token_file=str(cluster.folder / TOKEN_FILE), record=file)


@contextmanager
def led_by_the_server_of_r3(folder: Path, commands: dict[str, tuple[str, ...]]) -> Iterator[FaultCluster]:
    """A cluster in which r3 knows one server only, the leader."""
    settings = {"session_timeout_s": SESSION_TIMEOUT_S}
    with FaultCluster(folder, settings=settings, pinned=PINNED, commands=commands) as cluster:
        lead(cluster, OLD)
        yield cluster


def test_a_replica_at_a_deposed_leader_says_nothing_rather_than_something_old(tmp_path: Path) -> None:
    with led_by_the_server_of_r3(tmp_path, {}) as cluster:
        heard, verdict = read_at_the_deposed(cluster)
    assert heard == "nothing"
    assert verdict.fine
    assert (verdict.inserts, verdict.reads) == (2, 1)


@pytest.mark.nightly
def test_a_sync_at_a_deposed_leader_is_caught_from_the_recorded_history(tmp_path: Path) -> None:
    """A try needs an election that is over before r3's own connection to the old leader is: a busy machine may not grant it."""
    for number in range(TRIES):
        with led_by_the_server_of_r3(tmp_path / str(number), {"r3": SYNC_ALONE}) as cluster:
            heard, verdict = read_at_the_deposed(cluster)
        if heard == "rows":
            assert verdict.counts == {"L1": 1}
            (anomaly,) = verdict.anomalies
            assert (anomaly.name, anomaly.level) == ("stale_read", "linearizable")
            return
        assert verdict.fine
    pytest.fail(f"the replica answered in none of {TRIES} tries")
