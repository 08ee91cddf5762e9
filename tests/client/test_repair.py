"""Repairs by an operator: which replica survives, which is dropped, and what a look at all parts finds."""

from __future__ import annotations

import pytest

from replitree.client.admin.repair import BrokenPart, drop_replica, recover_from, replica_names
from replitree.client.transport.standing import ReplicaMark
from replitree.errors import BadInput, InvalidName, TableNotFound
from replitree.protocol.core import layout
from replitree.protocol.core.effects import ANY_VERSION, Create, Get, Set
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.log import encode_log
from replitree.protocol.membership.table import DROPPED_HOST, HALF_BUILT, LOST
from tests.client.conftest import FakeCluster
from tests.client.fake_replica import Failure


@pytest.fixture
def two(cluster: FakeCluster) -> FakeCluster:
    """A table with a dead replica and a live one."""
    cluster.create("a", "k bigint")
    cluster.add_replica("a", "r1", active=False)
    cluster.add_replica("a", "r2")
    return cluster


def mark(cluster: FakeCluster, name: str, value: bytes) -> None:
    cluster.commit(Set(layout.is_lost(Replica(cluster.catalog.place("a"), name)), value, ANY_VERSION))


def marks(cluster: FakeCluster) -> dict[str, ReplicaMark]:
    return {standing.name: standing.mark for standing in cluster.catalog.log_state("a").replicas}


# --- drop-replica -------------------------------------------------------------------------------------------------------------


def test_a_dead_replica_is_dropped_with_everything_it_had(two: FakeCluster) -> None:
    place = Replica(two.catalog.place("a"), "r1")
    two.commit(Create(layout.part(place, "all_0_0_0")), Create(layout.queue_entry(place, 0)))
    two.connect().drop_replica("a", "r1")
    assert replica_names(two.catalog, "a") == ("r2",)


def test_a_drop_that_was_cut_off_is_finished_even_by_name(two: FakeCluster) -> None:
    place = Replica(two.catalog.place("a"), "r1")
    two.commit(Set(layout.host(place), DROPPED_HOST, ANY_VERSION), Create(layout.replica_dropped(place)))
    drop_replica(two.catalog, "a", "r1")
    assert replica_names(two.catalog, "a") == ("r2",)


def test_a_replica_with_a_session_is_not_dropped(two: FakeCluster) -> None:
    with pytest.raises(BadInput, match="r2 of table a has a session: stop its server first"):
        drop_replica(two.catalog, "a", "r2")
    assert replica_names(two.catalog, "a") == ("r1", "r2")


def test_the_last_good_replica_is_not_dropped(two: FakeCluster) -> None:
    mark(two, "r2", LOST)
    with pytest.raises(BadInput, match="the last good one"):
        drop_replica(two.catalog, "a", "r1")
    assert marks(two) == {"r1": ReplicaMark.GOOD, "r2": ReplicaMark.LOST}


def test_names_that_are_not_there_are_told_with_those_that_are(two: FakeCluster) -> None:
    with pytest.raises(BadInput, match="no replica 'r9'; it has r1, r2"):
        drop_replica(two.catalog, "a", "r9")
    with pytest.raises(BadInput, match="no replica 'r9'; it has r1, r2"):
        recover_from(two.catalog, "a", "r9")
    with pytest.raises(BadInput, match="no replica 'r9'; it has r1, r2"):
        two.connect().check_parts("a", "r9")
    with pytest.raises(TableNotFound):
        drop_replica(two.catalog, "b", "r1")
    with pytest.raises(InvalidName):
        drop_replica(two.catalog, "a", "../r2")


# --- recover --from -----------------------------------------------------------------------------------------------------------


def test_when_all_are_lost_one_of_them_survives(two: FakeCluster) -> None:
    mark(two, "r1", LOST)
    mark(two, "r2", LOST)
    two.commit(Set(layout.log(two.catalog.place("a")), encode_log(two.catalog.place("a"), 5), ANY_VERSION))
    done = two.connect().recover_from("a", "r1")
    assert (done.missed_from, done.missed_to) == (0, 5)
    assert marks(two) == {"r1": ReplicaMark.GOOD, "r2": ReplicaMark.LOST}
    pointer = two.session.perform(Get(layout.log_pointer(Replica(two.catalog.place("a"), "r1"))))
    assert pointer.value == b"5"


def test_while_a_replica_is_good_nothing_is_decided_by_hand(two: FakeCluster) -> None:
    mark(two, "r1", LOST)
    with pytest.raises(BadInput, match="nothing was changed: replica r2 is good"):
        recover_from(two.catalog, "a", "r1")
    assert marks(two) == {"r1": ReplicaMark.LOST, "r2": ReplicaMark.GOOD}


def test_a_half_built_replica_survives_only_when_that_is_said(two: FakeCluster) -> None:
    mark(two, "r1", HALF_BUILT)
    mark(two, "r2", LOST)
    with pytest.raises(BadInput, match="half-built"):
        recover_from(two.catalog, "a", "r1")
    recover_from(two.catalog, "a", "r1", half_built=True)
    assert marks(two)["r1"] is ReplicaMark.GOOD


def test_one_that_has_seen_less_survives_only_when_that_is_said(two: FakeCluster) -> None:
    mark(two, "r1", LOST)
    mark(two, "r2", LOST)
    two.commit(Set(layout.log_pointer(Replica(two.catalog.place("a"), "r2")), b"3", ANY_VERSION))
    with pytest.raises(BadInput, match="r2 has more of the table"):
        recover_from(two.catalog, "a", "r1")
    recover_from(two.catalog, "a", "r1", behind=True)
    assert marks(two)["r1"] is ReplicaMark.GOOD


def test_a_table_that_is_being_restored_is_not_decided_by_hand(two: FakeCluster) -> None:
    mark(two, "r1", LOST)
    mark(two, "r2", LOST)
    two.commit(Create(layout.restoring(two.catalog.place("a")), b'{"first":0,"format":1,"replica":"r2"}'))
    with pytest.raises(BadInput, match="is being restored"):
        recover_from(two.catalog, "a", "r1")


# --- check --------------------------------------------------------------------------------------------------------------------


def test_every_replica_is_asked_and_what_each_found_is_told(two: FakeCluster) -> None:
    two.replicas["r1"].answers["POST check"] = {"parts": 3}
    two.replicas["r2"].answers["POST check"] = {
        "parts": 4,
        "broken": [{"part": "all_0_0_0", "problem": "bytes differ"}],
    }
    one, other = two.connect().check_parts("a")
    assert (one.replica, one.parts, one.is_well) == ("r1", 3, True)
    assert (other.parts, other.is_well, other.broken) == (4, False, (BrokenPart("all_0_0_0", "bytes differ"),))


def test_one_replica_is_asked_when_it_is_named(two: FakeCluster) -> None:
    two.replicas["r2"].answers["POST check"] = {"parts": 4}
    (found,) = two.connect().check_parts("a", "r2")
    assert (found.replica, found.parts) == ("r2", 4)
    assert two.replicas["r1"].seen == []


def test_a_replica_that_can_not_be_asked_is_not_called_whole(two: FakeCluster) -> None:
    two.replicas["r1"].answers["POST check"] = Failure(503, "ReadOnly", "no session")
    two.replicas["r2"].close()
    first, second = two.connect().check_parts("a")
    assert (first.is_well, first.problem) == (False, "no session")
    assert (second.is_well, second.parts) == (False, 0)
    assert second.problem
    two.replicas.pop("r2")
