"""A keeper in memory, and a client of it."""

from __future__ import annotations

import pytest

from tests.keeper.client import Client
from tests.keeper.memory import MemoryKeeper


@pytest.fixture
def keeper() -> MemoryKeeper:
    return MemoryKeeper()


@pytest.fixture
def client(keeper: MemoryKeeper) -> Client:
    return Client(keeper)


@pytest.fixture
def other(keeper: MemoryKeeper) -> Client:
    return Client(keeper)
