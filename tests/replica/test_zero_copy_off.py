"""A replica with `zero_copy = false`: it has all rows on its own disk, and owns nothing that it did not own before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from replitree.protocol.core import layout
from replitree.protocol.core.effects import Children
from replitree.replica.parts.sharing import Sharing
from replitree.replica.table import mover, table_replica
from replitree.storage.schema.storage_policy import StorageKind
from tests.replica.inprocess import Node, rows, wait_for
from tests.replica.test_sharing import TABLE, SharedCluster


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts move, and are let go of, many times a second."""
    monkeypatch.setattr(mover, "ROUND_S", 0.05)
    monkeypatch.setattr(table_replica, "MAINTENANCE_S", 0.05)


@pytest.fixture
def alone(tmp_path: Path, store_url: str) -> Iterator[SharedCluster]:
    """A table whose only replica takes nothing over."""
    cluster = SharedCluster(tmp_path, store_url, 1, zero_copy=False)
    yield cluster
    cluster.close()


@pytest.fixture
def shared(tmp_path: Path, store_url: str) -> Iterator[SharedCluster]:
    cluster = SharedCluster(tmp_path, store_url)
    yield cluster
    cluster.close()


def switch(node: Node, *, zero_copy: bool) -> None:
    """Start a replica again, with the other setting."""
    node.stop()
    node.config = msgspec.structs.replace(node.config, zero_copy=zero_copy)
    node.restart()


def owners_of(cluster: SharedCluster, name: str) -> set[str]:
    """The parts for which a replica owns shares."""
    found = {owner for some in cluster.owners().values() for owner in some}
    return {owner.partition(" ")[2] for owner in found if owner.startswith(f"{name} ")}


def local_parts(node: Node) -> set[str]:
    """The visible parts whose rows are on the replica's own disk."""
    store = node.table().store
    return {part for part in node.contents() if store.manifest(part).share_id is None}


def test_what_it_writes_stays_on_its_disk(alone: SharedCluster) -> None:
    (node,) = alone.nodes
    for number in range(3):
        assert node.insert(rows(10 * number))[0] == 200
    node.post("optimize", {"final": True}, wait_s=20)
    wait_for(lambda: len(node.contents()) == 1, "it has merged them")
    node.post("mutations", {"sql": "DELETE FROM t WHERE k >= 25"}, wait_s=20)
    alone.wait_equal(list(range(25)))
    assert local_parts(node) == set(node.contents())
    assert alone.shares() == alone.stored() == set()
    assert alone.admin.perform(Children(layout.all_writing(TABLE))) == ()
    assert alone.admin.perform(Children(layout.all_merged(TABLE))) == ()


def test_who_asks_only_for_the_policy_puts_what_it_writes(
    alone: SharedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant."""
    (node,) = alone.nodes
    monkeypatch.setattr(Sharing, "is_for_new_parts", alone.definition.placement.kind is StorageKind.SHARED)
    assert node.insert(rows(0))[0] == 200
    wait_for(lambda: len(alone.shares()) == 1, "it owns what it has written")
    assert local_parts(node) == set()


@pytest.mark.slow
def test_others_have_what_it_writes_in_the_store_and_it_makes_results_for_itself(shared: SharedCluster) -> None:
    first = shared.nodes[0]
    third = shared.add("r3", zero_copy=False)
    wait_for(lambda: shared.is_active(third), "r3 active")
    for number, node in enumerate((third, first, third)):
        assert node.insert(rows(10 * number))[0] == 200
    shared.wait_equal(list(range(30)))
    third.post("optimize", {"final": True}, wait_s=20)
    wait_for(lambda: all(len(node.contents()) == 1 for node in shared.nodes), "all have merged")
    (part,) = shared.wait_alike()
    assert local_parts(third) == {part}
    wait_for(lambda: owners_of(shared, "r1") == owners_of(shared, "r2") == {part}, "the others have it in the store")
    assert owners_of(shared, "r3") == set()
    shared.wait_equal(list(range(30)))


def test_it_keeps_what_it_owned_before_and_moves_the_rest_when_it_is_switched_on_again(shared: SharedCluster) -> None:
    first, second = shared.nodes
    assert first.insert(rows(0))[0] == 200
    (before,) = shared.wait_alike()
    switch(second, zero_copy=False)
    wait_for(lambda: shared.is_active(second), "active again")
    assert owners_of(shared, "r2") == {before}
    assert second.insert(rows(10))[0] == 200
    assert first.insert(rows(20))[0] == 200
    after = set(shared.wait_alike()) - {before}
    assert local_parts(second) == after
    assert owners_of(shared, "r2") == {before}
    shared.wait_equal(list(range(30)))
    switch(second, zero_copy=True)
    wait_for(lambda: shared.is_active(second), "active again")
    wait_for(lambda: owners_of(shared, "r2") == {before, *after}, "all is in the store")
    shared.wait_settled()
    assert len(shared.shares()) == 3
    shared.wait_equal(list(range(30)))
