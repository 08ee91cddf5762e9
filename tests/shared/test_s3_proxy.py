"""The proxy before a store does to requests what it says, and what our client makes of it."""

from __future__ import annotations

import gc
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from replitree.coordination.embedded import LOCALHOST
from replitree.errors import StoreError
from replitree.storage.objects import ObjectStore, StoreInDoubt, open_store
from tests.shared.s3_proxy import CALM, Ill, Mix, S3Proxy
from tests.storage.objects.s3_server import BUCKET, S3Server
from tests.storage.objects.seaweed import KEYS
from tests.waiting import wait_for


@pytest.fixture
def server() -> Iterator[S3Server]:
    with S3Server() as made:
        yield made


@pytest.fixture
def proxy(server: S3Server) -> Iterator[S3Proxy]:
    made = S3Proxy(urlsplit(server.endpoint).port or 0)
    yield made
    made.close()


def opened(proxy: S3Proxy, patience_s: float = 0.0) -> ObjectStore:
    return open_store(
        f"s3://{BUCKET}/p?endpoint={proxy.endpoint}", environment=KEYS, patience_s=patience_s, wait=lambda _: None
    )


def only(ill: Ill) -> Mix:
    return Mix(((ill, 1.0),), 0.01)


def test_what_nothing_happens_to_passes_as_it_is(proxy: S3Proxy) -> None:
    store = opened(proxy)
    store.create("a", b"x" * 100_000)
    assert store.get("a") == b"x" * 100_000
    assert store.get_range("a", 3, 4) == b"xxxx"
    assert [info.key for info in store.list()] == ["a"]
    store.delete(["a"])
    assert store.get("a") is None
    assert set(proxy.done) == {None}


@pytest.mark.parametrize(
    ("ill", "is_done"),
    [
        (Ill.LOSE_REQUEST, False),
        (Ill.SLOW_DOWN, False),
        (Ill.LOSE_ANSWER, True),
        (Ill.CUT_ANSWER, True),
        (Ill.ERROR_AFTER, True),
    ],
)
def test_an_answer_that_does_not_come_leaves_it_open_whether_it_was_done(
    proxy: S3Proxy, server: S3Server, ill: Ill, is_done: bool
) -> None:
    store = opened(proxy)
    proxy.mix = only(ill)
    with pytest.raises(StoreInDoubt):
        store.create("a", b"x")
    assert ("p/a" in server.state.objects) == is_done
    assert set(proxy.done) == {ill}


def test_a_late_request_is_done_when_nobody_waits_for_it_any_more(proxy: S3Proxy, server: S3Server) -> None:
    proxy.mix = only(Ill.LATE)
    with pytest.raises(StoreInDoubt):
        opened(proxy).create("a", b"x")
    assert proxy.late == 1
    wait_for(lambda: "p/a" in server.state.objects, "the store hears of it")
    wait_for(lambda: not proxy.late, "nothing is late any more")


def test_a_delay_changes_nothing(proxy: S3Proxy) -> None:
    proxy.mix = only(Ill.DELAY)
    store = opened(proxy)
    store.create("a", b"x")
    assert store.get("a") == b"x"


def test_a_patient_client_has_its_way_through_all_of_them(proxy: S3Proxy) -> None:
    store = opened(proxy, patience_s=60.0)
    proxy.mix = Mix.even(0.05, 0.01)
    for number in range(20):
        store.create(f"k{number}", f"{number}".encode())
        assert store.get(f"k{number}") == f"{number}".encode()
    assert set(proxy.done) >= {Ill.LOSE_ANSWER, Ill.ERROR_AFTER, Ill.SLOW_DOWN}


def test_a_proxy_that_refuses_lets_nothing_through(proxy: S3Proxy, server: S3Server) -> None:
    store = opened(proxy)
    store.create("a", b"x")
    proxy.is_refusing = True
    with pytest.raises(StoreError):
        store.get("a")
    proxy.is_refusing, proxy.mix = False, CALM
    assert store.get("a") == b"x"
    assert len(server.state.requests) == 2


def test_a_client_that_leaves_does_not_end_what_the_store_still_does() -> None:
    with socket.create_server((LOCALHOST, 0)) as store:
        proxy = S3Proxy(store.getsockname()[1])

        def ask() -> tuple[socket.socket, socket.socket]:
            """Send a request; return the client's end and the store's, when the request has reached the store."""
            client = socket.create_connection((LOCALHOST, proxy.port))
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            accepted, _ = store.accept()
            assert accepted.recv(100)
            return client, accepted

        client, first = ask()
        client.close()
        # The proxy has seen that the client left when it has carried another request.
        others = ask()
        gc.collect()
        more = ask()
        first.setblocking(False)
        with first, pytest.raises(BlockingIOError):  # the connection is open
            first.recv(1)
        for end in (*others, *more):
            end.close()
        proxy.close()
