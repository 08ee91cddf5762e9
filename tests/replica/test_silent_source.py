"""A source that is stopped holds nobody up: another one is asked soon, and the silent one not again for a while."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from replitree.protocol.core.effects import Fetched, FetchPart, NotFetched
from replitree.protocol.core.parts import inserted_part
from replitree.replica.perform import exchange
from replitree.replica.perform.exchange import Exchange, Peer
from tests.replica.inprocess import TOKEN, InProcessCluster, rows

SILENCE_S = 1.0


class Silent:
    """Takes connections and says nothing, as a stopped process does."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def callers(self) -> int:
        """Return how many have called since this was asked the last time."""
        count = 0
        try:
            while True:
                self._listener.accept()[0].close()
                count += 1
        except BlockingIOError:
            return count

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def silent() -> Iterator[Silent]:
    silent = Silent()
    yield silent
    silent.close()


@pytest.fixture
def wanted(cluster: InProcessCluster) -> list[FetchPart]:
    """Four parts that r1 has and r2 has not, each to be fetched from a stopped writer or from r1."""
    first, second = cluster.nodes
    second.coordination.suspend()
    parts = [inserted_part("all", first.insert(rows(10 * number))[1]["index"]).name for number in range(4)]
    manifest = first.table().store.manifest
    return [FetchPart(part, manifest(part).content, ("stopped", "r1")) for part in parts]


@pytest.fixture
def fetching(
    cluster: InProcessCluster, silent: Silent, wanted: list[FetchPart], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Exchange]:
    """What fetches for r2."""
    first, second = cluster.nodes
    addresses = {"stopped": silent.address, "r1": first.address}

    def exchanging() -> Exchange:
        return Exchange(second.table().store, lambda name, _: Peer(addresses[name], TOKEN, "t"), 2)

    # The first fetch loads modules on both sides, for longer than the tests bear silence.
    last, loading = FetchPart(wanted[3].part, wanted[3].content_hash, ("r1",)), exchanging()
    assert loading.fetch([last]) == (Fetched(last.part),)
    loading.close()
    monkeypatch.setattr(exchange, "SILENCE_S_MAX", SILENCE_S)
    fetching = exchanging()
    yield fetching
    fetching.close()
    second.coordination.resume()


def test_another_source_is_asked_and_the_silent_one_not_again_for_a_while(
    fetching: Exchange, wanted: list[FetchPart], silent: Silent
) -> None:
    assert fetching.fetch(wanted[:1]) == (Fetched(wanted[0].part),)
    assert silent.callers() == 1
    assert fetching.fetch(wanted[1:2]) == (Fetched(wanted[1].part),)
    assert silent.callers() == 0


def test_a_silent_source_is_asked_again_after_a_while(
    fetching: Exchange, wanted: list[FetchPart], silent: Silent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "AVOIDED_S", 0.0)
    for fetch in wanted[:2]:
        assert fetching.fetch([fetch]) == (Fetched(fetch.part),)
        assert silent.callers() >= 1


def test_one_who_has_no_other_source_hears_soon_that_it_is_silent(
    fetching: Exchange, wanted: list[FetchPart], silent: Silent
) -> None:
    only = FetchPart(wanted[0].part, wanted[0].content_hash, ("stopped",))
    begun = time.monotonic()
    for _ in range(20):
        (outcome,) = fetching.fetch([only])
        assert isinstance(outcome, NotFetched)
        assert "silent" in outcome.reason
    assert silent.callers() == 1
    assert time.monotonic() - begun < 20 * SILENCE_S
