"""A server whose tables' parent is deleted, by an accident or a restore from nothing, sees the tables that come afterwards."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from replitree.protocol import layout
from replitree.protocol.effects import ANY_VERSION, Applied, Children, Commit, Create, Delete, Exists
from tests.replica.inprocess import ROOT, InProcessCluster, wait_for

TABLES = layout.tables(ROOT)


def test_a_parent_that_is_deleted_while_a_server_looks_is_made_again_and_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = InProcessCluster(tmp_path, 1)
    (node,) = cluster.nodes
    perform, deleted = node.coordination.perform, threading.Event()

    def delete_first(effect: Any) -> Any:
        if effect == Children(TABLES, watch=True) and not deleted.is_set():
            gone = cluster.admin.perform(Commit(Delete(f"{TABLES}/x", ANY_VERSION), Delete(TABLES, ANY_VERSION)))
            assert isinstance(gone, Applied)
            deleted.set()
        return perform(effect)

    monkeypatch.setattr(node.coordination, "perform", delete_first)
    cluster.admin.perform(Commit(Create(f"{TABLES}/x")))
    assert deleted.wait(20.0), "the server looks when a table appears"
    wait_for(lambda: cluster.admin.perform(Exists(TABLES)), "the server makes the parent again", 20.0)
    cluster.create_table()
    cluster.close()
