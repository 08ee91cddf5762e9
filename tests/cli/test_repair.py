"""`doctor`, `recover`, `drop-replica` and `check` in this process: words, JSON and exit statuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import replitree.client
from replitree.cli.cluster.doctor import EXIT_OF_SEVERITY
from replitree.client.admin.doctor_finding import Severity
from replitree.client.admin.doctor_state import ClusterState, CoordinationState, ReplicaState, TableState
from replitree.client.connection import Connection
from replitree.protocol.core import layout
from replitree.protocol.core.effects import ANY_VERSION, Set
from replitree.protocol.core.layout import Replica
from replitree.protocol.membership.table import HALF_BUILT, LOST
from tests.cli.conftest import Run
from tests.client.conftest import FakeCluster
from tests.client.fake_replica import Failure

WELL = ReplicaState(name="r1", pointer=7)
TABLE = TableState(name="events", log_tail=7, leaders=("r1",), replicas=(WELL, ReplicaState(name="r2", pointer=7)))


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    """A cluster in memory that every command finds: table ``a`` with the dead replica r1 and the live one r2."""
    made = FakeCluster(tmp_path / "cluster")
    made.create("a", "k bigint")
    made.add_replica("a", "r1", active=False)
    made.add_replica("a", "r2")
    monkeypatch.setenv("REPLITREE_URL", "zk://127.0.0.1:1/replitree")
    monkeypatch.setattr(replitree.client, "connect", lambda _: made.connect())
    yield made
    made.close()


def state(**facts: Any) -> ClusterState:
    return ClusterState(url="zk://zk1/replitree", version="1", **facts)


def doctor(run: Run, monkeypatch: pytest.MonkeyPatch, found: ClusterState, *arguments: str) -> Any:
    """Run the doctor on a state."""
    monkeypatch.setenv("REPLITREE_URL", "zk://127.0.0.1:1/replitree")
    monkeypatch.setenv("REPLITREE_TOKEN", "a-token-of-some-length")
    monkeypatch.setattr(Connection, "look_over", lambda _: found)
    return run("doctor", *arguments)


# --- doctor -------------------------------------------------------------------------------------------------------------------


def test_every_severity_has_an_exit_status() -> None:
    assert set(EXIT_OF_SEVERITY) == {severity.value for severity in Severity}


@pytest.mark.parametrize(
    ("found", "status", "severity"),
    [
        (state(tables=(TABLE,)), 0, "ok"),
        (state(tables=(TableState(name="t", replicas=(WELL,), leaders=("r1",)),)), 0, "notice"),
        (state(tables=(TableState(name="t", replicas=TABLE.replicas),)), 1, "warning"),
        (state(coordination=CoordinationState(problem="gone")), 2, "critical"),
    ],
    ids=["ok", "notice", "warning", "critical"],
)
def test_the_doctors_exit_status_is_the_severity(
    run: Run, monkeypatch: pytest.MonkeyPatch, found: ClusterState, status: int, severity: str
) -> None:
    ran = doctor(run, monkeypatch, found, "--json")
    assert ran.status == status
    assert ran.json["severity"] == severity
    assert set(ran.json) == {"url", "severity", "findings"}
    assert all(set(each) == {"severity", "code", "text", "advice", "table", "replica"} for each in ran.json["findings"])


def test_the_doctor_says_what_to_do_below_what_is_wrong(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = doctor(run, monkeypatch, state(coordination=CoordinationState(problem="gone")))
    _, finding, advice = ran.out.splitlines()
    assert finding == "CRITICAL  coordination can't be asked: gone"
    assert advice.strip().startswith("-> start the ZooKeeper servers")


@pytest.mark.parametrize("arguments", [("--colour",), ("--url", "http://x"), ("--dir", "elsewhere"), ("extra",)])
def test_a_doctor_that_could_not_look_is_neither_a_warning_nor_critical(run: Run, arguments: tuple[str, ...]) -> None:
    ran = run("doctor", *arguments)
    assert ran.status == 3
    assert ran.err.count("\n") == 1
    assert run("--debug", "doctor", *arguments).status == 3


def test_a_doctor_without_a_token_is_told_so(run: Run) -> None:
    ran = run("doctor", "--url", "zk://127.0.0.1:1/replitree", "--json")
    assert ran.status == 3
    assert ran.error["error"] == "NotAuthorized"


# --- recover, drop-replica ----------------------------------------------------------------------------------------------------


def mark(cluster: FakeCluster, name: str, value: bytes) -> None:
    cluster.commit(Set(layout.is_lost(Replica(cluster.catalog.place("a"), name)), value, ANY_VERSION))


def test_recover_from_a_replica_when_all_are_lost(run: Run, cluster: FakeCluster) -> None:
    mark(cluster, "r1", HALF_BUILT)
    mark(cluster, "r2", LOST)
    assert "half-built" in run("recover", "a", "--from", "r1", "--yes").err
    ran = run("recover", "a", "--from", "r2", "--yes", "--json")
    assert ran.status == 0
    assert ran.json == {"table": "a", "from": "r2", "missed_from": 0, "missed_to": 0}


def test_recover_says_how_much_is_missing_for_good(run: Run, cluster: FakeCluster) -> None:
    mark(cluster, "r1", LOST)
    mark(cluster, "r2", LOST)
    place = cluster.catalog.place("a")
    cluster.commit(Set(layout.log(place), b'{"base":0,"first":1,"format":1}', ANY_VERSION))
    ran = run("recover", "a", "--from", "r1", "--yes")
    assert ran.status == 0
    assert "1 entry from index 0 on are missing for good" in ran.out


def test_recover_is_refused_while_a_replica_is_good(run: Run, cluster: FakeCluster) -> None:
    mark(cluster, "r1", LOST)
    ran = run("recover", "a", "--from", "r1", "--yes", "--json")
    assert (ran.status, ran.out) == (2, "")
    assert "replica r2 is good" in ran.error["message"]


def test_drop_replica(run: Run, cluster: FakeCluster) -> None:
    ran = run("drop-replica", "a", "r2", "--yes")
    assert ran.status == 2
    assert "stop its server first" in ran.err
    ran = run("drop-replica", "a", "r1", "--yes", "--json")
    assert (ran.status, ran.json) == (0, {"table": "a", "dropped": "r1"})
    ran = run("drop-replica", "a", "r1", "--yes")
    assert ran.status == 2
    assert "no replica 'r1'; it has r2" in ran.err


def test_drop_replica_of_all_tables_goes_on_after_one_that_fails(run: Run, cluster: FakeCluster) -> None:
    cluster.create("b", "k bigint")
    cluster.add_replica("b", "r1", active=False)
    cluster.create("c", "k bigint")
    ran = run("drop-replica", "--all-tables", "r1", "--yes", "--json")
    assert ran.status == 1
    assert ran.json["tables"] == ["a"]
    assert "last good one" in ran.json["failed"]["b"]
    cluster.add_replica("b", "r2")
    ran = run("drop-replica", "r1", "--all-tables", "--yes", "--json")
    assert (ran.status, ran.json) == (0, {"dropped": "r1", "tables": ["b"], "failed": {}})
    assert "no table has a replica 'r1'" in run("drop-replica", "--all-tables", "r1", "--yes").err


@pytest.mark.parametrize("command", [("recover", "a", "--from", "r1"), ("drop-replica", "a", "r1")])
def test_without_yes_nothing_is_decided(run: Run, cluster: FakeCluster, command: tuple[str, ...]) -> None:
    mark(cluster, "r2", LOST)
    mark(cluster, "r1", LOST)
    before = cluster.catalog.log_state("a")
    ran = run(*command)
    assert ran.status == 2
    assert "say --yes" in ran.err
    assert cluster.catalog.log_state("a") == before


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("recover", "../a", "--from", "r1"), "can't be a table's name"),
        (("recover", "a", "--from", "../r1"), "can't be a replica's name"),
        (("recover", "a"), "--from"),
        (("drop-replica", "a"), "--all-tables REPLICA"),
        (("drop-replica", "a", "r1", "r2"), "--all-tables REPLICA"),
        (("drop-replica", "--all-tables", "a", "r1"), "--all-tables REPLICA"),
        (("drop-replica", "a/b", "r1"), "can't be a table's name"),
        (("drop-replica", "a", "r 1"), "can't be a replica's name"),
        (("check", "a b"), "can't be a table's name"),
        (("check", "--replica", ".."), "can't be a replica's name"),
        (("check",), "no cluster in replitree-data"),
        (("restore", "a"), "--config"),
        (("restore", "a/b", "--config", "x.toml"), "can't be a table's name"),
        (("restore", "a", "--config", "missing.toml", "--yes"), "missing.toml"),
    ],
)
def test_wrong_input_is_told_before_anything_is_asked(run: Run, arguments: tuple[str, ...], says: str) -> None:
    ran = run(*arguments)
    assert (ran.status, ran.out) == (2, "")
    assert says in ran.err
    assert ran.err.count("\n") == 1


# --- check --------------------------------------------------------------------------------------------------------------------


def test_check_ends_well_only_when_every_part_is_whole(run: Run, cluster: FakeCluster) -> None:
    for fake in cluster.replicas.values():
        fake.answers["POST check"] = {"parts": 3}
    ran = run("check")
    assert ran.status == 0
    assert ran.out.splitlines() == ["a on r1: 3 parts, all whole", "a on r2: 3 parts, all whole"]
    broken = [{"part": "all_0_0_0", "problem": "bytes differ"}]
    cluster.replicas["r2"].answers["POST check"] = {"parts": 3, "broken": broken}
    ran = run("check", "a", "--json")
    assert (ran.status, ran.json["whole"]) == (1, False)
    said = {"table": "a", "replica": "r2", "parts": 3, "broken": broken, "problem": "", "aside": []}
    assert ran.json["checks"][1] == said
    assert "all_0_0_0: bytes differ" in run("check", "a").out
    aside = [{"part": "frozen/before", "problem": "it is missing"}]
    cluster.replicas["r2"].answers["POST check"] = {"parts": 3, "aside": aside}
    ran = run("check", "a")
    assert (ran.status, "frozen/before is damaged: it is missing" in ran.out) == (1, True)
    cluster.replicas["r2"].answers["POST check"] = {"parts": 3}
    assert run("check", "--replica", "r1").status == 0


def test_a_replica_that_does_not_answer_is_not_whole(run: Run, cluster: FakeCluster) -> None:
    cluster.replicas["r1"].answers["POST check"] = Failure(503, "ReadOnly", "no session")
    ran = run("check", "a", "--replica", "r1")
    assert ran.status == 1
    assert ran.out == "a on r1: not checked: no session\n"
