"""The benchmarks' own machinery: clients, medians, ratios, keys."""

from __future__ import annotations

import json
import threading

import pytest
from typing_extensions import override

from replitree.coordination.memory import MemoryCoordination
from replitree.errors import ReplitreeError, TooManyParts
from replitree_bench import run as runner
from replitree_bench.kit import clickhouse
from replitree_bench.kit.clients import run_clients
from replitree_bench.kit.report import Report, medians, quantile
from replitree_bench.kit.systems import make_rows
from replitree_bench.table import bulk, inserts, longlife, quorum
from tests.cli.conftest import Run


class Counting:
    """A system that counts what it is asked."""

    def __init__(self) -> None:
        self.tables: list[str] = []
        self.blocks: list[int] = []
        self.ready: set[int] = set()
        self.lock = threading.Lock()

    def create(self, table: str) -> None:
        self.tables.append(table)
        self.blocks.clear()

    def prepare(self, first: int, blocks: int) -> None:
        self.ready = set(range(first, first + blocks))

    def insert(self, block: int) -> None:
        with self.lock:
            assert block in self.ready
            self.blocks.append(block)

    def visible_after_s(self, block: int) -> float:
        assert block in self.ready
        return 0.001 * (block + 1)

    def bulk(self, rows: int) -> float:
        return rows / 1000

    def wait_equal(self) -> float:
        assert len(self.blocks) == len(set(self.blocks))
        return 0.25

    def coordination_requests(self) -> int:
        return 5 * len(self.blocks)


def test_every_number_is_requested_once_by_any_number_of_clients() -> None:
    system = Counting()
    system.prepare(0, 100)
    load = run_clients(7, 100, system.insert)
    assert sorted(system.blocks) == list(range(100))
    assert len(load.latencies_s) == load.requests == 100
    assert load.per_second > 0


def test_failure_of_a_client_is_not_lost() -> None:
    def fail(number: int) -> None:
        if number == 5:
            raise ReplitreeError("broken")

    with pytest.raises(ReplitreeError, match="broken"):
        run_clients(3, 100, fail)


def test_small_inserts_have_the_peers_keys() -> None:
    measured = inserts.measure(Counting(), 0, inserts=8, quiet_s=0)
    wanted = {f"inserts_per_s_{clients}_clients" for clients in (1, 4, 16, 64)}
    wanted |= {"replica_lag_s", "zk_requests_per_insert", "zk_requests_per_insert_1_clients"}
    assert wanted | {"zk_requests_per_insert_16_clients", "lag_p50_ms"} <= set(measured)
    assert measured["zk_requests_per_insert"] == 5
    assert measured["zk_requests_per_insert_16_clients"] == 5
    assert measured["lag_p50_ms"] == pytest.approx(25)
    assert measured["replica_lag_s"] == 0.25


class Full(Counting):
    """A system that refuses inserts as soon as it has 12 blocks."""

    @override
    def insert(self, block: int) -> None:
        if len(self.blocks) >= 12:
            raise TooManyParts("merges are slower than inserts")
        super().insert(block)


def test_a_level_that_the_system_refuses_has_no_figures_and_the_others_keep_theirs() -> None:
    measured = inserts.measure(Full(), 0, inserts=8, quiet_s=0)
    assert [measured[f"refused_{clients}_clients"] for clients in (1, 4, 16, 64)] == [0, 1, 1, 1]
    assert {key for key in measured if key.startswith("inserts_per_s")} == {"inserts_per_s_1_clients"}
    assert measured["zk_requests_per_insert"] == 5


class Refusing(Counting):
    """A system that refuses every block once."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: set[int] = set()

    def insert_with_quorum(self, block: int) -> bool:
        with self.lock:
            if block not in self.refused:
                self.refused.add(block)
                return False
        self.insert(block)
        return True


def test_quorum_inserts_say_again_what_was_refused() -> None:
    system = Refusing()
    measured = quorum.measure(system, 0, inserts=4, many=100, quiet_s=0)
    assert sorted(system.blocks) == list(range(quorum.WARM_UPS + 4 + 100))
    assert measured["repeated_per_insert_50_clients"] == 1
    assert measured["zk_requests_per_insert_1_clients"] == measured["zk_requests_per_insert_50_clients"] == 5
    assert {"p50_ms", "p99_ms", "inserts_per_s_50_clients", "inserts_per_s_1_clients"} <= set(measured)


def test_bulk_has_the_peers_keys() -> None:
    measured = bulk.measure_arrow(Counting(), 3, rows=1000)
    assert measured == {"rows_per_s": 1000, "insert_s": 1, "second_replica_s": 0.25}


def test_systems_take_turns_and_the_first_one_changes() -> None:
    order: list[tuple[bool, int]] = []
    one, two = Counting(), Counting()

    def measure(system: object, number: int) -> dict[str, float]:
        order.append((system is one, number))
        return {"x": 1.0}

    found = inserts.in_turn([one, two], 3, measure, lambda _: None)
    assert order == [(True, 0), (False, 0), (False, 1), (True, 1), (True, 2), (False, 2)]
    assert [len(rounds) for rounds in found] == [3, 3]


def test_report_divides_what_both_have() -> None:
    report = Report("x", {"a": 10.0, "b": 1.0}, {"a": 4.0, "c": 2.0, "b": 0.0}, 3)
    assert report.ratio == {"a": 2.5}
    assert set(json.loads(json.dumps(report.as_json()))) >= {"name", "ours", "peer", "ratio"}


def test_medians_and_quantiles() -> None:
    assert medians([{"a": 3.0}, {"a": 1.0, "b": 7.0}, {"a": 2.0}]) == {"a": 2.0, "b": 7.0}
    assert medians([{"a": 123456.7}]) == {"a": 123457.0}
    assert quantile(range(1, 101), 0.99) == 99
    assert quantile([5.0], 0.5) == 5.0


def test_rows_are_those_of_the_peer() -> None:
    rows = make_rows(200, 3)
    assert rows.column("k").to_pylist() == [200, 201, 202]
    assert rows.column("v").to_pylist() == [0, 1 / 3, 2 / 3]
    assert rows.column("s").to_pylist() == ["0", "1", "2"]
    assert {str(day) for day in rows.column("d").to_pylist()} == {"2018-01-01"}


@pytest.mark.parametrize("command", ["inserts", "bulk", "quorum"])
def test_missing_peer_is_said_before_anything_is_started(
    run: Run, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(clickhouse, "PROGRAM", "no-such-clickhouse-server")
    ran = run("bench", command, "--peer", "clickhouse", "--json")
    assert ran.status == 1
    assert "apt-get install clickhouse-server" in ran.error["message"]
    assert ran.out == ""


def test_the_stream_takes_its_length_and_rate_from_the_options(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, object] = {}

    def measure(**options: object) -> Report:
        asked.update(options)
        return Report("steady", {"inserts_per_s": 1.0}, {}, 1)

    monkeypatch.setattr(runner, "run_steady", measure)
    ran = run("bench", "steady", "--seconds", "3", "--rate", "20", "--clients", "5", "--json")
    assert ran.json["ours"] == {"inserts_per_s": 1.0}
    assert (asked["seconds"], asked["rate"], asked["clients"]) == (3.0, 20.0, 5)


def test_bench_prints_a_report_as_json(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "run_read", lambda **_: Report("read", {"sum_s": 1.0}, {"sum_s": 2.0}, 3, "plain"))
    assert run("bench", "read", "--json").json["ratio"] == {"sum_s": 0.5}
    assert "sum_s" in run("bench", "read").out
    monkeypatch.setattr(runner, "run_levels", lambda **_: Report("levels", {"idle_eventual_p50_ms": 1.0}, {}, 3))
    assert run("bench", "levels", "--json").json["ours"] == {"idle_eventual_p50_ms": 1.0}


def test_a_long_log_is_pulled_and_cleaned_in_few_requests() -> None:
    session = MemoryCoordination()
    measured = longlife.measure_log(session, "/root", lambda _: None, entries=2000)
    session.close()
    assert measured["clean_requests"] < 2000 / 100 + 15
    assert measured["pull_entries_per_s"] > 0


class Restarting:
    """A system that notes what it is asked, in order."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.rows = 0

    def create(self, table: str) -> None:
        self.asked.append(f"create {table}")

    def load(self, first: int, rows: int) -> None:
        assert first >= 0
        self.rows += rows
        self.asked += ["load"] if self.asked[-1] != "load" else []

    def wait_equal(self) -> float:
        self.asked.append("equal")
        return 0.5

    def kill_second(self) -> None:
        self.asked.append("kill")

    def start_second(self) -> None:
        self.asked.append("start")

    def is_second_lost(self) -> bool:
        self.asked.append("lost?")
        return True


def test_a_recovery_is_measured_from_the_start_of_the_lost_replica_until_it_is_equal() -> None:
    system = Restarting()
    measured = longlife.measure_recovery(system, 3)
    assert system.asked == ["create lost_3", "load", "equal", "kill", "load", "lost?", "load", "start", "equal"]
    assert system.rows == 7_200_000
    assert 0 <= measured["restart_s"] <= measured["recovery_s"]
