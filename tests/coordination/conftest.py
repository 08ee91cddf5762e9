"""Providers of coordination for the conformance suite, and the real ZooKeeper behind one of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Protocol

import pytest

from replitree.coordination.embedded import LOCALHOST, EmbeddedZooKeeper
from replitree.coordination.memory import MemoryCoordination, SharedTree
from replitree.coordination.port import Coordination, make_root
from replitree.coordination.stamped import StampedCoordination
from replitree.coordination.zookeeper import ZooKeeperCoordination
from replitree.errors import CoordinationUnavailable
from replitree.protocol.core.effects import Applied, Commit, Create, Exists
from tests.coordination.proxy import Proxy
from tests.coordination.waiting import eventually

SESSION_TIMEOUT_S = 1.0
"""The shortest that the embedded ZooKeeper allows, so that a session expires soon."""


class Provider(Protocol):
    """Makes sessions, and the faults that the suite asks for."""

    root: str

    def connect(self, session_timeout_s: float = SESSION_TIMEOUT_S) -> StampedCoordination: ...
    def suspend(self, coordination: Coordination) -> None: ...
    def resume(self, coordination: Coordination) -> None: ...
    def expire(self, coordination: Coordination) -> None: ...
    def close(self) -> None: ...


class MemoryProvider:
    """Sessions over one tree in memory."""

    root = "/conformance"

    def __init__(self) -> None:
        self._shared = SharedTree()
        self._sessions: list[MemoryCoordination] = []
        make_root(self.connect(), self.root)

    def connect(self, session_timeout_s: float = SESSION_TIMEOUT_S) -> MemoryCoordination:  # noqa: ARG002 - none ends by itself
        self._sessions.append(MemoryCoordination(self._shared))
        return self._sessions[-1]

    def suspend(self, coordination: Coordination) -> None:
        self._mine(coordination).suspend()

    def resume(self, coordination: Coordination) -> None:
        self._mine(coordination).resume()

    def expire(self, coordination: Coordination) -> None:
        self._shared.expire(coordination.session_id)

    def close(self) -> None:
        for session in self._sessions:
            session.close()

    def _mine(self, coordination: Coordination) -> MemoryCoordination:
        assert isinstance(coordination, MemoryCoordination)
        return coordination


class ZooKeeperProvider:
    """Sessions with a real ZooKeeper, each through a proxy of its own."""

    def __init__(self, port: int, root: str) -> None:
        self.root = root
        self._port = port
        self._proxies: dict[int, Proxy] = {}
        self._sessions: list[ZooKeeperCoordination] = []
        self._bystander = self.connect()
        eventually(self._has_root)

    def _has_root(self) -> bool:
        """Make the root; False: on a busy machine the connection was lost meanwhile, and it is to be made again."""
        try:
            make_root(self._bystander, self.root)
        except CoordinationUnavailable:
            return False
        return True

    def connect(self, session_timeout_s: float = SESSION_TIMEOUT_S) -> ZooKeeperCoordination:
        proxy = Proxy(self._port)
        session = ZooKeeperCoordination(
            f"zk://{LOCALHOST}:{proxy.port}{self.root}", session_timeout_s=session_timeout_s, operation_timeout_s=5.0
        )
        self._proxies[id(session)] = proxy
        self._sessions.append(session)
        return session

    def proxy(self, coordination: Coordination) -> Proxy:
        return self._proxies[id(coordination)]

    def proxies(self) -> list[Proxy]:
        return list(self._proxies.values())

    def suspend(self, coordination: Coordination) -> None:
        self.proxy(coordination).cut()

    def resume(self, coordination: Coordination) -> None:
        self.proxy(coordination).mend()

    def expire(self, coordination: Coordination) -> None:
        mark = f"{self.root}/mark-{coordination.session_id:x}"
        assert isinstance(coordination.perform(Commit(Create(mark, ephemeral=True))), Applied)
        self.proxy(coordination).cut()
        eventually(lambda: not self._bystander.perform(Exists(mark)), "the end of the session")
        self.proxy(coordination).mend()

    def close(self) -> None:
        for session in self._sessions:
            session.close()
        for proxy in self._proxies.values():
            proxy.close()


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    """One real server for all tests of a process; commits are not synced, to spare the disk."""
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper"), durable=False) as server:
        yield server


_roots = itertools.count()


@pytest.fixture
def make_root_path() -> Callable[[], str]:
    """Return paths that no other test uses."""
    return lambda: f"/test-{next(_roots)}"


@pytest.fixture
def real(zookeeper: EmbeddedZooKeeper, make_root_path: Callable[[], str]) -> Iterator[ZooKeeperProvider]:
    provider = ZooKeeperProvider(zookeeper.ports[0], make_root_path())
    yield provider
    provider.close()


@pytest.fixture(params=["memory", pytest.param("zookeeper", marks=pytest.mark.system)])
def provider(request: pytest.FixtureRequest) -> Iterator[Provider]:
    if request.param == "zookeeper":
        yield request.getfixturevalue("real")
        return
    memory = MemoryProvider()
    yield memory
    memory.close()
