"""A session that goes on at another server while a commit of its last connection is still on its way."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from replitree.coordination.embedded import LOCALHOST
from replitree.coordination.port import make_root
from replitree.coordination.zookeeper import ZooKeeperCoordination
from replitree.protocol.core import effects as fx
from tests.faults.ensemble import LinkedEnsemble
from tests.faults.proxy import HELD, Link, Network
from tests.waiting import wait_for

pytestmark = pytest.mark.system

ROOT = "/moved"
SERVERS = 5
"""With so many, a server can go on with a session while the leader waits for others to say that they have a commit."""


class Linked:
    """An ensemble, and the links between its servers and from a client to each."""

    def __init__(self, folder: Path) -> None:
        self.network = Network()
        self.links: dict[tuple[int, int], Link] = {}
        self.ensemble = LinkedEnsemble(folder, SERVERS, self.network, self.link)
        self.ensemble.start()
        self.doors = [self.network.link("client", f"zk{server}") for server in range(SERVERS)]
        fronts = zip(self.doors, self.ensemble.ports, strict=True)
        self.ports = [self.network.front({"": door}, 0, port) for door, port in fronts]

    def link(self, source: int, target: int) -> Link:
        if (source, target) not in self.links:
            self.links[source, target] = self.network.link(f"zk{source}", f"zk{target}")
        return self.links[source, target]

    def open_only(self, server: int) -> None:
        """Let the client reach this server only."""
        for number, door in enumerate(self.doors):
            door.refuse(refusing=number != server)
            if number != server:
                door.reset()

    def close(self) -> None:
        self.ensemble.stop()
        self.network.close()


@pytest.fixture
def linked(tmp_path: Path) -> Iterator[Linked]:
    linked = Linked(tmp_path)
    yield linked
    linked.close()


def begin(zk: ZooKeeperCoordination, path: str) -> tuple[threading.Thread, list[fx.Committed]]:
    """Begin to create a node; return who does it, and where its outcome will be."""
    outcomes: list[fx.Committed] = []
    thread = threading.Thread(target=lambda: outcomes.append(zk.perform(fx.Commit(fx.Create(path)))))
    thread.start()
    return thread, outcomes


def test_a_late_commit_of_the_last_connection_does_not_answer_one_of_this(linked: Linked) -> None:
    leader = linked.ensemble.leader()
    assert leader is not None
    first, second, *others = (server for server in range(SERVERS) if server != leader)
    linked.open_only(first)
    zk = ZooKeeperCoordination(f"zk://{','.join(f'{LOCALHOST}:{port}' for port in linked.ports)}{ROOT}")
    make_root(zk, ROOT)
    session, requests = zk.session_id, sum(zk.requests.values())

    linked.link(first, leader).impose(HELD, up=False)
    for other in others:
        linked.link(other, leader).impose(HELD, down=False)
    sent = linked.link(first, leader).passed[0]
    late, its_outcome = begin(zk, f"{ROOT}/late")
    wait_for(lambda: linked.link(first, leader).passed[0] > sent, "the leader has the first commit")
    linked.open_only(second)
    late.join(20.0)
    assert its_outcome == [fx.Unknown()]

    for _ in range(requests):  # were they counted anew, the next one would have the number of the late one
        assert not zk.perform(fx.Exists(f"{ROOT}/late"))
    asked = linked.doors[second].passed[0]
    present, outcome = begin(zk, f"{ROOT}/present")
    wait_for(lambda: linked.doors[second].passed[0] > asked, "the second server has the second commit")
    for link in linked.links.values():
        link.clear()
    present.join(20.0)
    assert zk.session_id == session
    assert outcome == [fx.Applied((f"{ROOT}/present",))]
    assert zk.perform(fx.Exists(f"{ROOT}/late"))
    assert zk.perform(fx.Exists(f"{ROOT}/present"))
    zk.close()
