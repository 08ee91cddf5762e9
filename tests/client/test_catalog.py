from __future__ import annotations

import time
from contextlib import suppress

import pytest

from replitree.client.transport import catalog
from replitree.client.transport.catalog import Catalog, Session
from replitree.client.transport.standing import ReplicaMark
from replitree.coordination.memory import MemoryCoordination, SharedTree
from replitree.errors import (
    CoordinationUnavailable,
    InvalidName,
    ReplicaUnavailable,
    TableExists,
    TableNotFound,
    Unavailable,
)
from replitree.protocol.core import layout
from replitree.protocol.core.effects import BlockId, Create, Procedure
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.membership.table import TableOutcome, remove_table
from replitree.storage.schema.definition import TableDefinition, define_table
from tests.client.conftest import FakeCluster


def test_tables_are_created_found_and_dropped(cluster: FakeCluster) -> None:
    connection = cluster.connect()
    assert connection.tables() == ()
    cluster.create("a", "k bigint", order_by="k")
    cluster.create("b", "k bigint")
    assert connection.tables() == ("a", "b")
    assert connection.table("a").definition.order_by == ("k",)
    connection.drop_table("a")
    assert connection.tables() == ("b",)
    with pytest.raises(TableNotFound, match="'a' does not exist"):
        connection.table("a")
    with pytest.raises(TableNotFound):
        connection.drop_table("a")


def test_table_that_exists_is_not_created_again(cluster: FakeCluster) -> None:
    cluster.create("a", "k bigint")
    with pytest.raises(TableExists, match="exists already"):
        cluster.create("a", "k bigint")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            {"state": "read_only", "reason": "no room"},
            r"after 0 s \(r1 is read_only: no room\): mend that, or drop the table",
        ),
        ({"state": "starting", "reason": ""}, "after 0 s; start their servers"),
    ],
)
def test_table_that_no_replica_serves_in_time_is_told_with_their_reasons(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, said: dict[str, str], told: str
) -> None:
    create = Catalog.create

    def create_and_join(catalog: Catalog, definition: TableDefinition) -> None:
        create(catalog, definition)
        cluster.add_replica("a", "r1").answers["GET status"] = said

    monkeypatch.setattr(Catalog, "create", create_and_join)
    with pytest.raises(ReplicaUnavailable, match=told):
        cluster.connect().create_table("a", "k bigint", wait_replicas=1, timeout_s=0.0)


@pytest.mark.parametrize("name", ["../a", "a/b", "", "9a", "a b"])
def test_bad_names_are_refused_before_anything_is_asked(cluster: FakeCluster, name: str) -> None:
    with pytest.raises(InvalidName):
        cluster.connect().table(name)


def test_table_that_is_being_dropped_is_not_there(cluster: FakeCluster) -> None:
    cluster.create("a", "k bigint")
    cluster.commit(Create(layout.dropped(cluster.catalog.place("a"))))
    connection = cluster.connect()
    assert connection.tables() == ()
    with pytest.raises(TableNotFound, match="is being dropped"):
        connection.table("a")
    with pytest.raises(TableExists, match="drop it again to finish"):
        cluster.create("a", "k bigint")


def test_drop_removes_dead_replicas_and_waits_for_live_ones(cluster: FakeCluster) -> None:
    cluster.create("a", "k bigint")
    cluster.add_replica("a", "r1", active=False)
    cluster.connect().drop_table("a")
    cluster.create("a", "k bigint")
    cluster.add_replica("a", "r1")
    with pytest.raises(Unavailable, match=r"replicas have not left it \(r1\)"):
        cluster.connect().drop_table("a", timeout_s=0.05)


def test_who_drops_a_table_that_somebody_else_has_removed_leaves_the_next_one_alone(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create("a", "k bigint")

    def remove_and_create(place: TablePlace) -> Procedure[TableOutcome]:
        yield from remove_table(place)
        cluster.create("a", "j bigint")
        return (yield from remove_table(place))

    monkeypatch.setattr(catalog, "remove_table", remove_and_create)
    cluster.connect().drop_table("a")
    assert cluster.connect().table("a").definition.arrow_schema.names == ["j"]


def test_that_a_drop_has_begun_is_not_said_when_it_is_not_known(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create("a", "k bigint")

    def in_doubt(_place: TablePlace) -> Procedure[TableOutcome]:
        yield from ()
        return TableOutcome.UNSETTLED

    monkeypatch.setattr(catalog, "mark_dropped", in_doubt)
    with pytest.raises(CoordinationUnavailable, match="not known; drop it again"):
        cluster.connect().drop_table("a")
    assert cluster.connect().tables() == ("a",)


def test_each_table_of_a_name_is_another_one(cluster: FakeCluster) -> None:
    found = set()
    for _ in range(2):
        cluster.create("a", "k bigint")
        found.add(cluster.catalog.place("a"))
        cluster.connect().drop_table("a")
    assert len(found) == 2


def test_replicas_are_listed_with_what_they_say_of_themselves(cluster: FakeCluster) -> None:
    cluster.create("a", "k bigint")
    r1 = cluster.add_replica("a", "r1")
    cluster.add_replica("a", "r2", machine="elsewhere", active=False)
    first, second = cluster.connect().table("a").replicas()
    assert (first.name, first.address, first.active, first.is_local) == ("r1", r1.address, True, True)
    assert (second.name, second.active, second.is_local) == ("r2", False, False)
    assert [replica.name for replica in cluster.connect().replicas()] == ["r1", "r2"]


def test_number_line_of_a_table(cluster: FakeCluster) -> None:
    cluster.create("a", "k bigint")
    cluster.add_replica("a", "r1")
    assert cluster.catalog.log_tail("a") == 0
    cluster.insert_in_log("a", BlockId("t-1"))
    assert cluster.catalog.log_tail("a") == 1
    assert cluster.catalog.find_block("a", BlockId("t-1")) == (True, 0)
    assert cluster.catalog.find_block("a", BlockId("t-2")) == (False, None)
    place = Replica(cluster.catalog.place("a"), "r1")
    cluster.commit(Create(layout.queue_entry(place, 0)))
    state = cluster.catalog.log_state("a")
    (standing,) = state.replicas
    assert (state.first, state.tail) == (0, 1)
    assert (standing.name, standing.pointer, standing.queue, standing.mark) == ("r1", 0, 1, ReplicaMark.GOOD)


def test_session_that_ended_is_renewed() -> None:
    tree = SharedTree()
    session = Session(lambda: MemoryCoordination(tree))
    catalog = Catalog(session, "/replitree")
    catalog.create(define_table("a", "k bigint"))
    tree.expire(session.coordination().session_id)
    deadline = time.monotonic() + 10
    names: tuple[str, ...] = ()
    while not names and time.monotonic() < deadline:  # the listener hears of it from a thread of its own
        with suppress(CoordinationUnavailable):
            names = catalog.names()
    assert names == ("a",)
    session.close()
