"""A table whose object store can't be used by the servers is not created."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from replitree.client.connection import Connection
from replitree.client.transport.access import Access
from replitree.coordination.memory import MemoryCoordination
from replitree.errors import NotAuthorized, ReplicaUnavailable, StoreError
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Create
from tests.client.conftest import FakeCluster
from tests.client.fake_replica import DROP_UNSEEN, Failure, FakeReplica
from tests.replica.inprocess import TOKEN, InProcessCluster

NOWHERE = "s3://nowhere?endpoint=http://127.0.0.1:1"


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Connection]:
    cluster = InProcessCluster(tmp_path, 2)
    made = Connection(Access("zk://nowhere:1/replitree", TOKEN), lambda: MemoryCoordination(cluster.shared))
    yield made
    made.close()
    cluster.close()


def test_store_without_credentials_leaves_no_table(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(NotAuthorized, match=r"replica r1 .*environment of that replica's server.*nothing was created"):
        connection.create_table("t", "k bigint", storage=NOWHERE)
    with pytest.raises(NotAuthorized, match="nothing was created"):
        connection.create_table("t", "k bigint", storage=f"tiered({NOWHERE}, older=7d)")
    assert connection.tables() == ()
    connection.create_table("t", "k bigint")  # the name is free
    with pytest.raises(NotAuthorized, match=r"replica r\d can't use the object store: .*environment of that replica"):
        connection.table("t").set_storage(NOWHERE)


def test_store_that_servers_can_not_write_leaves_no_table(connection: Connection, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StoreError, match=r"replica r1 can't use the object store of 't': .*; nothing was created"):
        connection.create_table("t", "k bigint", storage=f"file://{tmp_path}/file/x")
    assert connection.tables() == ()


def test_store_that_servers_can_use_is_used(connection: Connection, tmp_path: Path) -> None:
    table = connection.create_table("t", "k bigint", storage=f"file://{tmp_path}/objects", wait_replicas=2)
    assert table.insert({"k": [1]}).rows == 1


def announce(cluster: FakeCluster, name: str) -> FakeReplica:
    """Add a server that coordination knows."""
    if "other" not in cluster.catalog.names():
        cluster.create("other", "k bigint")
        cluster.commit(Create(layout.servers("/replitree"), b""))
    replica = cluster.add_replica("other", name)
    cluster.commit(Create(f"{layout.servers('/replitree')}/{name}", replica.identity))
    return replica


@pytest.mark.parametrize("answer", [DROP_UNSEEN, Failure(503, "ReplicaUnavailable")])
def test_server_that_does_not_answer_decides_nothing_beside_one_that_does(
    cluster: FakeCluster, answer: str | Failure
) -> None:
    silent, sound = announce(cluster, "r1"), announce(cluster, "r2")
    silent.script.append(answer)
    sound.answers["POST "] = {"replica": "r2", "hosts": True}
    with pytest.raises(ReplicaUnavailable, match="was created, but 0 of 1 replicas"):
        cluster.connect().create_table("t", "k bigint", storage=NOWHERE, timeout_s=0.0)
    assert "t" in cluster.catalog.names()
    assert silent.routes() == sound.routes() == ["POST check"]


def test_nothing_is_created_when_no_server_answers(cluster: FakeCluster) -> None:
    announce(cluster, "r1").script.append(DROP_UNSEEN)
    with pytest.raises(ReplicaUnavailable, match=r"no replica could say .* nothing was created"):
        cluster.connect().create_table("t", "k bigint", storage=NOWHERE, timeout_s=0.0)
    assert cluster.catalog.names() == ("other",)


def test_server_of_a_version_without_the_check_is_believed(cluster: FakeCluster) -> None:
    announce(cluster, "r1").script.append(Failure(404, "TableNotFound"))
    with pytest.raises(ReplicaUnavailable, match="was created"):
        cluster.connect().create_table("t", "k bigint", storage=NOWHERE, timeout_s=0.0)


def test_table_on_local_disks_asks_no_server(cluster: FakeCluster) -> None:
    cluster.create("other", "k bigint")
    replica = cluster.add_replica("other", "r1")
    with pytest.raises(ReplicaUnavailable):
        cluster.connect().create_table("t", "k bigint", timeout_s=0.0)
    assert replica.routes() == []
