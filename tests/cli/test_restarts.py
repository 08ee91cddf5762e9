"""A replica of `up` that ends is started again, later and later, and is left alone in the end; time is a number here."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from replitree.cli.cluster.doctor import grouped
from replitree.cli.cluster.restarts import RESTARTS_MAX, STEADY_S, Restarts
from replitree.client.admin.doctor_finding import DoctorFinding, Severity
from replitree.errors import BadInput


@dataclass
class Replica:
    name: str
    pid: int
    config: str = "data/r1/server.toml"


@dataclass
class Cluster:
    """Replicas that a test kills; one starts at once when it is launched, unless it fails."""

    replicas: list[Replica] = field(default_factory=lambda: [Replica("r1", 1), Replica("r2", 2)])
    launched: list[str] = field(default_factory=list)
    fails: bool = False
    status: int = -9

    @property
    def processes(self) -> tuple[Replica, ...]:
        return tuple(self.replicas)

    def exit_status(self, _name: str) -> int:
        return self.status

    def launch(self, name: str) -> None:
        self.launched.append(name)
        if self.fails:
            raise BadInput("no room")
        next(each for each in self.replicas if each.name == name).pid = 99


def test_replica_that_an_operator_stopped_is_left_alone_with_the_command_that_starts_it() -> None:
    cluster, lines, now = Cluster(status=0), list[str](), 0.0
    restarts = Restarts(cluster, lines.append, now)
    cluster.replicas[0].pid = 0
    while now < 1000.0:
        restarts.look(now)
        now += 0.5
    assert cluster.launched == []
    assert lines == [
        "r1 was stopped and is left alone; to start it: replitree server --config data/r1/server.toml",
    ]


def test_replica_that_ended_is_started_again_after_a_pause_and_one_line_says_so() -> None:
    cluster, lines = Cluster(), list[str]()
    restarts = Restarts(cluster, lines.append, 0.0)
    restarts.look(1.0)
    cluster.replicas[1].pid = 0
    restarts.look(100.0)
    restarts.look(100.5)
    assert (lines, cluster.launched) == (["r2 ended; it is started again in 1 s"], [])
    restarts.look(101.0)
    assert (cluster.launched, len(lines)) == (["r2"], 1)


def test_replica_that_ends_again_and_again_is_left_alone_with_the_command_that_starts_it() -> None:
    cluster, lines, now = Cluster(), list[str](), 0.0
    restarts = Restarts(cluster, lines.append, now)
    while now < 1000.0:
        cluster.replicas[0].pid = 0
        restarts.look(now)
        now += 0.5
    assert cluster.launched == ["r1"] * RESTARTS_MAX
    assert [line.rpartition(" in ")[2] for line in lines[:-1]] == ["1 s", "2 s", "4 s", "8 s", "16 s"]
    assert lines[-1].endswith("replitree server --config data/r1/server.toml")
    assert len(lines) == RESTARTS_MAX + 1


def test_replica_that_ran_long_is_as_one_that_never_ended() -> None:
    cluster, lines = Cluster(), list[str]()
    restarts = Restarts(cluster, lines.append, 0.0)
    for number in range(1, 20):
        at = number * (STEADY_S + 10)
        cluster.replicas[0].pid = 0
        restarts.look(at)
        restarts.look(at + 1)
    assert set(lines) == {"r1 ended; it is started again in 1 s"}
    assert len(cluster.launched) == 19


def test_start_that_fails_is_told_and_counted() -> None:
    cluster, lines, now = Cluster(fails=True), list[str](), 0.0
    restarts = Restarts(cluster, lines.append, now)
    cluster.replicas[0].pid = 0
    while now < 1000.0:
        restarts.look(now)
        now += 0.5
    assert cluster.launched == ["r1"] * RESTARTS_MAX
    assert "r1 could not be started (no room)" in lines


@pytest.mark.parametrize("tables", [("events", "orders", "e")])
def test_doctor_groups_what_it_says_of_several_tables(tables: tuple[str, ...]) -> None:
    findings = [
        DoctorFinding(
            Severity.WARNING,
            "inactive",
            f"r2 is away, {n} entries of {table} behind",
            f"drop-replica {table} r2",
            table,
            "r2",
        )
        for n, table in enumerate(tables)
    ]
    other = DoctorFinding(
        Severity.WARNING, "inactive", "r3 is away, 1 entry of e behind", "drop-replica e r3", "e", "r3"
    )
    found = grouped([*findings[:1], other, *findings[1:]])
    assert [[each.table for each in group] for group in found] == [["events", "orders", "e"], ["e"]]


def test_doctor_groups_tables_that_coordination_has_lost() -> None:
    lost = [
        DoctorFinding(
            Severity.CRITICAL, "table-gone", f"{table}, whose parts are on r1 (/d/tables/{table}-{number})", "", table
        )
        for table, number in (("events", "799f129c"), ("q1", "3c5a2649"))
    ]
    assert grouped(lost) == [lost]
