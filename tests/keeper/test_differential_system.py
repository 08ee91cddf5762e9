"""The core and a real ZooKeeper answer random conversations alike, byte by byte but for what `normal` leaves out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.keeper.differential import ON_PURPOSE, compare, differs
from tests.keeper.peers import MemoryServer, RealServer, real_server

pytestmark = pytest.mark.system

BY_DAY, AT_NIGHT = 200, 10_000


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with real_server(Path(tmp_path_factory.mktemp("zookeeper"))) as server:
        yield server


def test_random_conversations_are_answered_alike(zookeeper: RealServer) -> None:
    assert compare((MemoryServer(), zookeeper), 1, BY_DAY) > 10 * BY_DAY


@pytest.mark.nightly
def test_many_random_conversations_are_answered_alike(zookeeper: RealServer) -> None:
    assert compare((MemoryServer(), zookeeper), 100_000, AT_NIGHT) > 10 * AT_NIGHT


@pytest.mark.parametrize("name", ON_PURPOSE)
def test_what_differs_on_purpose_does_differ(zookeeper: RealServer, name: str) -> None:
    assert differs((MemoryServer(), zookeeper), *ON_PURPOSE[name])
