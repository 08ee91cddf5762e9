"""Tables on an object store, with real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from replitree.client import Table
from replitree.client.cluster import LocalCluster
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica
from replitree.storage.objects import ObjectStore, open_store
from tests.client.filling import ROWS, Filling, numbers
from tests.coordination.waiting import patient_session, place_of
from tests.shared.stores import BUCKET, FAULTY, FOLDER, credentials, on
from tests.waiting import wait_for

pytestmark = pytest.mark.system

SETTINGS = {"old_parts_lifetime_s": 0.5, "shared_cache_bytes": 0, "session_timeout_s": 6.0, "fetch_wait_s": 5.0}
ROUNDS = 2
"""Kills with SIGKILL."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with credentials(), LocalCluster(folder, 3, durable=False, settings=SETTINGS) as cluster:
        yield cluster


def keys_at(table: Table, replica: str) -> list[int]:
    found: list[int] = table.replica(replica).to_arrow(level="linearizable")["k"].to_pylist()
    return sorted(found)


class Shares:
    """What coordination and the store have of one table."""

    def __init__(self, cluster: LocalCluster, table: Table, store: ObjectStore) -> None:
        self._session = patient_session(cluster.access.url)
        self._place = place_of(self._session, table.name)
        self._store, self._prefix = store, f"tables/{table.definition.table_id}"
        self._names = cluster.names

    def children(self, path: str) -> tuple[str, ...]:
        return self._session.perform(fx.Children(path)) or ()

    def stored(self) -> set[str]:
        """The shares that have objects."""
        return {found.key.split("/")[2] for found in self._store.list(self._prefix)}

    def unsettled(self) -> list[str]:
        """What keeps objects from being exactly what registered parts own: something begun, left over, or missing."""
        place, shares = self._place, set(self.children(layout.shares(self._place)))
        stored = self.stored()
        marks = [mark for share in shares for mark in self.children(layout.share(place, share))]
        owners = [(mark.split("~")[0], mark.split("~")[2]) for mark in marks]
        parts = {name: self.children(f"{layout.replicas(place)}/{name}/parts") for name in self._names}
        return [
            *(f"{share} is being written" for share in self.children(layout.all_writing(place))),
            *(f"{share} is still garbage" for share in self.children(layout.all_garbage(place))),
            *(f"{name} has a mark for {part}, which it lacks" for name, part in owners if part not in parts[name]),
            *(f"{share} has objects and no marks" for share in stored - shares),
            *(f"{share} has marks and no objects" for share in shares - stored),
        ]

    def fence(self, replica: str) -> None:
        """Take a replica's epoch from it, as fsck and whoever declares a part lost do."""
        path = layout.host(Replica(self._place, replica))
        while True:
            host = self._session.perform(fx.Get(path))
            assert host is not None
            if isinstance(self._session.perform(fx.Commit(fx.Set(path, host.value, host.version))), fx.Applied):
                return  # else it has just taken a new one itself

    def wait_settled(self) -> None:
        wait_for(lambda: not self.unsettled(), lambda: f"objects are what is owned: {self.unsettled()}", 90.0)

    def close(self) -> None:
        self._session.close()


@on(FAULTY, at_night=(FOLDER, BUCKET))
def test_replicas_are_killed_and_objects_are_exactly_what_is_referenced(running: LocalCluster, store_url: str) -> None:
    store = open_store(store_url)
    name = f"killed_{len(running.tables())}"
    table = running.create_table(name, "k bigint not null", order_by="k", storage=store_url)
    with Filling(table) as filling:
        for number in range(ROUNDS):
            victim = running.names[number % len(running.names)]
            filling.await_more(5, "inserts go on")
            running.kill(victim)
            filling.await_more(5, "inserts go on without it")
            running.start(victim)
            table.optimize(final=True)
    shares = Shares(running, table, store)
    expected = list(range(ROWS * filling.inserts))
    for replica in running.names:
        assert keys_at(table, replica) == expected
    table.delete("k < 100")
    shares.wait_settled()
    for replica in running.names:
        assert keys_at(table, replica) == [key for key in expected if key >= 100]
    running.drop_table(name)
    assert shares.stored() == set()
    assert not shares._session.perform(fx.Exists(shares._place.path))  # noqa: SLF001
    shares.close()


@on(FOLDER, BUCKET, at_night=(FAULTY,))
def test_three_replicas_have_one_copy(running: LocalCluster, store_url: str) -> None:
    store = open_store(store_url)
    name = f"copies_{len(running.tables())}"
    table = running.create_table(name, "k bigint not null", order_by="k", storage=store_url, wait_replicas=3)
    table.insert(numbers(0, 200_000))
    for replica in running.names:
        assert len(keys_at(table, replica)) == 200_000
    shares = Shares(running, table, store)
    shares.wait_settled()
    assert len(shares.stored()) == 1
    running.drop_table(name)
    assert shares.stored() == set()
    shares.close()


def test_a_replica_that_somebody_else_has_fenced_goes_on(running: LocalCluster, tmp_path: Path) -> None:
    table = running.create_table("fenced", "k bigint not null", storage=f"file://{tmp_path}/objects", wait_replicas=3)
    shares = Shares(running, table, open_store(f"file://{tmp_path}/objects"))
    for number in range(3):
        shares.fence("r1")
        table.insert(numbers(number, 1), replica="r1")
    assert keys_at(table, "r1") == [0, 1, 2]
    shares.wait_settled()
    running.drop_table("fenced")
    shares.close()
