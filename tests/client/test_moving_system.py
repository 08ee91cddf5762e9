"""Tables that move into an object store and out of it, with real processes that are killed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from replitree.client import Table
from replitree.client.cluster import LocalCluster
from replitree.storage.objects import open_store
from tests.client.filling import ROWS, Filling
from tests.client.test_shared_system import SETTINGS, Shares, keys_at
from tests.shared.stores import BUCKET, FAULTY, FOLDER, credentials, on
from tests.waiting import wait_for

pytestmark = pytest.mark.system

ROUNDS = 2
"""Switches of the storage, each with a replica killed in the middle of the moves."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with credentials(), LocalCluster(folder, 3, durable=False, settings=SETTINGS) as cluster:
        yield cluster


def parts_left(running: LocalCluster, table: Table, storage: str) -> int | None:
    """How many parts are not where a policy has them, of all replicas; None when one does not work by it yet."""
    moves = [replica.moving for replica in running.status(table.name).tables[0].replicas]
    known = [each for each in moves if each is not None and each.storage == storage and not each.problem]
    return None if len(known) < len(moves) else sum(each.parts_left for each in known)


@on(FAULTY, at_night=(FOLDER, BUCKET))
def test_replicas_are_killed_while_a_table_moves_to_and_fro(running: LocalCluster, store_url: str) -> None:
    name, url = f"moves_{len(running.tables())}", store_url
    table = running.create_table(name, "k bigint not null", order_by="k", wait_replicas=3)
    with Filling(table) as filling:
        for number in range(ROUNDS):
            victim = running.names[number % len(running.names)]
            filling.await_more(5, "inserts go on")
            table.set_storage(url if number % 2 == 0 else "local", timeout_s=5.0)
            running.kill(victim)
            filling.await_more(10, "inserts go on without it")
            running.start(victim)
    expected = list(range(ROWS * filling.inserts))
    for replica in running.names:
        assert keys_at(table, replica) == expected
    shares = Shares(running, table, open_store(url))
    table.set_storage(url)
    wait_for(lambda: shares.stored() and parts_left(running, table, url) == 0, "everything is in the store", 90.0)
    shares.wait_settled()
    table.set_storage("local")
    wait_for(lambda: shares.stored() == set(), "nothing is in the store", 90.0)
    for replica in running.names:
        assert keys_at(table, replica) == expected
    wait_for(lambda: running.table(name).definition.storage == "local", "the store is forgotten", 60.0)
    running.drop_table(name)
    shares.close()
