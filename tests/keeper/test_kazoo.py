"""kazoo, unchanged, with the core behind a TCP port: what its client relies on, and some of its recipes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NoAuthError, NoNodeError, NotEmptyError, RolledBackError
from kazoo.security import make_digest_acl

from replitree.coordination.embedded import LOCALHOST
from tests.keeper.server import TcpKeeper, served
from tests.waiting import wait_for

TIMEOUT_S = 30.0
"""Of sessions: a busy machine must not end one."""

RETRY = {"max_tries": -1, "delay": 0.02, "max_delay": 0.5}
"""After a lost connection: until it is there again."""


@pytest.fixture
def server() -> Iterator[TcpKeeper]:
    with served() as keeper:
        yield keeper
        assert keeper.front.faults == []


@pytest.fixture
def connect(server: TcpKeeper) -> Iterator[Callable[..., Any]]:
    with ExitStack() as stack:

        def client(**options: Any) -> Any:
            made = KazooClient(f"{LOCALHOST}:{server.port}", timeout=TIMEOUT_S, command_retry=RETRY, **options)
            made.start(60)
            stack.callback(made.close)
            stack.callback(made.stop)
            return made

        yield client


def test_nodes_are_created_changed_read_and_deleted(connect: Callable[..., Any]) -> None:
    client = connect()
    assert client.create("/a/b", b"one", makepath=True) == "/a/b"
    stat = client.set("/a/b", b"two")
    assert client.get("/a/b") == (b"two", stat)
    with pytest.raises(BadVersionError):
        client.set("/a/b", b"three", version=0)
    with pytest.raises(NotEmptyError):
        client.delete("/a")
    client.delete("/a", recursive=True)
    assert client.exists("/a") is None
    assert client.create("/s-", sequence=True, ephemeral=True) == "/s-0000000001"


def test_a_transaction_applies_as_a_whole_or_not_at_all(connect: Callable[..., Any]) -> None:
    client = connect()
    done = client.transaction()
    done.create("/a", b"x")
    done.set_data("/a", b"y")
    assert done.commit()[0] == "/a"
    failed = client.transaction()
    failed.create("/b")
    failed.delete("/none")
    rolled_back, missing = failed.commit()
    assert isinstance(rolled_back, RolledBackError)
    assert isinstance(missing, NoNodeError)
    assert client.exists("/b") is None


def test_watches_survive_a_connection_that_is_lost(connect: Callable[..., Any], server: TcpKeeper) -> None:
    client, other = connect(), connect()
    client.create("/watched")
    data, children = list[bytes](), list[list[str]]()
    client.DataWatch("/watched", lambda value, _stat: data.append(value))
    client.ChildrenWatch("/watched", lambda names: children.append(sorted(names)))
    session = client.client_id
    server.cut()
    other.retry(other.set, "/watched", b"new")
    other.retry(other.ensure_path, "/watched/child")
    wait_for(lambda: data[-1:] == [b"new"] and children[-1:] == [["child"]])
    assert client.client_id[0] == session[0]


def test_ephemeral_nodes_end_with_their_session(connect: Callable[..., Any]) -> None:
    one, two = connect(), connect()
    one.create("/e", ephemeral=True)
    gone = two.handler.event_object()
    assert two.exists("/e", watch=lambda _event: gone.set())
    one.stop()
    assert gone.wait(60)
    assert two.exists("/e") is None


def test_access_is_refused_without_the_digest(connect: Callable[..., Any]) -> None:
    owner, stranger = connect(auth_data=[("digest", "u:p")]), connect()
    owner.create("/mine", b"x", acl=[make_digest_acl("u", "p", all=True)])
    assert owner.get("/mine")[0] == b"x"
    with pytest.raises(NoAuthError):
        stranger.get("/mine")


def test_a_lock_is_held_by_one_client_at_a_time_and_a_counter_loses_nothing(connect: Callable[..., Any]) -> None:
    one, two = connect(), connect()
    first, second = one.Lock("/lock", "one"), two.Lock("/lock", "two")
    assert first.acquire(timeout=60)
    assert not second.acquire(blocking=False)
    first.release()
    assert second.acquire(timeout=60)
    second.release()
    for client in (one, two, one):
        counter = client.Counter("/count")
        counter += 2
    assert one.Counter("/count").value == 6
