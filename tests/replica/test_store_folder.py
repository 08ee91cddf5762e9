"""A store in a folder keeps no folders of what is gone, and what is gone stays gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from replitree.protocol.core import layout
from replitree.protocol.core.effects import Children
from replitree.protocol.membership.table import mark_dropped
from replitree.storage.files import durable
from replitree.storage.files.folder_walk import below
from replitree.storage.objects import folder as folders
from replitree.storage.objects import open_store
from tests.replica.inprocess import rows, wait_for
from tests.replica.test_sharing import TABLE, SharedCluster

KEPT = {"replitree-store-id", "replitree-probe", "tables"}


def names(folder: Path) -> set[str]:
    """Every file and folder, from the store's own on."""
    return {str(path.relative_to(folder)) for path in below(folder)}


def test_shares_that_are_deleted_leave_no_folders_and_a_dropped_table_none(tmp_path: Path) -> None:
    cluster = SharedCluster(tmp_path, f"file://{tmp_path}/objects")
    try:
        first, table = cluster.nodes[0], f"tables/{cluster.definition.table_id}"
        for number in range(2):
            assert first.insert(rows(10 * number))[0] == 200
        cluster.wait_alike()
        first.post("optimize", {"final": True}, wait_s=20)
        wait_for(lambda: all(len(node.contents()) == 1 for node in cluster.nodes), "one part is left")
        cluster.wait_settled()
        (share,) = cluster.stored()
        files = {f"{table}/{share}", f"{table}/{share}/data-0.parquet", f"{table}/{share}/manifest.json"}
        wait_for(lambda: names(tmp_path / "objects") == KEPT | {table} | files, "no folder of a source is left")
        cluster.run(mark_dropped(TABLE))
        wait_for(lambda: not cluster.admin.perform(Children(layout.replicas(TABLE))), "everybody left")
        assert names(tmp_path / "objects") == KEPT
    finally:
        cluster.close()


def test_what_was_deleted_is_durable_and_a_folder_in_use_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []

    def sync(path: Path) -> None:
        durable.sync_folder(path)
        synced.append(path.name)

    monkeypatch.setattr(folders, "sync_folder", sync)
    store = open_store(f"file://{tmp_path}/objects")
    for key in ("a/b/one", "a/b/two", "a/c/three"):
        store.create(key, b"1")
    store.delete(["a/b/one", "a/b/two", "a/b/gone"])
    assert synced == ["b"]
    store.tidy("a")
    assert names(tmp_path / "objects") == {"a", "a/c", "a/c/three"}
    store.tidy("a/b")
    store.delete(["a/c/three"])
    store.tidy("a/c")
    assert names(tmp_path / "objects") == {"a"}
    assert synced == ["b", "a", "c", "a"]
