"""The server as a process: how it starts, refuses to start, and ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from replitree.client.connection import Connection
from replitree.coordination.embedded import EmbeddedZooKeeper, free_ports
from replitree.wire.identity import process_started
from tests.replica.inprocess import SCHEMA, TOKEN, rows, wait_for

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper"), durable=False) as zookeeper:
        yield zookeeper


class Process:
    """One `replitree server`."""

    def __init__(self, folder: Path, url: str, name: str = "r1") -> None:
        folder.mkdir(exist_ok=True)
        token = folder / "token"
        token.write_text(TOKEN)
        token.chmod(0o600)
        config = folder / "server.toml"
        config.write_text(f'name = "{name}"\nzookeeper = "{url}"\ndata = "{folder}/data"\ntoken_file = "{token}"\n')
        self.log = folder / "log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "replitree.replica", "--config", str(config)],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def ready(self) -> dict[str, object]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        answer: dict[str, object] = json.loads(line)
        return answer

    def end(self, timeout_s: float = 60.0) -> int:
        status = self.process.wait(timeout_s)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.end()


def connect(url: str) -> Connection:
    from replitree import connect

    return connect(url, TOKEN)


def test_a_second_live_process_of_one_name_is_refused(tmp_path: Path, zookeeper: EmbeddedZooKeeper) -> None:
    url = f"{zookeeper.url}/twins"
    first = Process(tmp_path / "a", url)
    first.ready()
    with connect(url) as connection:
        connection.create_table("t", SCHEMA, order_by="k")
        second = Process(tmp_path / "b", url)
        assert second.end() == 1
        words = second.log.read_text()
        assert f"process {first.process.pid}" in words
        assert "another name" in words
        assert connection.table("t").insert(rows(0)).rows == 10
    assert first.stop() == 0


def test_a_second_process_in_one_folder_is_refused(tmp_path: Path, zookeeper: EmbeddedZooKeeper) -> None:
    first = Process(tmp_path, f"{zookeeper.url}/folder")
    first.ready()
    second = Process(tmp_path, f"{zookeeper.url}/folder", name="r2")
    assert second.end() == 1
    assert "another process uses the data folder" in second.log.read_text()
    assert first.stop() == 0


def test_without_zookeeper_the_server_says_so_and_ends(tmp_path: Path) -> None:
    process = Process(tmp_path, f"zk://127.0.0.1:{free_ports(1)[0]}/replitree")
    assert process.end() == 1
    assert "no ZooKeeper" in process.log.read_text()


def test_sigterm_drains_and_a_restart_goes_on(tmp_path: Path, zookeeper: EmbeddedZooKeeper) -> None:
    url = f"{zookeeper.url}/drain"
    server = Process(tmp_path, url)
    server.ready()
    with connect(url) as connection:
        connection.create_table("t", SCHEMA, order_by="k")
        assert connection.table("t").insert(rows(0), token="x").outcome == "inserted"
        assert server.stop() == 0
        again = Process(tmp_path, url)
        again.ready()
        assert connection.table("t").insert(rows(0), token="x").outcome == "duplicate"
        assert connection.table("t").to_arrow().num_rows == 10
        assert again.stop() == 0


def test_a_killed_replica_comes_back_before_its_session_expires(tmp_path: Path, zookeeper: EmbeddedZooKeeper) -> None:
    url = f"{zookeeper.url}/killed"
    server = Process(tmp_path, url)
    server.ready()
    with connect(url) as connection:
        connection.create_table("t", SCHEMA, order_by="k")
        assert connection.table("t").insert(rows(0)).rows == 10
        server.process.kill()
        server.end()
        assert process_started(server.process.pid) is None
        again = Process(tmp_path, url)
        again.ready()
        wait_for(lambda: connection.table("t").insert(rows(10), token="y"), "takes inserts", deadline_s=8.0)
        assert connection.table("t").to_arrow().num_rows == 20
        assert again.stop() == 0


def test_a_server_that_waits_for_its_first_connection_ends_when_it_is_stopped(tmp_path: Path) -> None:
    process = Process(tmp_path, f"zk://127.0.0.1:{free_ports(1)[0]}/replitree")
    wait_for(lambda: '"event":"Connecting to ' in process.log.read_text(), "the server tries to connect")
    assert process.stop() == 0  # its handlers of signals were there by then
    assert "stopped before it was started" in process.log.read_text()
    again = Process(tmp_path, f"zk://127.0.0.1:{free_ports(1)[0]}/replitree")  # the folder is free
    assert again.end() == 1
    assert "no ZooKeeper" in again.log.read_text()
