"""What the doctor is told: coordination, the ZooKeeper servers and the replica processes, each of which may be silent."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from replitree.client.admin.doctor import Severity, examine, worst
from replitree.client.admin.doctor_coordination import ask_servers
from replitree.client.admin.doctor_gather import gather
from replitree.client.admin.doctor_state import ClusterState, ReplicaState
from replitree.client.transport.http import HttpClient
from replitree.client.transport.standing import ReplicaMark
from replitree.coordination.port import make_root
from replitree.errors import CoordinationUnavailable, NotAuthorized
from replitree.protocol.core import layout
from replitree.protocol.core.effects import ANY_VERSION, BlockId, Create, Set
from replitree.protocol.core.layout import Replica
from replitree.protocol.membership.table import DROPPED_HOST, HALF_BUILT, LOST
from replitree.protocol.state.registration import broken_value
from replitree.wire.version import installed_version
from tests.client.conftest import TOKEN, FakeCluster
from tests.client.fake_replica import Failure, FakeReplica

VITALS = {
    "version": installed_version(),
    "disk_free_bytes": 50,
    "disk_bytes": 100,
    "disk_reserve_bytes": 1,
    "log_keep_min": 100,
    "log_keep_max": 1000,
}


def status_of(fake: FakeReplica, **facts: Any) -> None:
    """Let a replica say how it is."""
    table = {"table": "a", "state": "active", "reason": "", "postponed": [], "lacking": [], **facts}
    fake.answers["GET "] = {**VITALS, "clock_s": time.time(), "tables": [table]}
    fake.answers["GET mutations"] = {"mutations": []}


def look_over(cluster: FakeCluster) -> ClusterState:
    http = HttpClient(TOKEN)
    try:
        return gather("zk://nowhere:1/replitree", (), cluster.catalog, http)
    finally:
        http.close()


def replicas(state: ClusterState) -> dict[str, ReplicaState]:
    (table,) = state.tables
    return {replica.name: replica for replica in table.replicas}


@pytest.fixture
def two(cluster: FakeCluster) -> FakeCluster:
    """A table with two replicas that are well."""
    cluster.create("a", "k bigint")
    for name in ("r1", "r2"):
        status_of(cluster.add_replica("a", name))
    place = cluster.catalog.place("a")
    cluster.commit(Create(layout.leader_create(place), b"r2", ephemeral=True, sequential=True))
    return cluster


def place_of(cluster: FakeCluster, name: str) -> Replica:
    return Replica(cluster.catalog.place("a"), name)


def test_a_cluster_that_is_well(two: FakeCluster) -> None:
    state = look_over(two)
    (table,) = state.tables
    assert worst(examine(state)) is Severity.OK
    assert (table.leaders, table.keep_min, table.keep_max) == (("r2",), 100, 1000)
    assert [(server.name, server.version, server.disk_free) for server in state.servers] == [
        ("r1", installed_version(), 50),
        ("r2", installed_version(), 50),
    ]
    assert all(abs(server.clock_apart_s or 99.0) < 30 for server in state.servers)
    assert state.coordination.latency_s is not None


def test_positions_come_from_coordination(two: FakeCluster) -> None:
    for number in range(3):
        two.insert_in_log("a", BlockId(f"t-{number}"))
    one = place_of(two, "r1")
    two.commit(Set(layout.log_pointer(one), b"2", ANY_VERSION), Create(layout.queue_entry(one, 1)))
    (table,) = look_over(two).tables
    assert (table.log_first, table.log_tail, table.blocks) == (0, 3, 3)
    assert [(replica.pointer, replica.queue) for replica in table.replicas] == [(2, 1), (0, 0)]


@pytest.mark.parametrize(
    ("value", "mark"),
    [(LOST, ReplicaMark.LOST), (HALF_BUILT, ReplicaMark.HALF_BUILT), (b"1 of a newer kind", ReplicaMark.LOST)],
)
def test_marks_of_lost_replicas(two: FakeCluster, value: bytes, mark: ReplicaMark) -> None:
    two.commit(Set(layout.is_lost(place_of(two, "r1")), value, ANY_VERSION))
    assert {name: replica.mark for name, replica in replicas(look_over(two)).items()} == {
        "r1": mark,
        "r2": ReplicaMark.GOOD,
    }


def test_a_replica_that_is_half_dropped(two: FakeCluster) -> None:
    two.commit(Set(layout.host(place_of(two, "r1")), DROPPED_HOST, ANY_VERSION))
    assert replicas(look_over(two))["r1"].mark is ReplicaMark.DROPPED


def test_a_server_that_does_not_answer(two: FakeCluster) -> None:
    two.replicas["r2"].close()
    state = look_over(two)
    found = replicas(state)
    assert found["r1"].answers
    assert not found["r2"].answers
    assert found["r2"].active
    assert {finding.code for finding in examine(state)} == {"unreachable"}
    two.replicas.pop("r2")


def test_a_replica_that_has_never_been_active(two: FakeCluster) -> None:
    two.commit(Set(layout.host(place_of(two, "r2")), b"", ANY_VERSION))
    assert "never been active" in replicas(look_over(two))["r2"].problem


def test_what_a_replica_says_of_itself_is_taken_over(two: FakeCluster) -> None:
    waits = [{"index": 3, "reason": "no source", "tries": 4, "since_s": 20.5}]
    status_of(two.replicas["r1"], state="read_only", reason="disk", postponed=waits, leases=2, old_since_s=3.0)
    one = replicas(look_over(two))["r1"]
    assert (one.state, one.reason, one.leases, one.old_since_s) == ("read_only", "disk", 2, 3.0)
    assert [(each.index, each.reason, each.tries, each.since_s) for each in one.postponed] == [
        (3, "no source", 4, 20.5)
    ]


def test_an_answer_of_another_version_is_no_failure(two: FakeCluster) -> None:
    two.replicas["r1"].answers["GET "] = {"tables": [{"table": "a", "state": "active", "postponed": "many"}, 7]}
    state = look_over(two)
    assert replicas(state)["r1"].serves
    assert state.servers[0].version is None


def test_holders_of_a_broken_part_are_those_with_a_whole_one_or_a_later_form(two: FakeCluster) -> None:
    status_of(two.replicas["r1"], lacking=["all_0_0_0", "all_1_1_0"])
    for replica, part, value in (
        ("r1", "all_0_0_0", b"ab"),
        ("r1", "all_1_1_0", b"ab"),
        ("r2", "all_0_0_0_7", b"cd"),
        ("r2", "all_1_1_0", broken_value("ab")),
    ):
        two.commit(Create(layout.part(place_of(two, replica), part), value))
    two.replicas["r2"].answers["GET "] = {"tables": []}  # it says nothing, so coordination is looked at
    found = replicas(look_over(two))
    assert [(each.part, each.holders) for each in found["r1"].lacking] == [("all_0_0_0", ("r2",)), ("all_1_1_0", ())]
    assert [(each.part, each.holders) for each in found["r2"].lacking] == [("all_1_1_0", ())]


def test_the_fullest_partition(two: FakeCluster) -> None:
    for part in ("x_0_0_0", "y_1_1_0", "y_2_2_0", "y_1_1_0_9"):
        two.commit(Create(layout.part(place_of(two, "r1"), part), b"ab"))
    two.commit(Set(layout.log_pointer(place_of(two, "r1")), b"1", ANY_VERSION))
    (table,) = look_over(two).tables
    assert (table.partition, table.partition_parts) == ("y", 2)


def test_mutations_are_told_once_as_the_worst_replica_sees_them(two: FakeCluster) -> None:
    def rows(*tries: int) -> dict[str, Any]:
        found = [
            {"index": 4, "command": "UPDATE", "tries": n, "reason": "bad" if n else "", "parts_left": 1} for n in tries
        ]
        return {"mutations": [*found, {"index": 2, "finished": True}]}

    two.replicas["r1"].answers["GET mutations"] = rows(0)
    two.replicas["r2"].answers["GET mutations"] = rows(30)
    (table,) = look_over(two).tables
    (mutation,) = table.mutations
    assert (mutation.index, mutation.replicas, mutation.tries, mutation.reason) == (4, ("r2",), 30, "bad")
    two.replicas["r1"].answers["GET mutations"] = rows(31)
    (mutation,) = look_over(two).tables[0].mutations
    assert (mutation.replicas, mutation.tries) == (("r1", "r2"), 31)


def test_a_table_whose_drop_was_begun_is_told(two: FakeCluster) -> None:
    two.commit(Create(layout.dropped(two.catalog.place("a"))))
    state = look_over(two)
    assert [(table.name, table.dropping) for table in state.tables] == [("a", True)]
    assert {finding.code for finding in examine(state)} == {"half-dropped-table"}


def test_servers_without_a_table_are_asked_what_is_on_their_disks(cluster: FakeCluster) -> None:
    fake = FakeReplica("r1", cluster.folder / "uploads")
    cluster.replicas["r1"] = fake
    kept = [{"table": "a", "folder": "/data/tables/a-1"}]
    fake.answers["GET "] = {**VITALS, "clock_s": time.time(), "tables": [], "kept_tables": kept}
    root = "/replitree"
    make_root(cluster.session.coordination(), layout.servers(root))
    cluster.commit(Create(layout.server(root, "r1", "0f"), fake.identity, ephemeral=True))
    cluster.commit(Create(layout.server(root, "r2", "0e"), b"of a later version", ephemeral=True))
    state = look_over(cluster)
    assert [(each.name, each.address, each.problem) for each in state.servers] == [("r1", fake.address, "")]
    assert [(each.code, each.table) for each in examine(state)] == [("table-gone", "a")]


def test_a_table_that_is_being_restored_is_told(two: FakeCluster) -> None:
    value = b'{"first":2147483648,"format":1,"replica":"r1"}'
    two.commit(Create(layout.restoring(two.catalog.place("a")), value))
    assert look_over(two).tables[0].restoring == "r1"


def test_a_table_of_a_newer_format_is_told(two: FakeCluster) -> None:
    two.commit(Set(layout.log(two.catalog.place("a")), b'{"base":0,"format":99}', ANY_VERSION))
    state = look_over(two)
    assert "format 99" in state.tables[0].problem
    assert worst(examine(state)) is Severity.CRITICAL


def test_coordination_that_is_away_is_told_and_not_raised(two: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> tuple[str, ...]:
        raise CoordinationUnavailable("no server answers")

    monkeypatch.setattr(two.catalog, "all_names", away)
    state = look_over(two)
    assert state.coordination.problem == "no server answers"
    assert state.tables == ()


# --- the ZooKeeper servers ----------------------------------------------------------------------------------------------------


@contextmanager
def zookeeper_says(text: bytes) -> Iterator[tuple[str, int]]:
    """A server that answers one connection as ZooKeeper answers a four-letter command."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                assert connection.recv(4) == b"srvr"
                connection.sendall(text)

        thread = threading.Thread(target=serve)
        thread.start()
        host, port = server.getsockname()
        yield host, port
        thread.join()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def test_zookeeper_servers_say_how_they_are() -> None:
    text = b"Zookeeper version: 3.9.5\nLatency min/avg/max: 0/0.5/10\nMode: follower\nNode count: 123\n"
    with zookeeper_says(text) as host:
        up, down = ask_servers((host, ("127.0.0.1", free_port())))
    assert (up.reachable, up.mode, up.nodes) == (True, "follower", 123)
    assert not down.reachable


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        (b"This ZooKeeper instance is not currently serving requests\n", "not serving"),
        (b"srvr is not executed because it is not in the whitelist.\n", None),
        (b"", None),
    ],
)
def test_zookeeper_servers_that_say_less(text: bytes, mode: str | None) -> None:
    with zookeeper_says(text) as host:
        (server,) = ask_servers((host,))
    assert (server.reachable, server.mode, server.nodes) == (True, mode, None)


def test_token_that_all_refuse_is_no_finding_about_them(two: FakeCluster) -> None:
    refused = Failure(401, "NotAuthorized", "the token is wrong")
    r1, r2 = two.replicas["r1"], two.replicas["r2"]
    r1.answers["GET "] = refused
    assert replicas(look_over(two))["r1"].problem == "the token is wrong"
    r2.answers["GET "] = refused
    with pytest.raises(NotAuthorized, match="the token is wrong"):
        look_over(two)


def test_status_tells_who_does_not_answer_from_who_refuses(two: FakeCluster) -> None:
    refused = Failure(401, "NotAuthorized", "the token is wrong")
    r1, r2 = two.replicas["r1"], two.replicas["r2"]
    r1.answers["GET status"], r2.answers["GET status"] = refused, {"state": "active", "rows": 7, "parts": 1, "index": 0}
    (table,) = two.connect().status("a").tables
    assert [(each.state, each.reason, each.rows) for each in table.replicas] == [
        ("down", "the token is wrong", None),
        ("active", "", 7),
    ]
    r2.answers["GET status"] = refused
    with pytest.raises(NotAuthorized, match="the token is wrong"):
        two.connect().status("a")
