"""Reads at a replica whose ZooKeeper server is behind: never stale, and when they are made so, the checker sees it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from replitree.client.cluster import TOKEN_FILE
from replitree.client.connection import connect
from replitree.errors import Unavailable
from replitree_verify.histories.judge import Verdict, check
from replitree_verify.histories.reading import read_files
from replitree_verify.nemesis.visitors import SCHEMA, rows
from tests.faults import checks
from tests.faults.cluster import FaultCluster
from tests.faults.nemesis import Nemesis
from tests.faults.schedule import UP, Strike
from tests.faults.unsynced import UNSYNCED
from tests.waiting import wait_for

pytestmark = pytest.mark.system

PINNED = {"r1": "zk3", "r2": "zk2", "r3": "zk1"}
READ_S = 1.5


def follow(cluster: FaultCluster, server: str) -> None:
    """Let a server of the ensemble not be the leader."""
    ensemble, number = cluster.ensemble, cluster.servers.index(server)
    if ensemble.leader() == number:
        ensemble.kill_server(number)
        wait_for(lambda: ensemble.leader() not in (None, number), "another server leads")
        ensemble.start_server(number, wait=True)
    wait_for(lambda: ensemble.leader() not in (None, number), "another server leads")


@contextmanager
def lagging(folder: Path, commands: dict[str, tuple[str, ...]]) -> Iterator[FaultCluster]:
    """A cluster in which r3 knows one server only, that is no leader."""
    with FaultCluster(folder, pinned=PINNED, commands=commands) as cluster:
        follow(cluster, PINNED["r3"])
        yield cluster


def read_behind(cluster: FaultCluster) -> tuple[str, Verdict]:
    """Insert while the server of r3 hears nothing of its leader, and read at r3; return what the read said, and the verdict."""
    files = [cluster.folder / f"{name}.jsonl" for name in ("writer", "reader")]
    connections = [
        connect(cluster.ensemble.url, token_file=str(cluster.folder / TOKEN_FILE), record=file) for file in files
    ]
    cluster.connection.create_table("t", SCHEMA, order_by="id", partition_by="shelf", wait_replicas=3)
    writer, reader = (connection.table("t") for connection in connections)
    writer.insert(rows(range(2), 1), replica="r1")
    checks.wait_until_equal(cluster.connection.table("t"), cluster.names)
    nemesis, heard = Nemesis(cluster, say=lambda _: None), "rows"
    with nemesis.strike(Strike("lag-follower", 0, 0, ("r3",), UP)):
        writer.insert(rows(range(2, 4), 1), replica="r1")
        assert reader.replica("r3").to_arrow(["id"], level="sequential", timeout_s=READ_S).num_rows == 2
        try:
            reader.replica("r3").to_arrow(["id"], level="linearizable", timeout_s=READ_S)
        except Unavailable:
            heard = "nothing"
    checks.wait_until_equal(cluster.connection.table("t"), cluster.names)
    assert reader.replica("r3").to_arrow(["id"], level="linearizable").num_rows == 4
    for connection in connections:
        connection.close()
    return heard, check(read_files(files))


def test_a_replica_behind_says_nothing_rather_than_something_old(tmp_path: Path) -> None:
    with lagging(tmp_path, {}) as cluster:
        heard, verdict = read_behind(cluster)
    assert heard == "nothing"
    assert verdict.fine
    assert (verdict.inserts, verdict.reads) == (2, 2)


def test_a_read_without_sync_behind_is_caught_from_the_recorded_history(tmp_path: Path) -> None:
    with lagging(tmp_path, {"r3": UNSYNCED}) as cluster:
        heard, verdict = read_behind(cluster)
    assert heard == "rows"
    assert verdict.counts == {"L1": 1}
    (anomaly,) = verdict.anomalies
    assert (anomaly.name, anomaly.level) == ("stale_read", "linearizable")
    assert [operation.kind for operation in anomaly.operations] == ["insert", "read"]
    assert anomaly.operations[1].replica == "r3"
