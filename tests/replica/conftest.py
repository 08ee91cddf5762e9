from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from replitree.coordination.embedded import LOCALHOST, EmbeddedZooKeeper
from replitree.coordination.port import Coordination
from replitree.coordination.zookeeper import ZooKeeperCoordination
from replitree.protocol.core import effects as fx
from replitree.protocol.core.parts import inserted_part
from tests.replica.inprocess import ROOT, InProcessCluster, rows
from tests.replica.longlife import long_life


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[InProcessCluster]:
    """Two replicas with the table `t`."""
    cluster = InProcessCluster(tmp_path)
    cluster.create_table()
    yield cluster
    cluster.close()


@pytest.fixture
def wanted(cluster: InProcessCluster) -> fx.FetchPart:
    """A part that r1 has and r2 has not."""
    first, second = cluster.nodes
    second.coordination.suspend()
    part = inserted_part("all", first.insert(rows(0))[1]["index"]).name
    return fx.FetchPart(part, first.table().store.manifest(part).content, ("r1",))


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper"), durable=False) as server:
        yield server


@pytest.fixture(params=["memory", pytest.param("zookeeper", marks=pytest.mark.system)])
def connect(request: pytest.FixtureRequest) -> Callable[[], Coordination] | None:
    """Open sessions with a real ZooKeeper that is empty, or None: coordination in memory."""
    if request.param == "memory":
        return None
    server: EmbeddedZooKeeper = request.getfixturevalue("zookeeper")
    url = f"zk://{LOCALHOST}:{server.ports[0]}"
    session = ZooKeeperCoordination(url)
    remove(session, ROOT)
    session.close()
    return lambda: ZooKeeperCoordination(url)


def remove(session: Coordination, path: str) -> None:
    """Delete a node and all below it."""
    for name in session.perform(fx.Children(path)) or ():
        remove(session, f"{path}/{name}")
    if session.perform(fx.Exists(path)):
        session.perform(fx.Commit(fx.Delete(path, fx.ANY_VERSION)))


@pytest.fixture
def long_lived(tmp_path: Path, connect: Callable[[], Coordination] | None) -> Iterator[InProcessCluster]:
    """Two replicas with the table `t`, of which the log keeps 3 to 5 entries and is cleaned when a test says so."""
    cluster = long_life(tmp_path, connect=connect)
    yield cluster
    cluster.close()
