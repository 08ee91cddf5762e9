"""A server whose tables' parent is deleted, by an accident or a restore from nothing, sees the tables that come afterwards."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.wire.identity import decode_identity
from tests.replica.inprocess import ROOT, InProcessCluster, wait_for

TABLES = layout.tables(ROOT)


def said(cluster: InProcessCluster) -> list[str]:
    """Whose servers coordination knows."""
    return sorted(map(layout.server_name, cluster.admin.perform(fx.Children(layout.servers(ROOT))) or ()))


def delete(cluster: InProcessCluster, path: str) -> None:
    for name in cluster.admin.perform(fx.Children(path)) or ():
        delete(cluster, f"{path}/{name}")
    cluster.admin.perform(fx.Commit(fx.Delete(path, fx.ANY_VERSION)))


def test_a_server_says_where_it_is_also_after_everything_was_deleted_and_in_a_new_session(tmp_path: Path) -> None:
    cluster = InProcessCluster(tmp_path, 2)
    first, second = cluster.nodes
    wait_for(lambda: said(cluster) == ["r1", "r2"], "both say where they are")
    path = layout.server(ROOT, "r1", first.identity.incarnation)
    node = cluster.admin.perform(fx.Get(path))
    assert node is not None
    assert decode_identity(node.value) == first.identity
    delete(cluster, layout.servers(ROOT))
    wait_for(lambda: said(cluster) == ["r1", "r2"], "they say it again")
    delete(cluster, ROOT)
    wait_for(lambda: said(cluster) == ["r1", "r2"], "they say it again when all is gone")
    cluster.shared.expire(first.coordination.session_id)
    wait_for(lambda: said(cluster) == ["r1", "r2"], "it says it in its new session")
    second.stop()
    wait_for(lambda: said(cluster) == ["r1"], "who is stopped says nothing")
    cluster.close()


def test_a_parent_that_is_deleted_while_a_server_looks_is_made_again_and_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = InProcessCluster(tmp_path, 1)
    (node,) = cluster.nodes
    perform, deleted = node.coordination.perform, threading.Event()

    def delete_first(effect: Any) -> Any:
        if effect == fx.Children(TABLES, watch=True) and not deleted.is_set():
            gone = cluster.admin.perform(
                fx.Commit(fx.Delete(f"{TABLES}/x", fx.ANY_VERSION), fx.Delete(TABLES, fx.ANY_VERSION))
            )
            assert isinstance(gone, fx.Applied)
            deleted.set()
        return perform(effect)

    monkeypatch.setattr(node.coordination, "perform", delete_first)
    cluster.admin.perform(fx.Commit(fx.Create(f"{TABLES}/x")))
    wait_for(deleted.is_set, "the server looks when a table appears")
    wait_for(lambda: cluster.admin.perform(fx.Exists(TABLES)), "the server makes the parent again")
    cluster.create_table()
    cluster.close()
