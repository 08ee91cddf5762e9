"""Object stores by name: published by servers, said by clients, replaced by their URLs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from replitree.client.connection import Connection
from replitree.client.transport.access import Access
from replitree.coordination.memory import MemoryCoordination, SharedTree
from replitree.errors import BadInput, ReplicaUnavailable
from replitree.replica.kit.config import load_config
from replitree.replica.kit.named_stores import publish_stores
from tests.replica.inprocess import TOKEN as CLUSTER_TOKEN
from tests.replica.inprocess import InProcessCluster

ROOT, TOKEN = "/replitree", "a-token-of-some-length"
STORES = {"cold": "file:///tmp/cold", "lake": "s3://lake/tables"}


@pytest.fixture
def tree() -> SharedTree:
    return SharedTree()


@pytest.fixture
def connection(tree: SharedTree) -> Iterator[Connection]:
    made = Connection(Access(f"zk://nowhere:1{ROOT}", TOKEN), lambda: MemoryCoordination(tree))
    yield made
    made.close()


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("cold", "file:///tmp/cold"),
        ("tiered(lake, older=7d)", "tiered(s3://lake/tables, older=7d)"),
        ("s3://other/x", "s3://other/x"),
        ("local", "local"),
    ],
)
def test_a_table_gets_the_url_of_the_store_that_was_named(
    tree: SharedTree, connection: Connection, said: str, meant: str
) -> None:
    publish_stores(MemoryCoordination(tree), ROOT, STORES)
    with pytest.raises(ReplicaUnavailable):  # nobody serves here
        connection.create_table("t", "k bigint not null", storage=said, timeout_s=0.0, wait_replicas=1)
    assert connection.catalog.definition("t").storage == meant


def test_a_name_that_nobody_knows_is_told_with_those_that_are(tree: SharedTree, connection: Connection) -> None:
    with pytest.raises(BadInput, match=r"no store called .warm. \(it has: none\)"):
        connection.create_table("t", "k bigint not null", storage="warm")
    publish_stores(MemoryCoordination(tree), ROOT, STORES)
    with pytest.raises(BadInput, match="it has: cold, lake"):
        connection.create_table("t", "k bigint not null", storage="warm")
    assert connection.tables() == ()


def test_two_servers_mean_the_same_store_by_a_name(tree: SharedTree) -> None:
    publish_stores(MemoryCoordination(tree), ROOT, STORES)
    publish_stores(MemoryCoordination(tree), ROOT, STORES)
    with pytest.raises(
        BadInput, match="'cold' is file:///elsewhere in this server's configuration, and file:///tmp/cold"
    ):
        publish_stores(MemoryCoordination(tree), ROOT, {"cold": "file:///elsewhere"})


def test_a_server_makes_its_stores_known_and_tables_lie_there(tmp_path: Path) -> None:
    cluster = InProcessCluster(tmp_path, 1, stores={"cold": f"file://{tmp_path}/objects"})
    tree = cluster.shared
    connection = Connection(Access("zk://nowhere:1/replitree", CLUSTER_TOKEN), lambda: MemoryCoordination(tree))
    try:
        table = connection.create_table("t", "k bigint not null", storage="cold", wait_replicas=1)
        table.insert(pa.table({"k": [1, 2, 3]}, schema=pa.schema([pa.field("k", pa.int64(), nullable=False)])))
        assert len(list((tmp_path / "objects" / "tables" / table.definition.table_id).rglob("*.parquet"))) == 1
    finally:
        connection.close()
        cluster.close()


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('Cold = "file:///x"', "'Cold' is no name"),
        ('local = "file:///x"', "'local' is no name"),
        ('cold = "memory:///"', "can't share"),
        ('cold = "s3://me:secret@lake/x"', "has credentials"),
    ],
)
def test_a_wrong_store_in_a_configuration_is_refused(tmp_path: Path, line: str, problem: str) -> None:
    file = tmp_path / "r1.toml"
    head = 'name = "r1"\nzookeeper = "zk://h:1/r"\ndata = "/d"\ntoken_file = "/t"\n'
    file.write_text(f'{head}[stores]\ncold2 = "file:///cold"\n')
    assert load_config(file).stores == {"cold2": "file:///cold"}
    file.write_text(f"{head}[stores]\n{line}\n")
    with pytest.raises(BadInput, match=problem) as caught:
        load_config(file)
    assert "secret" not in str(caught.value)
