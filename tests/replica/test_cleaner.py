"""Who cleans the log, and what else is cleaned with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from replitree.protocol.core import layout
from replitree.protocol.core.effects import Children
from replitree.protocol.membership.table import LOST
from tests.replica.inprocess import InProcessCluster, rows, wait_for
from tests.replica.longlife import KEEP_MIN, TABLE, clean, entries, insert, is_lost, long_life, wait_active


@pytest.fixture
def cluster(long_lived: InProcessCluster) -> InProcessCluster:
    return long_lived


def test_cleaning_goes_on_by_itself_on_one_replica(tmp_path: Path) -> None:
    cluster = long_life(tmp_path, clean_log_delay_s=0.05, clean_log_delay_random_s=0.05)
    first, second = cluster.nodes
    insert(first, 0, 6)
    insert(second, 200, 6)
    wait_for(lambda: len(entries(first)) == KEEP_MIN, "the log is short")
    wait_for(lambda: b"replitree_cleaned_entries_total" in first.request("GET", "/metrics")[1], "counted")
    cluster.close()


def test_the_log_is_cleaned_also_where_nobody_leads(tmp_path: Path) -> None:
    cluster = long_life(tmp_path)
    first, second = cluster.nodes
    for node in cluster.nodes:
        node.post("merges/pause")
    wait_for(lambda: not first.coordination.perform(Children(layout.leader_election(TABLE))), "nobody leads")
    insert(first, 0, 12)
    cluster.wait_equal(list(range(120)))
    second.table().cleaner.wake()
    wait_for(lambda: len(entries(first)) == KEEP_MIN, "the log is short")
    cluster.close()


def test_who_does_not_lead_leaves_the_log_alone(tmp_path: Path) -> None:
    cluster = long_life(tmp_path)
    leads = {node.name: node.table().leader for node in cluster.nodes}
    wait_for(lambda: all(leader.leader is not None for leader in leads.values()), "somebody leads")
    turns = {node.name: node.table().cleaner.turn() for node in cluster.nodes}
    assert turns == {name: leader.is_leading for name, leader in leads.items()}
    assert sorted(turns.values()) == [False, True]
    cluster.close()


def test_results_are_not_kept_for_a_replica_that_was_given_up(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    for number in range(2):
        assert first.insert(rows(10 + number, 1))[0] == 200
        assert first.insert(rows(15 + number, 1))[0] == 200
        first.post("optimize", {"final": True}, wait_s=60)
    cluster.wait_equal([10, 11, 15, 16])
    cluster.wait_alike()
    second.stop()
    insert(first, 100, 12)
    leader, epoch = first.table().leader, first.table().availability.active_epoch()
    assert epoch is not None

    def kept() -> set[str]:
        leader.clean(epoch)
        leader.clean(epoch)
        return {*(first.coordination.perform(Children(layout.results(TABLE))) or ())}

    wait_for(lambda: len(kept()) > 1, "what was inserted is merged, and the other replica has not done that")
    before = kept()
    clean(first)
    assert is_lost(first, "r2") == LOST
    wait_for(lambda: before - kept(), "results are forgotten")  # later merges may make others, and keep these meanwhile
    second.restart()
    wait_active(second)
    cluster.wait_equal([10, 11, 15, 16, *range(100, 220)])
