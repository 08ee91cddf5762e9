"""The doctor's judgement: from a state of a cluster to findings, one rule at a time."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from replitree.client.admin.doctor import DoctorFinding, Severity, examine, worst
from replitree.client.admin.doctor_finding import in_order
from replitree.client.admin.doctor_state import (
    ClusterState,
    CoordinationServer,
    CoordinationState,
    Lacking,
    MutationState,
    ReplicaState,
    ServerState,
    TableState,
)
from replitree.client.transport.answers import PostponedEntry
from replitree.client.transport.standing import ReplicaMark

GIB = 1 << 30


def a_replica(name: str, **facts: Any) -> ReplicaState:
    return replace(ReplicaState(name=name, pointer=500, parts=3), **facts)


def a_table(*replicas: ReplicaState, **facts: Any) -> TableState:
    table = TableState(
        name="events",
        log_first=400,
        log_tail=500,
        keep_min=100,
        keep_max=1000,
        leaders=("r1",),
        partition="all",
        partition_parts=3,
        replicas=replicas or (a_replica("r1"), a_replica("r2")),
    )
    return replace(table, **facts)


def a_cluster(*tables: TableState, **facts: Any) -> ClusterState:
    state = ClusterState(
        url="zk://zk1/replitree",
        version="1.0",
        coordination=CoordinationState(latency_s=0.002, servers=(CoordinationServer(address="zk1:2181"),)),
        tables=tables or (a_table(),),
    )
    return replace(state, **facts)


def codes(state: ClusterState) -> dict[str, Severity]:
    """The findings but for those that say that all is well, by code."""
    return {finding.code: finding.severity for finding in examine(state) if finding.severity is not Severity.OK}


def the(state: ClusterState, code: str) -> DoctorFinding:
    (finding,) = (finding for finding in examine(state) if finding.code == code)
    return finding


# --- all is well --------------------------------------------------------------------------------------------------------------


def test_a_healthy_cluster_is_said_to_be_well() -> None:
    findings = examine(a_cluster())
    assert [(finding.severity, finding.code, finding.table) for finding in findings] == [
        (Severity.OK, "well", "events")
    ]
    assert "2 replicas" in findings[0].text
    assert worst(findings) is Severity.OK


def test_nothing_found_is_not_worse_than_ok() -> None:
    assert worst(()) is Severity.OK


def test_the_worst_comes_first_and_the_order_is_kept_otherwise() -> None:
    severities = (Severity.NOTICE, Severity.CRITICAL, Severity.OK, Severity.WARNING, Severity.CRITICAL)
    findings = tuple(DoctorFinding(severity, str(number), "x") for number, severity in enumerate(severities))
    assert [finding.code for finding in in_order(findings)] == ["1", "4", "3", "0", "2"]


# --- coordination -------------------------------------------------------------------------------------------------------------


def test_unreachable_coordination_is_critical_and_told_with_its_reason() -> None:
    state = a_cluster(coordination=CoordinationState(problem="no answer from zk1:2181"), tables=())
    state = replace(state, tables=())
    assert codes(state) == {"coordination-unreachable": Severity.CRITICAL}
    assert "no answer from zk1:2181" in the(state, "coordination-unreachable").text


@pytest.mark.parametrize(
    ("latency_s", "severity"), [(0.09, None), (0.1, Severity.NOTICE), (0.99, Severity.NOTICE), (1.0, Severity.WARNING)]
)
def test_slow_coordination(latency_s: float, severity: Severity | None) -> None:
    found = codes(a_cluster(coordination=CoordinationState(latency_s=latency_s)))
    assert found == ({} if severity is None else {"coordination-slow": severity})


def test_a_zookeeper_server_that_is_away_is_named_with_what_may_still_happen() -> None:
    three = [CoordinationServer(address=f"zk{number}:2181", mode="follower") for number in (1, 2, 3)]
    away = replace(three[0], reachable=False)
    finding = the(a_cluster(coordination=CoordinationState(servers=(away, *three[1:]))), "coordination-servers")
    assert finding.severity is Severity.WARNING
    assert "zk1:2181" in finding.text
    assert "one more that stops" in finding.text
    five = (away, *three[1:], *(CoordinationServer(address=f"zk{number}:2181") for number in (4, 5)))
    assert (
        "1 more may stop" in the(a_cluster(coordination=CoordinationState(servers=five)), "coordination-servers").text
    )


def test_a_server_without_quorum_counts_as_away() -> None:
    servers = (CoordinationServer(address="a:1", mode="not serving"), CoordinationServer(address="b:1", mode="leader"))
    assert "a:1" in the(a_cluster(coordination=CoordinationState(servers=servers)), "coordination-servers").text


@pytest.mark.parametrize(
    ("nodes", "severity"), [(999_999, None), (1_000_000, Severity.NOTICE), (5_000_000, Severity.WARNING)]
)
def test_coordination_that_is_nearly_full(nodes: int, severity: Severity | None) -> None:
    servers = (CoordinationServer(address="a:1", nodes=nodes), CoordinationServer(address="b:1"))
    found = codes(a_cluster(coordination=CoordinationState(servers=servers)))
    assert found == ({} if severity is None else {"coordination-full": severity})


# --- servers ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("free", "code", "severity"),
    [
        (50, None, None),
        (9, "disk-nearly-full", Severity.NOTICE),
        (4, "disk-nearly-full", Severity.WARNING),
        (0, "disk-full", Severity.CRITICAL),
    ],
)
def test_room_on_the_disk(free: int, code: str | None, severity: Severity | None) -> None:
    server = ServerState(name="r1", disk_free=free * GIB, disk_size=100 * GIB, disk_reserve=GIB // 2)
    assert codes(a_cluster(servers=(server,))) == ({} if code is None else {code: severity})


def test_a_reserve_that_is_nearly_reached_is_a_warning_on_a_large_disk_too() -> None:
    server = ServerState(name="r1", disk_free=30 * GIB, disk_size=100 * GIB, disk_reserve=20 * GIB)
    assert codes(a_cluster(servers=(server,))) == {"disk-nearly-full": Severity.WARNING}


def test_one_clock_that_is_wrong_is_named() -> None:
    servers = (
        ServerState(name="r1", clock_apart_s=0.1),
        ServerState(name="r2", clock_apart_s=-300.0, clock_doubt_s=0.2),
    )
    finding = the(a_cluster(servers=servers), "clock")
    assert (finding.replica, finding.severity) == ("r2", Severity.WARNING)
    assert "5 min behind" in finding.text


def test_a_slow_answer_is_no_wrong_clock() -> None:
    servers = (ServerState(name="r1", clock_apart_s=4.0, clock_doubt_s=3.5), ServerState(name="r2", clock_apart_s=0.0))
    assert codes(a_cluster(servers=servers)) == {}


def test_when_all_clocks_differ_alike_the_one_here_is_wrong() -> None:
    servers = tuple(ServerState(name=f"r{number}", clock_apart_s=90.0 + number / 10) for number in range(3))
    assert codes(a_cluster(servers=servers)) == {"clock-here": Severity.NOTICE}


def test_versions_that_differ_are_told_with_who_has_which() -> None:
    servers = (ServerState(name="r1", version="1.0"), ServerState(name="r2", version="1.1"), ServerState(name="r3"))
    finding = the(a_cluster(servers=servers), "versions")
    assert finding.severity is Severity.NOTICE
    assert "1.0 on r1; 1.1 on r2" in finding.text
    assert codes(a_cluster(servers=servers[1:])) == {"versions": Severity.NOTICE}
    assert codes(a_cluster(servers=servers[:1])) == {}


# --- tables -------------------------------------------------------------------------------------------------------------------


def test_all_lost_names_the_replica_that_has_seen_most_and_is_no_mixture() -> None:
    table = a_table(
        a_replica("r1", mark=ReplicaMark.LOST, pointer=100, active=False),
        a_replica("r2", mark=ReplicaMark.LOST, pointer=390, active=False),
        a_replica("r3", mark=ReplicaMark.HALF_BUILT, pointer=450, active=False),
    )
    finding = the(a_cluster(table), "all-lost")
    assert finding.severity is Severity.CRITICAL
    assert "replitree recover events --from r2 --yes" in finding.advice
    assert "10 entries" in finding.advice
    only = a_table(a_replica("r3", mark=ReplicaMark.HALF_BUILT, active=False))
    assert "--from r3 --half-built --yes" in the(a_cluster(only), "all-lost").advice


def test_one_good_replica_is_enough_not_to_be_all_lost() -> None:
    table = a_table(a_replica("r1", active=False), a_replica("r2", mark=ReplicaMark.LOST, active=False))
    assert "all-lost" not in codes(a_cluster(table))


def test_a_half_dropped_replica_is_not_the_good_one() -> None:
    table = a_table(
        a_replica("r1", mark=ReplicaMark.DROPPED, active=False), a_replica("r2", mark=ReplicaMark.LOST, active=False)
    )
    assert codes(a_cluster(table))["all-lost"] is Severity.CRITICAL


@pytest.mark.parametrize(
    "facts", [{"active": False}, {"problem": "refused"}, {"state": "read_only"}, {"state": "recovering"}]
)
def test_a_table_that_nobody_serves_is_critical(facts: dict[str, Any]) -> None:
    table = a_table(a_replica("r1", **facts), a_replica("r2", **facts))
    assert codes(a_cluster(table))["no-replica-serves"] is Severity.CRITICAL


def test_a_table_without_replicas_is_critical() -> None:
    assert codes(a_cluster(replace(a_table(), replicas=()))) == {"no-replica": Severity.CRITICAL}


def test_one_replica_is_worth_a_notice() -> None:
    assert codes(a_cluster(a_table(a_replica("r1")))) == {"one-replica": Severity.NOTICE}


def test_a_table_of_a_newer_version_is_told_and_its_replicas_are_not_judged() -> None:
    table = a_table(a_replica("r1", active=False), problem="format 9")
    assert codes(a_cluster(table)) == {"table-unreadable": Severity.CRITICAL}


def test_a_drop_that_was_cut_off_names_who_has_not_left() -> None:
    finding = the(a_cluster(a_table(a_replica("r2", active=False), dropping=True)), "half-dropped-table")
    assert "r2" in finding.text
    assert "table drop events --yes" in finding.advice


def test_a_restore_that_is_not_finished_is_told_instead_of_all_lost() -> None:
    finding = the(a_cluster(a_table(a_replica("r1", mark=ReplicaMark.LOST, active=False), restoring="r1")), "restoring")
    assert finding.severity is Severity.CRITICAL
    assert "replitree restore events --config" in finding.advice
    assert "all-lost" not in codes(
        a_cluster(a_table(a_replica("r1", mark=ReplicaMark.LOST, active=False), restoring="r1"))
    )


def test_no_leader_is_a_warning_only_while_somebody_could_lead() -> None:
    assert codes(a_cluster(a_table(leaders=()))) == {"no-leader": Severity.WARNING}
    away = a_table(a_replica("r1", active=False), a_replica("r2", active=False), leaders=())
    assert "no-leader" not in codes(a_cluster(away))


def test_paused_merges() -> None:
    one = a_table(a_replica("r1", merges_paused=True), a_replica("r2"), leaders=("r2",))
    assert codes(a_cluster(one)) == {"merges-paused": Severity.NOTICE}
    both = a_table(a_replica("r1", merges_paused=True), a_replica("r2", merges_paused=True), leaders=())
    assert codes(a_cluster(both)) == {"merges-paused": Severity.WARNING}


@pytest.mark.parametrize(
    ("parts", "code", "severity"),
    [
        (499, None, None),
        (500, "many-parts", Severity.NOTICE),
        (1000, "too-many-parts", Severity.WARNING),
        (3000, "too-many-parts", Severity.CRITICAL),
    ],
)
def test_parts_in_one_partition(parts: int, code: str | None, severity: Severity | None) -> None:
    assert codes(a_cluster(a_table(partition_parts=parts))) == ({} if code is None else {code: severity})


@pytest.mark.parametrize("field", ["blocks", "results", "quorums"])
def test_what_coordination_remembers_too_much_of(field: str) -> None:
    assert codes(a_cluster(a_table(**{field: 200_000}))) == {f"many-{field}": Severity.NOTICE}


def test_numbers_of_the_log_that_run_out() -> None:
    tail = (1 << 31) - 1000
    replicas = (a_replica("r1", pointer=tail), a_replica("r2", pointer=tail))
    table = a_table(*replicas, log_first=tail - 100, log_tail=tail)
    assert codes(a_cluster(table)) == {"log-numbers": Severity.WARNING}


def test_a_mutation_that_does_not_progress() -> None:
    stuck = MutationState(index=41, command="UPDATE", replicas=("r1",), parts_left=2, tries=20, reason="too large")
    finding = the(a_cluster(a_table(mutations=(stuck,))), "mutation-stuck")
    assert finding.severity is Severity.WARNING
    assert "too large" in finding.text
    assert "kill-mutation events 41" in finding.advice
    fresh = (replace(stuck, tries=3), replace(stuck, reason=""))
    assert codes(a_cluster(a_table(mutations=fresh))) == {}


# --- the log ------------------------------------------------------------------------------------------------------------------


def test_the_replica_that_the_log_is_kept_for_is_named() -> None:
    away = a_replica("r2", pointer=0, active=False)
    table = a_table(a_replica("r1"), away, log_first=0)
    finding = the(a_cluster(table), "log-held")
    assert (finding.replica, finding.severity) == ("r2", Severity.NOTICE)
    assert "500 entries" in finding.text
    assert "more than 1,000 behind" in finding.advice


def test_an_active_replica_that_holds_a_very_long_log_is_a_warning() -> None:
    replicas = (a_replica("r1", pointer=9000), a_replica("r2", pointer=0))
    found = codes(a_cluster(a_table(*replicas, log_first=0, log_tail=9000)))
    assert found["log-held"] is Severity.WARNING


def test_nobody_holds_the_log_and_it_is_long() -> None:
    replicas = (a_replica("r1", pointer=9000), a_replica("r2", pointer=9000))
    found = codes(a_cluster(a_table(*replicas, log_first=0, log_tail=9000)))
    assert found == {"log-not-cleaned": Severity.WARNING}


def test_a_lost_replica_that_is_away_does_not_hold_the_log() -> None:
    replicas = (a_replica("r1", pointer=9000), a_replica("r2", pointer=0, mark=ReplicaMark.LOST, active=False))
    found = codes(a_cluster(a_table(*replicas, log_first=8800, log_tail=9000)))
    assert set(found) == {"lost"}


def test_a_short_log_and_unknown_limits_are_no_finding() -> None:
    assert codes(a_cluster(a_table(log_first=300))) == {}
    assert codes(a_cluster(a_table(log_first=0, keep_min=None, keep_max=None))) == {}


# --- replicas -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mark", "code", "says"),
    [
        (ReplicaMark.GOOD, "inactive", "marked lost when it is more than 1,000 behind"),
        (ReplicaMark.LOST, "lost", "entries that it had not pulled are gone"),
        (ReplicaMark.HALF_BUILT, "half-built", "took over the state"),
        (ReplicaMark.DROPPED, "half-dropped-replica", "cut off"),
    ],
)
def test_a_replica_that_is_away(mark: ReplicaMark, code: str, says: str) -> None:
    table = a_table(a_replica("r1"), a_replica("r3"), a_replica("r2", mark=mark, active=False, pointer=450))
    finding = the(a_cluster(table), code)
    assert (finding.severity, finding.table, finding.replica) == (Severity.WARNING, "events", "r2")
    assert says in finding.text
    assert "drop-replica events r2" in finding.advice
    assert len(codes(a_cluster(table))) == 1


def test_how_far_behind_an_inactive_replica_is() -> None:
    table = a_table(a_replica("r1"), a_replica("r3"), a_replica("r2", active=False, pointer=450))
    assert "50 entries of events behind" in the(a_cluster(table), "inactive").text


def test_a_lost_replica_is_told_that_it_recovers_only_when_there_is_a_source() -> None:
    with_source = a_table(a_replica("r1"), a_replica("r2", mark=ReplicaMark.LOST, active=False))
    assert "recovers" in the(a_cluster(with_source), "lost").advice
    without = a_table(a_replica("r2", mark=ReplicaMark.LOST, active=False))
    assert "recovers" not in the(a_cluster(without), "lost").advice


def test_a_server_that_does_not_answer_is_told_once_for_all_its_tables() -> None:
    replicas = (a_replica("r1"), a_replica("r2", problem="connection refused"))
    tables = (a_table(*replicas), replace(a_table(*replicas), name="other"))
    finding = the(a_cluster(*tables), "unreachable")
    assert (finding.table, finding.replica, finding.severity) == (None, "r2", Severity.WARNING)
    assert "connection refused" in finding.text


@pytest.mark.parametrize(
    ("state", "code", "severity"),
    [
        ("starting", "starting", Severity.NOTICE),
        ("recovering", "recovering", Severity.NOTICE),
        ("read_only", "read-only", Severity.WARNING),
        ("halted", "halted", Severity.CRITICAL),
        ("stopped", "stopped", Severity.WARNING),
        ("dreaming", "dreaming", Severity.WARNING),
    ],
)
def test_what_a_replica_says_of_itself(state: str, code: str, severity: Severity) -> None:
    table = a_table(a_replica("r1"), a_replica("r2", state=state, reason="because"))
    finding = the(a_cluster(table), code)
    assert (finding.severity, finding.replica) == (severity, "r2")
    assert "because" in finding.text


@pytest.mark.parametrize(("behind", "severity"), [(99, None), (100, Severity.NOTICE), (1000, Severity.WARNING)])
def test_lag_counts_what_is_to_pull_and_what_is_queued(behind: int, severity: Severity | None) -> None:
    replica = a_replica("r2", pointer=2000 - behind + 10, queue=10)
    table = a_table(a_replica("r1", pointer=2000), replica, log_first=1900, log_tail=2000)
    assert codes(a_cluster(table)) == ({} if severity is None else {"lag": severity})


WAITS = [
    (None, False, None),
    (9.0, False, None),
    (10.0, False, "notice"),
    (300.0, False, "warning"),
    (900.0, True, "notice"),
]


@pytest.mark.parametrize(("since_s", "is_told", "severity"), WAITS)
def test_entries_that_wait(since_s: float | None, is_told: bool, severity: str | None) -> None:
    waiting = PostponedEntry(index=7, reason="nobody has it", tries=4, since_s=since_s, is_told=is_told)
    table = a_table(a_replica("r1"), a_replica("r2", postponed=(waiting, PostponedEntry(index=8, since_s=1.0))))
    assert codes(a_cluster(table)) == ({} if severity is None else {"postponed": Severity(severity)})


def test_the_entry_that_waits_longest_is_told_with_its_reason() -> None:
    waits = tuple(PostponedEntry(index=n, reason=f"reason {n}", tries=n, since_s=n * 100.0) for n in (1, 3, 2))
    finding = the(a_cluster(a_table(a_replica("r1"), a_replica("r2", postponed=waits))), "postponed")
    assert "entry 3" in finding.text
    assert "reason 3" in finding.text
    assert "2 other entries" in finding.text


def test_broken_parts_are_critical_when_nobody_else_has_the_rows() -> None:
    lacking = (Lacking(part="all_0_0_0"), Lacking(part="all_1_1_0", holders=("r1",)))
    state = a_cluster(a_table(a_replica("r1"), a_replica("r2", lacking=lacking)))
    assert codes(state) == {"lost-parts": Severity.CRITICAL, "broken-parts": Severity.WARNING}
    assert "all_0_0_0" in the(state, "lost-parts").text
    assert "r1 can send" in the(state, "broken-parts").text


def test_broken_parts_of_a_replica_that_is_away_are_told_too() -> None:
    replicas = (a_replica("r1"), a_replica("r3"), a_replica("r2", active=False, lacking=(Lacking(part="all_0_0_0"),)))
    assert codes(a_cluster(a_table(*replicas)))["lost-parts"] is Severity.CRITICAL


def test_parts_that_nobody_sends_are_told_with_what_would_help() -> None:
    replica = a_replica("r2", unavailable={"all_3_3_0": "replica r4 wrote it: start it or drop it", "all_4_4_0": "x"})
    finding = the(a_cluster(a_table(a_replica("r1"), replica)), "unavailable-parts")
    assert finding.severity is Severity.WARNING
    assert "all_3_3_0" in finding.text
    assert "1 other part" in finding.text
    assert "start it or drop it" in finding.text


def test_parts_that_were_declared_lost_are_told_as_long_as_somebody_knows() -> None:
    replica = a_replica("r2", declared_lost={"all_3_3_0": 17})
    finding = the(a_cluster(a_table(a_replica("r1"), replica)), "rows-lost")
    assert finding.severity is Severity.WARNING
    assert "all_3_3_0 (entry 17)" in finding.text


def test_every_finding_but_good_news_says_what_to_do() -> None:
    broken = (Lacking(part="all_0_0_0"), Lacking(part="all_1_1_0", holders=("r1",)))
    state = a_cluster(
        a_table(
            a_replica("r1", state="halted", reason="newer", postponed=(PostponedEntry(index=1, since_s=900.0),)),
            a_replica("r2", active=False, lacking=broken),
            a_replica("r3", problem="refused", queue=5000),
            a_replica("r4", mark=ReplicaMark.DROPPED, active=False),
            leaders=(),
            partition_parts=9000,
            blocks=1 << 20,
        ),
        servers=(ServerState(name="r1", disk_free=0, disk_size=GIB, disk_reserve=1, clock_apart_s=100.0, version="2"),),
        coordination=CoordinationState(latency_s=5.0, servers=(CoordinationServer(address="a:1", reachable=False),)),
    )
    findings = examine(state)
    assert len(findings) > 12
    assert all(finding.advice for finding in findings)
    assert all("\n" not in finding.text + finding.advice for finding in findings)
    assert worst(findings) is Severity.CRITICAL
