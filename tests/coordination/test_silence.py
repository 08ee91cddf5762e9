"""Silence is measured whatever the connection looks like, and a session that is over by the clock ends."""

from __future__ import annotations

import shutil
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from replitree.coordination.embedded import LOCALHOST, EmbeddedZooKeeper
from replitree.coordination.memory import MemoryCoordination
from replitree.coordination.port import SessionLost, make_root
from replitree.coordination.zookeeper import ZooKeeperCoordination
from replitree.protocol.core.effects import Applied, Commit, Create, Exists
from tests.coordination.proxy import Proxy
from tests.coordination.waiting import Recorder, eventually

SESSION_S = 2.0


def test_a_session_in_memory_is_silent_while_it_is_suspended() -> None:
    session = MemoryCoordination()
    assert session.silent_s() == 0.0
    session.suspend()
    eventually(lambda: session.silent_s() > 0.01, "it is silent")
    assert not session.is_connected()
    session.resume()
    assert session.silent_s() == 0.0
    assert session.is_connected()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedZooKeeper]:
    with EmbeddedZooKeeper(tmp_path / "zookeeper", durable=False) as server:
        yield server


def connect(port: int) -> ZooKeeperCoordination:
    return ZooKeeperCoordination(f"zk://{LOCALHOST}:{port}", session_timeout_s=SESSION_S, operation_timeout_s=1.0)


def is_taken(port: int, last_zxid: int) -> bool:
    """Say hello to a ZooKeeper as a client that has seen a transaction; tell whether it gets a session."""
    hello = struct.pack(">iqiqi16s?", 0, last_zxid, 2000, 0, 16, bytes(16), False)
    with socket.create_connection((LOCALHOST, port), timeout=10) as connection:
        connection.sendall(struct.pack(">i", len(hello)) + hello)
        try:
            return bool(connection.recv(1))
        except ConnectionResetError:
            return False


@pytest.mark.system
def test_a_zookeeper_hangs_up_on_a_client_that_has_seen_more_than_it_has(server: EmbeddedZooKeeper) -> None:
    """Why a client of a ZooKeeper that has lost its data can't be told that its session is gone."""
    (port,) = server.ports
    assert is_taken(port, 0)
    assert not is_taken(port, 1 << 40)


@pytest.mark.system
@pytest.mark.parametrize("way", ["refuses", "silent"])
def test_a_session_ends_when_nothing_is_heard_for_longer_than_it_lives(server: EmbeddedZooKeeper, way: str) -> None:
    proxy = Proxy(server.ports[0])
    session, heard = connect(proxy.port), Recorder()
    session.add_listener(heard)
    eventually(lambda: session.silent_s() < SESSION_S / 2)
    began = time.monotonic()
    if way == "refuses":
        proxy.cut()
    else:
        proxy.hold()
    eventually(lambda: SessionLost() in heard.events, "the session ends")
    assert time.monotonic() - began > SESSION_S / 2, "an idle session is heard three times in its life"
    assert session.silent_s() > SESSION_S
    proxy.mend()
    session.reconnect()
    assert session.silent_s() < SESSION_S
    assert not session.has_gone_back()
    assert session.perform(Exists("/"))
    session.close()
    proxy.close()


@pytest.mark.system
def test_a_session_with_a_zookeeper_that_has_lost_its_data_ends_and_a_new_one_begins(server: EmbeddedZooKeeper) -> None:
    session, heard = connect(server.ports[0]), Recorder()
    session.add_listener(heard)
    make_root(session, "/a")
    for number in range(20):
        assert isinstance(session.perform(Commit(Create(f"/a/{number}"))), Applied)
    server.kill_server(0)
    shutil.rmtree(server.folder / "server-1" / "data" / "version-2")
    server.start_server(0)
    eventually(lambda: SessionLost() in heard.events, "the session ends")
    session.reconnect()
    assert session.has_gone_back()
    assert not session.perform(Exists("/a"))
    session.reconnect()
    assert not session.has_gone_back()
    session.close()
