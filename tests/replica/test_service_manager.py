"""A server tells systemd, and clients that ask `/health?ready`, when its tables serve reads."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from replitree.replica.kit.config import Address
from replitree.replica.server import Server
from replitree.replica.service_manager import notify, tell_when_ready
from tests.replica.inprocess import ROOT, TOKEN, InProcessCluster, Node


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(str(tmp_path / "notify"))
        channel.settimeout(20)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield channel


def test_it_is_told_what_is_waited_for_and_then_that_all_is_ready(manager: socket.socket) -> None:
    looks = iter([{"t": "starting: one\nline"}, {"t": "starting: one\nline"}, {}])
    asyncio.run(tell_when_ready(lambda: next(looks)))
    assert manager.recv(1000) == b"STATUS=t: starting: one line"
    assert manager.recv(1000) == b"READY=1\nSTATUS=all tables serve reads"


def test_a_name_in_the_abstract_namespace_is_understood(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name = f"replitree-test-{tmp_path.name}-{id(tmp_path)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(f"\0{name}")
        channel.settimeout(20)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
        notify("STOPPING=1")
        assert channel.recv(100) == b"STOPPING=1"


def test_without_a_manager_nothing_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    asyncio.run(tell_when_ready(pytest.fail))
    notify("READY=1")


def test_a_manager_that_is_gone_does_no_harm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nothing"))
    notify("READY=1")


def test_ready_says_what_is_waited_for_and_needs_no_token(cluster: InProcessCluster) -> None:
    (node,) = cluster.nodes[:1]
    assert node.request("GET", "/health?ready", token="") == (200, {"ready": True, "waiting": {}})
    table = node.table()
    table.availability.say_recovering("it takes over r2")
    assert node.request("GET", "/health?ready") == (
        503,
        {"ready": False, "waiting": {"t": "recovering: it takes over r2"}},
    )
    assert node.request("GET", "/health")[0] == 503


def test_a_server_that_has_not_looked_for_its_tables_is_not_ready(tmp_path: Path) -> None:
    cluster = InProcessCluster(tmp_path, replicas=0)
    node = Node("r1", tmp_path, cluster.shared)
    try:
        host, _, port = node.address.partition(":")
        node.server = Server(node.config, TOKEN, Address(host, int(port)), node.coordination, ROOT)
        assert node.request("GET", "/health?ready")[0] == 503
        assert node.request("GET", "/health") == (
            503,
            {"state": "starting", "replica": "r1", "tables": {}, "lacking_parts": {}},
        )
        node.server.start()
        assert node.request("GET", "/health?ready")[0] == node.request("GET", "/health")[0] == 200
    finally:
        node.stop()
        node.stop_listening()
        cluster.close()
