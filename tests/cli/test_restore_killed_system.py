"""`replitree restore` against the worst moments: SIGKILL in the middle of it, and a server that starts at the same time."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from replitree.client.cluster import LocalCluster
from replitree.coordination.zookeeper import ZooKeeperCoordination
from replitree.errors import ReplicaUnavailable
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Children, Exists
from replitree.protocol.core.layout import Replica, TablePlace
from tests.cli.conftest import Run
from tests.cli.test_restore_system import forget, serving
from tests.coordination.waiting import patient_session, place_of
from tests.faults.proxy import Condition, Network
from tests.waiting import wait_for

pytestmark = pytest.mark.system

PARTS = 450
"""Of one row each, in partitions of their own: so many are registered by several commits."""

SLOW = Condition(delay_s=0.05)
PLACE = TablePlace(layout.table_path("/replitree", "events"))
IN_USE = "another process uses the data folder"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Two replicas whose disks have a table that coordination has lost; r1 does not run."""
    with LocalCluster(tmp_path / "data", 2, durable=False) as made:
        table = made.create_table("events", "id bigint not null", order_by="id", partition_by="id")
        table.insert({"id": list(range(PARTS))})
        wait_for(lambda: ids(made, "r1") == ids(made, "r2") == list(range(PARTS)))
        made.stop("r1")
        forget(made, layout.tables("/replitree"))
        wait_for(lambda: "events" not in made.tables())
        yield made


@pytest.fixture
def session(cluster: LocalCluster) -> Iterator[ZooKeeperCoordination]:
    session = patient_session(cluster.access.url)
    yield session
    session.close()


def ids(cluster: LocalCluster, replica: str) -> list[int]:
    return sorted(cluster.table("events").replica(replica).to_arrow()["id"].to_pylist())


def config_of(cluster: LocalCluster) -> Path:
    return cluster.folder / "r1" / "server.toml"


def begin(config: Path) -> subprocess.Popen[str]:
    """Begin a restore in a process of its own."""
    command = [sys.executable, "-m", "replitree.cli.main", "restore", "events", "--config", str(config)]
    return subprocess.Popen(
        [*command, "--yes", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
    )


def end(restoring: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Wait for a restore's end; return its status and its words."""
    out, err = restoring.communicate(timeout=120)
    return restoring.returncode, out, err


def assert_whole(cluster: LocalCluster, run: Run) -> None:
    """Both replicas have every row once, and take more."""
    wait_for(lambda: serving(cluster) == ["r1", "r2"])
    wait_for(lambda: run("doctor", "--dir", str(cluster.folder)).status == 0)
    assert ids(cluster, "r1") == ids(cluster, "r2") == list(range(PARTS))
    cluster.table("events").insert({"id": [PARTS]})
    wait_for(lambda: ids(cluster, "r1") == ids(cluster, "r2") == list(range(PARTS + 1)))


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_a_restore_that_is_killed_again_and_again_is_done_once(
    cluster: LocalCluster, session: ZooKeeperCoordination, run: Run, tmp_path: Path, seed: int
) -> None:
    """Its link to ZooKeeper is slow, so that every commit is a moment at which it can be killed."""
    assert cluster.zookeeper is not None
    chance, network = random.Random(f"{seed}/restore"), Network()
    link = network.link("restore", "zookeeper")
    (there,) = cluster.zookeeper.ports
    slow = tmp_path / "slow.toml"
    slow.write_text(config_of(cluster).read_text().replace(f":{there}/", f":{network.front({'': link}, 0, there)}/"))
    link.impose(SLOW)

    def registered() -> int:
        return len(session.perform(Children(layout.parts(Replica(place_of(session, "events"), "r1")))) or ())

    for least in sorted(chance.sample(range(PARTS), 3)):
        restoring = begin(slow)
        wait_for(lambda least=least: session.perform(Exists(layout.restoring(PLACE))) and registered() >= least)  # type: ignore[misc]
        threading.Event().wait(chance.uniform(0.0, 2 * SLOW.delay_s))
        restoring.kill()
        assert end(restoring)[:2] == (-9, "")
        assert session.perform(Exists(layout.restoring(PLACE))), "it was killed in the middle"
        assert serving(cluster) == []
    network.close()
    status, out, err = end(begin(config_of(cluster)))
    assert status == 0, err
    assert (json.loads(out)["rows"], json.loads(out)["parts"]) == (PARTS, PARTS)
    assert registered() == PARTS
    cluster.start("r1")
    assert_whole(cluster, run)


@pytest.mark.parametrize("seed", [1, *(pytest.param(each, marks=pytest.mark.nightly) for each in (2, 3))])
def test_a_restore_and_a_server_that_start_together_take_turns(cluster: LocalCluster, run: Run, seed: int) -> None:
    chance, refused = random.Random(f"{seed}/race"), list[str]()

    def start() -> None:
        try:
            cluster.start("r1")
        except ReplicaUnavailable as error:
            refused.append(str(error))

    starting = threading.Timer(chance.uniform(0.0, 1.0), start)
    restoring = begin(config_of(cluster))
    starting.start()
    status, _, err = end(restoring)
    starting.join()
    assert all(IN_USE in error for error in refused)
    if status != 0:
        assert IN_USE in err
        assert not refused, "one of them had the folder"
        cluster.stop("r1")
        status, _, err = end(begin(config_of(cluster)))
    assert status == 0, err
    if not {each.name: each.pid for each in cluster.processes}["r1"]:
        cluster.start("r1")
    assert_whole(cluster, run)
