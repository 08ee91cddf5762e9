"""`verify nemesis`: aimed at a real cluster that is marked, and refused for one that is not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from replitree.client.cluster import LocalCluster
from replitree_verify.histories.reading import read_files
from tests.cli.conftest import Run
from tests.cli.started import COMMAND, STOP_S_MAX
from tests.waiting import wait_for

pytestmark = pytest.mark.system

TRUNCATE = (
    "import sys, replitree\n"
    "with replitree.connect(sys.argv[1]) as connection:\n"
    "    for name in connection.tables():\n"
    "        connection.table(name).truncate()"
)


def toml(name: str, strike: list[str], heal: list[str]) -> str:
    """Return a fault as a file has it; JSON's lists of texts are TOML's."""
    return f'[[fault]]\nname = "{name}"\nstrike = {json.dumps(strike)}\nheal = {json.dumps(heal)}\nhold_s = 1.5\n'


def pid_of(cluster: LocalCluster, name: str) -> str:
    """Return the process of a server, when it answers."""

    def answered() -> str | None:
        answers = (each.answer for each in cluster.servers() if each.name == name)
        return next((str(answer["pid"]) for answer in answers if answer), None)

    return wait_for(answered, f"{name} answers")


def test_a_cluster_for_tests_is_hurt_and_judged_and_another_is_refused(run: Run, tmp_path: Path) -> None:
    aimed = ("verify", "nemesis", "--dir", str(tmp_path / "cluster"), "--seconds", "4", "--clients", "6", "--json")
    with LocalCluster(tmp_path / "cluster", 2, durable=False) as cluster:
        cluster.create_table("precious", "k bigint not null", order_by="k").insert({"k": [1]})
        refused = run(*aimed)
        assert refused.status == 2
        assert "replica r1 is not marked as one of a test cluster" in refused.err
        assert cluster.tables() == ("precious",)
    with LocalCluster(tmp_path / "cluster", 2, durable=False, settings={"test_cluster": True}) as cluster:
        paused = [pid_of(cluster, "r2")]
        assert int(paused[0]) != os.getpid()
        faults, results = tmp_path / "faults.toml", tmp_path / "results"
        faults.write_text(toml("pause r2", ["kill", "-STOP", *paused], ["kill", "-CONT", *paused]))
        ran = run(*aimed, "--faults", str(faults), "--results", str(results))
        assert ran.status == 0, ran.err
        assert ran.json["verdict"]["verdict"] == "fine"
        assert ran.json["replicas"] == ["r1", "r2"]
        assert ran.json["strikes"]["pause r2"] >= 1
        assert len(read_files([results / "history.jsonl"])) == ran.json["verdict"]["operations"] > 20
        assert "pause r2" in (results / "report.html").read_text()
        assert cluster.tables() == ("precious",)
        assert cluster.table("precious").to_arrow().num_rows == 1


def test_a_sharded_table_is_hurt_and_judged(run: Run, tmp_path: Path) -> None:
    aimed = ("verify", "nemesis", "--dir", str(tmp_path / "cluster"), "--seconds", "10", "--clients", "6", "--json")
    with LocalCluster(tmp_path / "cluster", 3, durable=False, settings={"test_cluster": True}) as cluster:
        paused = [pid_of(cluster, "r2")]
        faults, results = tmp_path / "faults.toml", tmp_path / "results"
        faults.write_text(toml("pause r2", ["kill", "-STOP", *paused], ["kill", "-CONT", *paused]))
        ran = run(*aimed, "--shards", "2", "--faults", str(faults), "--results", str(results))
        assert ran.status == 0, ran.err
        assert ran.json["verdict"]["verdict"] == "fine"
        history = read_files([results / "history.jsonl"])
        operations = [history.operation(number) for number in range(len(history))]
        closing = [each for each in operations if each.closing]
        assert [each.replica for each in closing] == ["r1 and r1", "r2 and r2", "r3 and r3"]
        assert closing[0].rows == closing[1].rows == closing[2].rows != ()
        inserted = [each for each in operations if each.kind == "insert" and each.outcome == "ok"]
        assert sum(each.index is not None for each in inserted) > 5, "their transactions are known"
        assert cluster.tables() == ()


@pytest.mark.parametrize("shards", [0, 2])
def test_a_driver_of_spark_is_killed_and_its_streams_are_judged(run: Run, tmp_path: Path, shards: int) -> None:
    with LocalCluster(tmp_path / "cluster", 3, durable=False, settings={"test_cluster": True}) as cluster:
        paused = [pid_of(cluster, "r2")]
        faults, results = tmp_path / "faults.toml", tmp_path / "results"
        faults.write_text(toml("pause r2", ["kill", "-STOP", *paused], ["kill", "-CONT", *paused]))
        ran = run(
            *("verify", "nemesis", "--dir", str(tmp_path / "cluster"), "--seconds", "90", "--clients", "4", "--json"),
            *("--spark", "--faults", str(faults), "--results", str(results), "--shards", str(shards)),
        )
        assert ran.status == 0, ran.err
        assert ran.json["verdict"]["verdict"] == "fine"
        assert ran.json["strikes"]["kill the Spark driver"] >= 1
        history = read_files([results / "history.jsonl"])
        operations = [history.operation(number) for number in range(len(history))]
        (seen,) = (each for each in operations if each.replica == "stream out")
        first = "r1 and r1" if shards else "r1"
        (at_r1,) = (each for each in operations if each.closing and each.replica == first)
        assert seen.closing
        assert seen.rows == at_r1.rows
        by_spark = [each for each in operations if each.kind == "insert" and each.client.startswith("spark-")]
        assert sum(each.outcome == "ok" for each in by_spark) > 3
        assert any(each.client.startswith("driver-") for each in operations), "the driver reads, too"
        assert not (results / "spark" / "token").exists()
        assert cluster.tables() == ()


def test_rows_that_get_lost_are_noticed_and_the_table_stays(run: Run, tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "cluster", 2, durable=False, settings={"test_cluster": True}) as cluster:
        faults = tmp_path / "faults.toml"
        faults.write_text(toml("lose rows", [sys.executable, "-c", TRUNCATE, str(tmp_path / "cluster")], ["true"]))
        ran = run(
            *("verify", "nemesis", "--dir", str(tmp_path / "cluster"), "--seconds", "4", "--clients", "6", "--json"),
            *("--faults", str(faults), "--results", str(tmp_path / "results")),
        )
        assert ran.status == 1
        assert ran.json["verdict"]["counts"]["S5"] > 0
        assert cluster.tables() == (ran.json["table"],)


def test_what_is_struck_is_healed_before_a_run_that_is_stopped_ends(tmp_path: Path) -> None:
    faults = tmp_path / "faults.toml"
    with LocalCluster(tmp_path / "cluster", 2, durable=False, settings={"test_cluster": True}):
        for number in (signal.SIGTERM, signal.SIGINT):
            struck, healed = tmp_path / f"struck-{number}", tmp_path / f"healed-{number}"
            held = toml("held", ["touch", str(struck)], ["touch", str(healed)]).replace("hold_s = 1.5", "hold_s = 500")
            faults.write_text(held)
            command = [
                *COMMAND,
                "verify",
                "nemesis",
                "--dir",
                str(tmp_path / "cluster"),
                "--seconds",
                "600",
                "--clients",
                "1",
            ]
            run = subprocess.Popen([*command, "--faults", str(faults)], start_new_session=True)
            try:
                wait_for(struck.exists, "the fault strikes")
                assert not healed.exists()
                run.send_signal(number)
                assert run.wait(STOP_S_MAX) != 0
                assert healed.exists()
            finally:
                run.kill()
