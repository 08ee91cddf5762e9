"""A table whose nodes have vanished is made anew from the parts on the disks."""

from __future__ import annotations

import pytest

from replitree.protocol.core import layout
from replitree.protocol.core.effects import Children, Commit, Delete
from replitree.protocol.core.fold import maximal
from replitree.protocol.core.layout import PARENT_ENTRIES
from replitree.protocol.core.parts import Part, inserted_part, parse_part
from replitree.protocol.rescue.restore import NotRestored, Restored, restore
from replitree.replica.kit.old_parts import RETIRED
from replitree.replica.rescue.restore import is_sharded, restore_table
from tests.replica.inprocess import ROOT, InProcessCluster, Node, rows, wait_for

TABLE = layout.TablePlace(layout.table_path(ROOT, "t"))


def parts_on_disk(node: Node, table: str = "t") -> dict[Part, str]:
    """The parts that a stopped replica can restore a table from."""
    store = node.table(table).store
    return {part: store.verify(part.name).content for part in maximal(map(parse_part, store.parts()))}


def delete_nodes(cluster: InProcessCluster, path: str) -> None:
    """Delete a node and everything below it."""
    for name in cluster.admin.perform(Children(path)) or ():
        delete_nodes(cluster, f"{path}/{name}")
    cluster.admin.perform(Commit(Delete(path, -1)))


@pytest.fixture
def vanished(cluster: InProcessCluster) -> InProcessCluster:
    """Two stopped replicas of a table without nodes; each has a part that the other lacks."""
    first, second = cluster.nodes
    first.insert(rows(0))
    first.insert(rows(10))
    cluster.wait_equal(list(range(20)))
    first.post("optimize", {"final": True})
    cluster.wait_alike()
    second.stop()
    first.insert(rows(20))
    wait_for(lambda: first.keys() == list(range(30)), "the first has all rows")
    first.stop()
    delete_nodes(cluster, TABLE.path)
    return cluster


def test_the_parts_of_one_replica_become_the_table_and_the_other_takes_them_over(vanished: InProcessCluster) -> None:
    first, second = vanished.nodes
    definition, before = first.table().definition, first.contents()
    replica = layout.Replica(TABLE, "r1")
    nodes = definition.encode_metadata(), definition.encode_columns()
    assert isinstance(vanished.run(restore(replica, b"run 1", *nodes, parts_on_disk(first))), Restored)
    again = vanished.run(restore(replica, b"run 2", *nodes, parts_on_disk(first)))
    assert isinstance(again, Restored)
    assert again.already
    for node in vanished.nodes:
        node.restart()
    vanished.wait_equal(list(range(30)))
    assert first.contents() == second.contents() == before
    wait_for(lambda: vanished.is_active(second), "the second is active")
    assert second.insert(rows(30))[1]["index"] >= PARENT_ENTRIES
    vanished.wait_equal(list(range(40)))


@pytest.mark.parametrize("steps", [3, 5, 7, 9, 11])
def test_a_restore_that_was_cut_off_goes_on(vanished: InProcessCluster, steps: int) -> None:
    first, _ = vanished.nodes
    definition, parts = first.table().definition, parts_on_disk(first)
    replica = layout.Replica(TABLE, "r1")
    nodes = definition.encode_metadata(), definition.encode_columns()
    cut = restore(replica, b"run 1", *nodes, parts)
    outcome = None
    for _ in range(steps):
        outcome = vanished.admin.perform(cut.send(outcome))
    cut.close()
    if vanished.admin.perform(Children(TABLE.path)) is not None:
        other = restore(layout.Replica(TABLE, "r2"), b"run 2", *nodes, {})
        assert isinstance(vanished.run(other), NotRestored)
    assert isinstance(vanished.run(restore(replica, b"run 3", *nodes, parts)), Restored)
    for node in vanished.nodes:
        node.restart()
    vanished.wait_equal(list(range(30)))


def test_what_was_detached_is_not_restored_although_its_process_died_before_it_could_take_it_out(
    cluster: InProcessCluster,
) -> None:
    first, second = cluster.nodes
    second.stop()
    first.insert(rows(0))
    index = first.insert(rows(10))[1]["index"]
    wait_for(lambda: first.keys() == list(range(20)), "the first has all rows")
    part = inserted_part("all", index).name
    first.post("drop", {"partition": "all", "blocks": [index, index], "detach": True})
    wait_for(lambda: first.keys() == list(range(10)), "the second insert is detached")
    store = first.table().store
    first.stop()
    (store.root / RETIRED / part).unlink()
    assert store.has_part(part), "it looks as if nothing had happened to it"
    report = restore_table(first.config, "t", dry_run=True)
    assert (report.rows, report.parts, report.detached) == (10, 1, (part,))


def test_an_old_part_is_not_restored(cluster: InProcessCluster) -> None:
    first, _ = cluster.nodes
    for key in (0, 10):
        first.insert(rows(key))
    cluster.wait_equal(list(range(20)))
    first.post("optimize", {"final": True})
    cluster.wait_alike()
    first.stop()
    report = restore_table(first.config, "t", dry_run=True)
    assert (report.rows, report.parts, report.overlapping, report.detached) == (20, 1, (), ())


@pytest.mark.parametrize(("name", "expected"), [("d", True), ("d~0", True), ("t", False)])
def test_shards_are_told_from_other_tables(name: str, expected: bool) -> None:
    assert is_sharded(name, ("d~0", "d~1", "t")) is expected
