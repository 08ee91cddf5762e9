"""ZooKeeper comes back with an earlier state, while servers run: they halt, because they know of more than it does."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from replitree.coordination.embedded import LOCALHOST, EmbeddedZooKeeper
from replitree.coordination.zookeeper import ZooKeeperCoordination
from replitree.replica.perform.availability import State
from tests.replica.inprocess import InProcessCluster, rows, wait_for

pytestmark = pytest.mark.system

SESSION_S = 2.0


def test_running_servers_halt_when_zookeeper_was_put_back_to_a_backup(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path / "zookeeper", durable=False) as server:
        data = tmp_path / "zookeeper" / "server-1" / "data" / "version-2"
        url = f"zk://{LOCALHOST}:{server.ports[0]}"
        cluster = InProcessCluster(
            tmp_path, 2, lambda: ZooKeeperCoordination(url, session_timeout_s=SESSION_S, operation_timeout_s=2.0)
        )
        first, second = cluster.nodes
        try:
            cluster.create_table()
            assert first.insert(rows(0))[0] == 200
            cluster.wait_equal(list(range(10)))
            server.stop_server(0)
            shutil.copytree(data, tmp_path / "backup")
            server.start_server(0)
            # Many transactions, so that both servers are ahead of what the first one does after the backup was put back.
            for number in range(1, 16):
                wait_for(
                    lambda number=number: first.insert(rows(10 * number), token=f"later {number}")[0] == 200,  # type: ignore[misc]
                    "it goes on",
                )
            cluster.wait_equal(list(range(160)))
            server.stop_server(0)
            shutil.rmtree(data)
            shutil.copytree(tmp_path / "backup", data)
            server.start_server(0)
            for node in (first, second):
                wait_for(lambda node=node: node.table().availability.state is State.HALTED, f"{node.name} halts")  # type: ignore[misc]
                assert node.request("GET", "/health")[0] == 503
                status, answer = node.insert(rows(200), token="new")
                assert (status, answer["error"]) == (503, "ReadOnly")
                assert "put back to an earlier state" in answer["message"]
                assert node.keys() == list(range(160)), "what it has stays readable"
        finally:
            cluster.close()
