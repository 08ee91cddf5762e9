"""A cluster in memory: coordination without a server, and replicas that are scripted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from replitree.client.connection import Connection
from replitree.client.transport.access import Access
from replitree.client.transport.catalog import Catalog, Session
from replitree.coordination.memory import MemoryCoordination, SharedTree
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import BlockValue, GetEntry, encode_block, encode_entry
from replitree.protocol.core.layout import Replica
from replitree.protocol.membership.table import join_table
from replitree.storage.schema.definition import define_table
from tests.client.fake_replica import FakeReplica

TOKEN = "a token of the tests"


class FakeCluster:
    """Coordination in memory, scripted replicas, and connections to both."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tree = SharedTree()
        self.session = Session(lambda: MemoryCoordination(self.tree))
        self.catalog = Catalog(self.session, "/replitree")
        self.replicas: dict[str, FakeReplica] = {}
        self._connections: list[Connection] = []

    def connect(self) -> Connection:
        connection = Connection(Access("zk://nowhere:1/replitree", TOKEN), lambda: MemoryCoordination(self.tree))
        self._connections.append(connection)
        return connection

    def create(
        self,
        name: str,
        schema: str,
        order_by: str | tuple[str, ...] = (),
        partition_by: str | tuple[str, ...] = (),
        policy: str = "plain",
        storage: str = "local",
    ) -> None:
        definition = define_table(
            name, schema, order_by=order_by, partition_by=partition_by, policy=policy, storage=storage
        )
        self.catalog.create(definition)

    def add_replica(self, table: str, name: str, machine: str | None = None, *, active: bool = True) -> FakeReplica:
        if name not in self.replicas:
            self.replicas[name] = FakeReplica(name, self.folder / name / "uploads", machine)
        fake = self.replicas[name]
        place = Replica(self.catalog.place(table), name)
        self.session.run(join_table(place))
        node = self.session.perform(fx.Get(layout.host(place)))
        self.commit(fx.Set(layout.host(place), fake.identity, node.version))
        if active:
            self.commit(fx.Create(layout.is_active(place), fake.identity, ephemeral=True))
        return fake

    def insert_in_log(self, table: str, block: fx.BlockId) -> None:
        """Do to coordination what a replica's commit of one insert does."""
        place = self.catalog.place(table)
        staging = fx.StagingId("s0.0")
        self.commit(
            fx.Create(layout.block(place, block), encode_block(BlockValue(staging, 0))),
            fx.Create(
                layout.log_create(place),
                encode_entry(GetEntry("r1", staging, (fx.StagedPart("all", 1, 1, "0" * 32),), (block,))),
                sequential=True,
            ),
        )

    def commit(self, *operations: fx.Create | fx.Set | fx.Delete) -> None:
        outcome = self.session.perform(fx.Commit(*operations))
        assert isinstance(outcome, fx.Applied), outcome

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        self.session.close()
        for replica in self.replicas.values():
            replica.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FakeCluster]:
    made = FakeCluster(tmp_path)
    yield made
    made.close()
