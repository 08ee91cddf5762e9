"""`replitree up` and `replitree demo` from beginning to end, in folders of their own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.started import COMMAND, STOP_S_MAX, rows, runs, start_up, stop
from tests.waiting import wait_for

pytestmark = pytest.mark.system


def test_up_ends_everything_and_comes_back_with_its_rows(tmp_path: Path) -> None:
    cluster = start_up(tmp_path / "data", "--replicas", "2", "--set", "old_parts_lifetime_s=86400")
    first, settings = cluster.ready, tmp_path / "data" / "r1" / "server.toml"
    try:
        settings.write_text(settings.read_text() + "# mine\ncheck_interval_s = 30.0\n")
        pids = [replica["pid"] for replica in cluster.ready["replicas"]]
        cluster.run("table", "create", "kept", "--schema", "id bigint not null")
        cluster.run("insert", "kept", "-", "--format", "csv", stdin="id\n1\n2\n")
        cluster.process.send_signal(signal.SIGINT)
        cluster.process.communicate(timeout=STOP_S_MAX)
        assert cluster.process.returncode == 0
        assert not any(runs(pid) for pid in pids)
        cluster.commands.close()
        cluster = start_up(tmp_path / "data", "--replicas", "2")
        assert rows(cluster, "kept") == [2, 2]
        assert cluster.ready["url"] == first["url"]
        for line in ("old_parts_lifetime_s = 86400\n", "# mine\n", "check_interval_s = 30.0\n"):
            assert line in settings.read_text()
    finally:
        stop(cluster)


def test_up_starts_a_replica_again_that_was_killed(tmp_path: Path) -> None:
    cluster = start_up(tmp_path / "data", "--replicas", "2")
    try:
        cluster.run("table", "create", "kept", "--schema", "id bigint not null")
        cluster.run("insert", "kept", "-", "--format", "csv", stdin="id\n1\n2\n")
        killed = cluster.ready["replicas"][1]["pid"]
        os.kill(killed, signal.SIGKILL)

        def is_back() -> bool:
            entries = json.loads((tmp_path / "data" / "cluster.json").read_text())["replicas"]
            states = [each["state"] for each in cluster.json("status", "kept")["tables"][0]["replicas"]]
            return entries[1]["pid"] not in (0, killed) and states == ["active", "active"]

        wait_for(is_back)
        assert rows(cluster, "kept") == [2, 2]
    finally:
        stop(cluster)


def test_up_leaves_a_replica_alone_that_was_stopped(tmp_path: Path) -> None:
    cluster = start_up(tmp_path / "data", "--replicas", "2")
    try:
        stopped = cluster.ready["replicas"][1]["pid"]
        os.kill(stopped, signal.SIGTERM)
        wait_for(lambda: not runs(stopped))
        os.kill(cluster.ready["replicas"][0]["pid"], signal.SIGKILL)

        def entries() -> list[int]:
            return [each["pid"] for each in json.loads((tmp_path / "data" / "cluster.json").read_text())["replicas"]]

        wait_for(lambda: entries()[0] not in (0, cluster.ready["replicas"][0]["pid"]))
        assert entries()[1] == 0
    finally:
        stop(cluster)


def test_up_warns_of_tables_that_zookeeper_has_lost(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    cluster = start_up(folder, "--replicas", "2")
    try:
        cluster.run("table", "create", "kept", "--schema", "id bigint not null")
        cluster.run("insert", "kept", "-", "--format", "csv", stdin="id\n1\n2\n")
        assert rows(cluster, "kept") == [2, 2]
        cluster.process.send_signal(signal.SIGINT)
        cluster.process.communicate(timeout=STOP_S_MAX)
        cluster.commands.close()
        shutil.rmtree(next(folder.glob("zookeeper/server-1/data/version-2")))
        cluster = start_up(folder, "--replicas", "2")
        assert cluster.ready["kept_tables"] == {"kept": ["r1", "r2"]}
    finally:
        stop(cluster)


@pytest.mark.nightly
def test_up_with_shards_starts_servers_for_each_and_a_client_with_the_url_alone_creates_tables_on_them(
    tmp_path: Path,
) -> None:
    cluster = start_up(tmp_path / "data", "--shards", "2", "--replicas", "1")
    try:
        assert [each["name"] for each in cluster.ready["replicas"]] == ["r1", "r2"]
        at = ("--url", cluster.ready["url"])
        token = {"REPLITREE_TOKEN_FILE": str(tmp_path / "data" / "token")}
        create = ("table", "create", "d", "--schema", "id bigint not null", "--order-by", "id", "--shard-by", "id")
        made = cluster.commands.run(*create, *at, "--json", environment=token)
        assert made.status == 0, made.err
        assert [each["replicas"] for each in json.loads(made.out)["shards"]] == [["r1"], ["r2"]]
        cluster.run("table", "create", "plain", "--schema", "id bigint not null")
        status = {each["name"]: each for each in cluster.json("status")["tables"]}
        assert {name: each["placed_on"] for name, each in status.items()} == {
            "d~0": ["r1"],
            "d~1": ["r2"],
            "plain": [],
        }
        assert "table d~0, placed on r1: log from" in cluster.run("status").replace("\n", " ")
    finally:
        stop(cluster)


def test_nothing_outlives_an_up_that_was_killed(tmp_path: Path) -> None:
    cluster = start_up(tmp_path / "data", "--replicas", "1")
    pids = [replica["pid"] for replica in cluster.ready["replicas"]]
    cluster.process.kill()
    cluster.process.communicate(timeout=STOP_S_MAX)
    wait_for(lambda: not any(runs(pid) for pid in pids))


def test_demo_holds_on_a_small_repository(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    git = [
        "git",
        "-C",
        str(repository),
        "-c",
        "user.name=A",
        "-c",
        "user.email=a@example.org",
        "-c",
        "commit.gpgsign=false",
    ]
    subprocess.run([*git, "init", "-q"], check=True)
    for number in range(30):
        (repository / f"file-{number % 7}").write_text(str(number))
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "-q", "-m", str(number)], check=True)
    ran = subprocess.run(
        [*COMMAND, "demo", "--git", str(repository), "--blocks", "4", "--dir", str(tmp_path / "demo"), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    verdict = json.loads(ran.stdout)
    assert verdict["held"] is True
    assert verdict["rows"] == 30
    assert len(verdict["checks"]) == 5
    assert "SIGKILL for r3" in ran.stderr
    assert not (tmp_path / "demo").exists()
