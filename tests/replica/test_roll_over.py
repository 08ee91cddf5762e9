"""A running table whose log goes on below a fresh parent, again and again."""

from __future__ import annotations

from pathlib import Path

import pytest

from replitree.protocol.core import layout
from replitree.protocol.core.effects import Exists
from replitree.protocol.propose import roll_over
from tests.replica.inprocess import ROOT, InProcessCluster, rows, wait_for


def test_inserts_and_merges_go_on_over_many_parents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "PARENT_ENTRIES", 64)
    monkeypatch.setattr(roll_over, "NUMBERS_LEFT", 60)
    cluster = InProcessCluster(tmp_path)
    cluster.create_table()
    first, second = cluster.nodes
    keys: list[int] = []
    wait_for(lambda: first.table().leader.leader or second.table().leader.leader, "somebody leads")
    table = layout.TablePlace(layout.table_path(ROOT, "t"))
    for parent in (1, 2, 3):
        for number in range(6 * parent, 6 * parent + 6):
            node, data = cluster.nodes[number % 2], rows(10 * number)
            wait_for(lambda node=node, data=data: node.insert(data)[0] == 200, "the insert is taken")  # type: ignore[misc]
            keys += range(10 * number, 10 * number + 10)
        closed = layout.log_parent(table, parent)
        wait_for(lambda closed=closed: cluster.admin.perform(Exists(closed)), f"{closed} is there")  # type: ignore[misc]
    cluster.wait_equal(keys)
    second.restart()
    cluster.wait_equal(keys)
    first.post("optimize", {"final": True})
    cluster.wait_equal(keys)
    cluster.close()
