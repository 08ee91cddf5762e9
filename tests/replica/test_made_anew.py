"""A table that is dropped or lost, and made anew under its name, is another one for whoever served the earlier one."""

from __future__ import annotations

from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.membership.activate import Activated, NotJoined, renew_epoch
from replitree.protocol.membership.table import TableOutcome, mark_dropped, remove_table
from replitree.protocol.rescue.restore import Restored, restore
from tests.replica.inprocess import ROOT, InProcessCluster, rows, wait_for
from tests.replica.test_restore import delete_nodes, parts_on_disk

PATH = layout.table_path(ROOT, "u")


def made(cluster: InProcessCluster, incarnation: str) -> TablePlace:
    """Create the table; return where it is."""
    cluster.create_table("u", incarnation=incarnation)
    return TablePlace(PATH, incarnation=incarnation)


def test_what_a_thread_still_has_in_its_hands_of_a_dropped_table_changes_nothing_in_the_next(
    cluster: InProcessCluster,
) -> None:
    first, second = cluster.nodes
    table = made(cluster, "a1")
    first.insert(rows(0), table="u")
    cluster.wait_equal(list(range(10)), "u")
    earlier = first.table("u")
    assert cluster.run(mark_dropped(table)) is TableOutcome.DONE
    wait_for(lambda: cluster.run(remove_table(table)) is TableOutcome.DONE, "the table is removed")
    made(cluster, "b2")
    later = first.table("u")
    assert later is not earlier
    assert later.context.identity == earlier.context.identity, "one process hosts both"
    me = later.context.identity.encode()
    second.insert(rows(10), table="u")
    cluster.wait_equal(list(range(10, 20)), "u")
    assert isinstance(earlier.performer.run(renew_epoch(earlier.replica, me, None)), NotJoined)
    assert isinstance(later.performer.run(renew_epoch(later.replica, me, None)), Activated)
    first.insert(rows(20), table="u")
    cluster.wait_equal(list(range(10, 30)), "u")


def test_a_replica_that_served_a_table_while_it_was_lost_and_restored_serves_what_was_restored(
    cluster: InProcessCluster,
) -> None:
    first, second = cluster.nodes
    made(cluster, "a1")
    first.insert(rows(0), table="u")
    cluster.wait_equal(list(range(10)), "u")
    definition, earlier = first.table("u").definition, second.table("u")
    parts = parts_on_disk(first, "u")
    first.stop()
    delete_nodes(cluster, PATH)
    place = Replica(TablePlace(PATH, incarnation="b2"), "r1")
    nodes = definition.encode_metadata(), definition.encode_columns()
    assert isinstance(cluster.run(restore(place, b"run", *nodes, parts)), Restored)
    first.restart()
    wait_for(lambda: cluster.is_active(second, "u") and second.table("u") is not earlier, "it serves the other one")
    assert second.table("u").replica.table.incarnation == "b2"
    second.insert(rows(10), table="u")
    cluster.wait_equal(list(range(20)), "u")
