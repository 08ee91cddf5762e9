"""A table leaves its store when nothing of it is there: no object of nobody either, and nothing that was only begun."""

from __future__ import annotations

from pathlib import Path

import pytest

from replitree.protocol.core import layout
from replitree.protocol.core.effects import Exists
from replitree.replica.parts import sharing
from replitree.replica.table import mover, table_replica
from replitree.storage.shares.inventory import Inventory
from tests.replica.inprocess import rows, wait_for
from tests.replica.test_moving import TABLE, MovingCluster
from tests.shared.stores import FOLDER, on


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the duties that are waited for come round at once."""
    monkeypatch.setattr(mover, "ROUND_S", 0.02)
    monkeypatch.setattr(mover, "EMPTY_S", 0.02)
    monkeypatch.setattr(sharing, "GARBAGE_S", 0.02)
    monkeypatch.setattr(table_replica, "MAINTENANCE_S", 0.02)


def leave_with_something(cluster: MovingCluster, folder: Path, name: str) -> Path:
    """Let a table have rows in its store and leave it, while a file of nobody is there; return that file."""
    (node,) = cluster.nodes
    assert node.insert(rows(0))[0] == 200
    cluster.wait_equal(list(range(10)))
    node.post("storage", {"storage": cluster.url})
    cluster.wait_in_store()
    left = folder / "objects" / "tables" / cluster.definition.table_id / ("0" * 32) / name
    left.parent.mkdir()
    left.write_bytes(b"1234")
    node.post("storage", {"storage": "local"})
    return left


@pytest.mark.slow
@pytest.mark.parametrize("name", ["data-0.parquet", pytest.param("data-0.parquet#1", id="begun")])
@on(FOLDER)
def test_a_store_with_something_of_nobody_is_not_forgotten(tmp_path: Path, store_url: str, name: str) -> None:
    cluster = MovingCluster(tmp_path, store_url, 1)
    try:
        left = leave_with_something(cluster, tmp_path, name)
        (node,) = cluster.nodes
        told = "objects without an owner: replitree fsck t --repair"
        wait_for(lambda: told in node.get("status")["moving"]["problem"], "it says what it waits for")
        assert cluster.admin.perform(Exists(layout.sharing(TABLE)))
        left.unlink()
        wait_for(lambda: cluster.storage() == "local", "the store is forgotten")
    finally:
        cluster.close()


@on(FOLDER)
def test_who_looks_at_nodes_only_forgets_a_store_with_something_of_nobody(
    tmp_path: Path, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant."""
    monkeypatch.setattr(Inventory, "is_empty", lambda _self: True)
    cluster = MovingCluster(tmp_path, store_url, 1)
    try:
        left = leave_with_something(cluster, tmp_path, "data-0.parquet")
        wait_for(lambda: cluster.storage() == "local", "the store is forgotten")
        assert left.exists()
    finally:
        cluster.close()
