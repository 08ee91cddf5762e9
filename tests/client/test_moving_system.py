"""Tables that move into an object store and out of it, with real processes that are killed."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from replitree.client import Table
from replitree.client.cluster import LocalCluster
from replitree.errors import ReplitreeError
from replitree.storage.objects import open_store
from tests.client.test_shared_system import SETTINGS, Shares, keys_at, numbers
from tests.shared.stores import BUCKET, FAULTY, FOLDER, credentials, on
from tests.waiting import wait_for

pytestmark = pytest.mark.system

ROUNDS = 4
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
    over, inserted = threading.Event(), [0]

    def fill() -> None:
        while not over.is_set():
            try:
                table.insert(numbers(10 * inserted[0], 10), token=f"insert-{inserted[0]}")
            except ReplitreeError:
                continue
            inserted[0] += 1

    writer = threading.Thread(target=fill)
    writer.start()
    try:
        for number in range(ROUNDS):
            begun, victim = inserted[0], running.names[number % len(running.names)]
            wait_for(lambda begun=begun: inserted[0] >= begun + 5, "inserts go on", 60.0)  # type: ignore[misc]
            table.set_storage(url if number % 2 == 0 else "local", timeout_s=5.0)
            running.kill(victim)
            wait_for(lambda begun=begun: inserted[0] >= begun + 15, "inserts go on without it", 60.0)  # type: ignore[misc]
            running.start(victim)
    finally:
        over.set()
        writer.join(60.0)
    expected = list(range(10 * inserted[0]))
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
