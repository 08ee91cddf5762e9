"""What only a real ZooKeeper can show: doubt, time limits, credentials, sessions that end behind our back."""

from __future__ import annotations

import logging
import math
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path

import pytest

from replitree.coordination.embedded import LOCALHOST, EmbeddedZooKeeper
from replitree.coordination.port import READS_MAX, REQUEST_BYTES_MAX, Connected, SessionLost, Suspended, make_root
from replitree.coordination.url import AUTH_VARIABLE
from replitree.coordination.zookeeper import PIPELINE_MAX, ZooKeeperCoordination
from replitree.errors import BadInput, CoordinationUnavailable, NotAuthorized
from replitree.protocol.core import effects as fx
from tests.coordination.conftest import ZooKeeperProvider
from tests.coordination.proxy import Fault
from tests.coordination.waiting import PATIENCE_S, Recorder, eventually
from tests.waiting import stop_process

pytestmark = pytest.mark.system

SECRET = "tr0ub4dor&3"
SLACK_S = 3.0
"""What a busy machine may add to a time limit."""

# --- doubt ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "applied"),
    [(Fault.CUT_BEFORE_REQUEST, False), (Fault.CUT_BEFORE_ANSWER, True), (Fault.SWALLOW_ANSWER, True)],
    ids=lambda value: value.name if isinstance(value, Fault) else "",
)
def test_a_commit_without_an_answer_is_unknown_and_not_repeated(
    real: ZooKeeperProvider, fault: Fault, applied: bool
) -> None:
    zk, other = real.connect(), real.connect()
    proxy = real.proxy(zk)
    proxy.fault = fault
    begun = time.monotonic()
    assert isinstance(zk.perform(fx.Commit(fx.Create(f"{real.root}/n-", sequential=True))), fx.Unknown)
    assert time.monotonic() - begun < 5.0 + SLACK_S
    eventually(lambda: len(other.perform(fx.Children(real.root)) or ()) == applied)
    zk.reconnect()
    assert zk.perform(fx.Children(real.root)) == (("n-0000000000",) if applied else ())
    assert proxy.requests["commit"] == applied


@pytest.mark.parametrize("fault", [Fault.CUT_BEFORE_REQUEST, Fault.CUT_BEFORE_ANSWER])
def test_a_read_whose_connection_is_lost_is_asked_again(real: ZooKeeperProvider, fault: Fault) -> None:
    zk = real.connect()
    assert zk.perform(fx.Commit(fx.Create(f"{real.root}/kept", b"k"))) == fx.Applied((f"{real.root}/kept",))
    proxy, session = real.proxy(zk), zk.session_id
    for read, victim in (
        (fx.Get(f"{real.root}/kept"), "get"),
        (fx.Sync("/"), "sync"),
        (fx.Children(real.root), "children"),
    ):
        expected, proxy.victim, proxy.fault = zk.perform(read), victim, fault
        assert zk.perform(read) == expected
        assert proxy.fault is Fault.NONE, "nothing was cut"
    assert zk.session_id == session


def test_a_commit_without_a_connection_is_unknown_and_a_read_unavailable(real: ZooKeeperProvider) -> None:
    zk = ZooKeeperCoordination(real.connect().url, operation_timeout_s=0.2)
    heard = Recorder()
    zk.add_listener(heard)
    for proxy in real.proxies():
        proxy.cut()
    heard.wait_for(Suspended())
    begun = time.monotonic()
    assert zk.perform(fx.Commit(fx.Create(f"{real.root}/a"))) == fx.Unknown(is_sent=False)
    reads = (
        fx.Get("/a"),
        fx.GetMany(("/a",)),
        fx.Exists("/a"),
        fx.Children("/a"),
        fx.ChildrenMany(("/a",)),
        fx.NextNumber("/a"),
        fx.Sync("/a"),
    )
    for read in reads:
        with pytest.raises(CoordinationUnavailable, match="no connection"):
            zk.perform(read)
    assert time.monotonic() - begun < (1 + len(reads)) * 0.2 + SLACK_S
    assert sum(zk.requests.values()) == 0
    zk.close()


def test_waiting_requests_without_end_do_not_block_for_good(real: ZooKeeperProvider) -> None:
    """kazoo's own wake-up is full after some 280 requests, and then every caller waits for ever."""
    zk = ZooKeeperCoordination(real.connect().url, operation_timeout_s=0.5)
    paths = tuple(f"{real.root}/{number}" for number in range(700))
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            with suppress(CoordinationUnavailable):
                zk.perform(fx.GetMany(paths))

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    heard = Recorder()
    zk.add_listener(heard)
    for _ in range(5):
        heard.events.clear()
        for proxy in real.proxies():
            proxy.cut()
        heard.wait_for(Suspended())
        for proxy in real.proxies():
            proxy.mend()
        heard.wait_for(Suspended(), Connected())
    stop.set()
    for reader in readers:
        reader.join(PATIENCE_S)
    assert not any(reader.is_alive() for reader in readers)
    names = count()  # on a busy machine half a second may be too short for a commit
    eventually(lambda: isinstance(zk.perform(fx.Commit(fx.Create(f"{real.root}/after-{next(names)}"))), fx.Applied))
    zk.close()


def test_a_session_that_was_replaced_silently_is_lost(real: ZooKeeperProvider) -> None:
    """A client that comes back with another session number must not go on as if nothing had happened."""
    zk = real.connect()
    heard = Recorder()
    zk.add_listener(heard)
    before = zk.session_id
    real.suspend(zk)
    heard.wait_for(Suspended())
    real.proxy(zk).fault = Fault.FORGET_SESSION
    real.resume(zk)
    heard.wait_for(Suspended(), SessionLost())
    assert isinstance(zk.perform(fx.Commit(fx.Create(f"{real.root}/a", ephemeral=True))), fx.Unknown)
    with pytest.raises(CoordinationUnavailable, match="reconnect"):
        zk.perform(fx.Get(real.root))
    zk.reconnect()
    assert zk.session_id != before
    assert zk.perform(fx.Children(real.root)) == ()


def test_a_commit_whose_answer_is_missing_among_others_is_unknown_and_the_session_goes_on(
    real: ZooKeeperProvider,
) -> None:
    """ZooKeeper does that to a session that has moved meanwhile; kazoo's thread would end with an error of its own."""
    zk, other = real.connect(), real.connect()
    before, heard = zk.session_id, Recorder()
    zk.add_listener(heard)
    real.proxy(zk).fault = Fault.SKIP_ANSWER
    outcomes: list[object] = []
    committing = threading.Thread(target=lambda: outcomes.append(zk.perform(fx.Commit(fx.Create(f"{real.root}/a")))))
    committing.start()
    eventually(lambda: other.perform(fx.Exists(f"{real.root}/a")))
    with suppress(CoordinationUnavailable):
        zk.perform(fx.Get(real.root))
    committing.join(PATIENCE_S)
    assert outcomes == [fx.Unknown()]
    heard.wait_for(Suspended(), Connected())
    assert zk.perform(fx.Children(real.root)) == ("a",)
    assert zk.session_id == before


def test_a_session_outlives_a_connection_that_is_never_answered(real: ZooKeeperProvider) -> None:
    """A lone ZooKeeper that is connected to while it starts may leave it at that; kazoo waits until the session is over."""
    session_s = 9.0
    zk = real.connect(session_s)
    before, heard = zk.session_id, Recorder()
    zk.add_listener(heard)
    real.suspend(zk)
    heard.wait_for(Suspended())
    real.proxy(zk).fault = Fault.SWALLOW_HELLO
    began = time.monotonic()
    real.resume(zk)
    heard.wait_for(Suspended(), Connected())
    assert time.monotonic() - began < session_s
    assert real.proxy(zk).fault is Fault.NONE
    assert zk.session_id == before
    assert zk.perform(fx.Children(real.root)) == ()


def test_no_two_requests_of_a_session_have_one_number(real: ZooKeeperProvider) -> None:
    """A late commit of the last connection must not be taken for one of this connection."""
    zk = real.connect()
    heard = Recorder()
    zk.add_listener(heard)
    for _ in range(3):
        zk.perform(fx.Get(real.root))
        zk.perform(fx.Exists(real.root))
        heard.events.clear()
        real.suspend(zk)
        heard.wait_for(Suspended())
        real.resume(zk)
        heard.wait_for(Suspended(), Connected())
    assert real.proxy(zk).numbers == [1, 2, 3, 4, 5, 6, 7]


def test_requests_on_the_wire_are_those_that_are_counted(real: ZooKeeperProvider) -> None:
    zk = real.connect()
    heard = Recorder()
    zk.add_listener(heard)
    zk.perform(fx.Commit(fx.Create(f"{real.root}/a"), fx.Create(f"{real.root}/b")))
    zk.perform(fx.GetMany((f"{real.root}/a", f"{real.root}/b"), watch=f"{real.root}/c"))
    zk.perform(fx.Commit(fx.Create(f"{real.root}/c")))
    for effect in (
        fx.Get(real.root),
        fx.Exists(real.root),
        fx.Children(real.root),
        fx.ChildrenMany((real.root,)),
        fx.Sync(real.root),
    ):
        zk.perform(effect)
    assert zk.requests == {"get": 2, "exists": 2, "children": 2, "sync": 1, "commit": 2}
    assert real.proxy(zk).requests == {**zk.requests, "sync": 2}  # the session's first request is its own


def test_more_nodes_than_one_pipeline_holds_are_read(real: ZooKeeperProvider) -> None:
    zk = real.connect()
    count = 2 * PIPELINE_MAX + 1
    names = [f"{real.root}/{number}" for number in range(count)]
    for start in range(0, count, 500):
        zk.perform(fx.Commit(*(fx.Create(name, name.encode()) for name in names[start : start + 500])))
    many = zk.perform(fx.GetMany(tuple(names), watch=names[-1]))
    assert many.nodes == tuple(fx.Node(name.encode(), fx.Version(0)) for name in names)
    assert many.watched
    assert zk.requests["get"] == math.ceil(count / READS_MAX)
    assert len(zk.perform(fx.Children(real.root)) or ()) == count


def test_nodes_read_together_are_as_each_alone(real: ZooKeeperProvider) -> None:
    zk = real.connect()
    paths = [f"{real.root}/empty", f"{real.root}/größe", f"{real.root}/none", f"{real.root}/set"]
    zk.perform(fx.Commit(fx.Create(paths[0]), fx.Create(paths[1], "ü".encode()), fx.Create(paths[3], b"1")))
    zk.perform(fx.Commit(fx.Set(paths[3], bytes(range(256)), fx.Version(0))))
    together = zk.perform(fx.GetMany(tuple(paths))).nodes
    alone = [zk.perform(fx.Get(path)) for path in paths]
    assert list(together) == alone
    assert [node and node.changed_ms for node in together] == [node and node.changed_ms for node in alone]
    assert [node and node.version for node in together] == [0, 0, None, 1]


def test_a_commit_that_is_too_large_is_refused_before_it_is_sent(real: ZooKeeperProvider) -> None:
    zk = real.connect()
    with pytest.raises(BadInput, match="larger"):
        zk.perform(fx.Commit(fx.Create(f"{real.root}/a", bytes(REQUEST_BYTES_MAX))))
    assert zk.perform(fx.Commit(fx.Create(f"{real.root}/a", bytes(REQUEST_BYTES_MAX - 1000)))) == fx.Applied(
        (f"{real.root}/a",)
    )


@pytest.mark.parametrize(
    "effect", [fx.Commit(fx.Create("/a/../b")), fx.Commit(fx.Set("/a\x01b", b"", 0)), fx.Get("/a/./b")]
)
def test_a_path_that_zookeeper_does_not_allow_is_bad_input(
    real: ZooKeeperProvider, effect: fx.CoordinationEffect
) -> None:
    with pytest.raises(BadInput, match="does not allow the path"):
        real.connect().perform(effect)


# --- time limits ----------------------------------------------------------------------------------------------------------


def test_no_server_is_a_clear_error_in_time() -> None:
    threads = set(threading.enumerate())
    with socket.create_server((LOCALHOST, 0)) as free:
        port = free.getsockname()[1]
    begun = time.monotonic()
    with pytest.raises(CoordinationUnavailable, match=f"no ZooKeeper at {LOCALHOST}:{port} answered within 0.5 s"):
        ZooKeeperCoordination(f"zk://{LOCALHOST}:{port}/x", connect_timeout_s=0.5)
    assert time.monotonic() - begun < 0.5 + SLACK_S
    eventually(lambda: set(threading.enumerate()) <= threads, "the end of the client's threads")


def test_a_server_that_accepts_and_says_nothing_is_a_clear_error_in_time() -> None:
    with socket.create_server((LOCALHOST, 0)) as mute:
        begun = time.monotonic()
        with pytest.raises(CoordinationUnavailable, match="answered within"):
            ZooKeeperCoordination(
                f"zk://{LOCALHOST}:{mute.getsockname()[1]}/x", connect_timeout_s=0.5, session_timeout_s=2.0
            )
        assert time.monotonic() - begun < 0.5 + SLACK_S


def test_a_server_that_hangs_blocks_nobody_for_good(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path, durable=False) as server, ExitStack() as later:
        zk = ZooKeeperCoordination(server.url, operation_timeout_s=0.3, connect_timeout_s=0.3, session_timeout_s=30.0)
        pid = server.pid(0)
        assert pid is not None
        stop_process(pid)
        later.callback(os.kill, pid, signal.SIGCONT)
        begun = time.monotonic()
        with pytest.raises(CoordinationUnavailable, match="did not answer"):
            zk.perform(fx.Get("/"))
        assert isinstance(zk.perform(fx.Commit(fx.Create("/late"))), fx.Unknown)
        with pytest.raises(CoordinationUnavailable, match="answered within"):
            zk.reconnect()
        assert time.monotonic() - begun < 0.9 + SLACK_S
        begun = time.monotonic()
        zk.close()
        assert time.monotonic() - begun < 5.0 + SLACK_S


def test_reconnecting_comes_back_after_the_server_was_away(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path, durable=False) as server:
        zk = ZooKeeperCoordination(server.url, operation_timeout_s=0.5, connect_timeout_s=0.5)
        server.kill_server(0)
        with pytest.raises(CoordinationUnavailable):
            zk.reconnect()
        with pytest.raises(CoordinationUnavailable):
            zk.perform(fx.Get("/"))
        assert isinstance(zk.perform(fx.Commit(fx.Check("/", 0))), fx.Unknown)
        server.start_server(0)
        zk.reconnect()
        assert zk.perform(fx.Commit(fx.Check("/", 0))) == fx.Applied()
        zk.close()


def test_a_restart_of_the_server_keeps_the_session(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path, durable=False) as server:
        zk = ZooKeeperCoordination(server.url, session_timeout_s=60.0)  # longer than a restart on a busy machine
        heard = Recorder()
        zk.add_listener(heard)
        assert zk.perform(fx.Commit(fx.Create("/mine", ephemeral=True))) == fx.Applied(("/mine",))
        before = zk.session_id
        server.kill_server(0)
        heard.wait_for(Suspended())
        server.start_server(0)
        heard.wait_for(Suspended(), Connected())
        assert zk.session_id == before
        assert zk.perform(fx.Exists("/mine"))
        zk.close()


def test_close_leaves_no_thread_and_no_open_file(zookeeper: EmbeddedZooKeeper) -> None:
    ZooKeeperCoordination(zookeeper.url).close()  # whatever is imported on the way is imported now
    threads, files = set(threading.enumerate()), _open_files()
    for _ in range(5):
        zk = ZooKeeperCoordination(zookeeper.url)
        zk.add_listener(Recorder())
        zk.reconnect()
        zk.perform(fx.Exists("/"))
        zk.close()
        with pytest.raises(CoordinationUnavailable, match="closed"):
            zk.reconnect()
    eventually(lambda: set(threading.enumerate()) <= threads, "the end of all threads")
    eventually(lambda: _open_files() <= files, "the end of all files")


def test_a_process_with_more_than_a_thousand_open_files_can_connect(zookeeper: EmbeddedZooKeeper) -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limit[0], min(2048, limit[1])), limit[1]))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        zk = ZooKeeperCoordination(zookeeper.url)
        assert zk.perform(fx.Exists("/"))
        zk.close()
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)


def test_a_system_without_counters_for_waking_up_can_connect(
    zookeeper: EmbeddedZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "eventfd", raising=False)
    zk = ZooKeeperCoordination(zookeeper.url)
    assert zk.perform(fx.GetMany(("/",) * 500)).nodes == (fx.Node(b"", fx.Version(0)),) * 500
    zk.close()


def _open_files() -> int:
    files = Path("/proc/self/fd")  # Linux; elsewhere nothing is counted
    return len(list(files.iterdir())) if files.is_dir() else 0


# --- credentials ------------------------------------------------------------------------------------------------------------

Connect = Callable[[str], ZooKeeperCoordination]


@pytest.fixture
def connect(zookeeper: EmbeddedZooKeeper, real: ZooKeeperProvider) -> Iterator[Connect]:
    """Connect with ``user:password``, or as nobody."""
    with ExitStack() as later:

        def connect(who: str) -> ZooKeeperCoordination:
            at = f"{who}@" if who else ""
            zk = ZooKeeperCoordination(f"zk://{at}{LOCALHOST}:{zookeeper.ports[0]}{real.root}")
            later.callback(zk.close)
            return zk

        yield connect


@pytest.mark.parametrize("who", ["", "me:wrong", f"you:{SECRET}"])
def test_nodes_of_one_user_are_closed_to_others(connect: Connect, real: ZooKeeperProvider, who: str) -> None:
    mine, theirs = connect(f"me:{SECRET}"), connect(who)
    make_root(mine, f"{real.root}/secret")
    mine.perform(fx.Commit(fx.Create(f"{real.root}/secret/a", b"rows")))
    path = f"{real.root}/secret"
    for read in (fx.Get(f"{path}/a"), fx.GetMany((f"{path}/a",)), fx.Children(path), fx.ChildrenMany((path,))):
        with pytest.raises(NotAuthorized, match="user and password") as error:
            theirs.perform(read)
        assert SECRET not in str(error.value)
    for write in (
        fx.Set(f"{path}/a", b"", 0),
        fx.Delete(f"{path}/a", 0),
        fx.Create(f"{path}/b"),
        fx.Check(f"{path}/a", 0),
    ):
        with pytest.raises(NotAuthorized, match="user and password"):
            theirs.perform(fx.Commit(write))
    assert mine.perform(fx.Get(f"{path}/a")) == fx.Node(b"rows", fx.Version(0))
    again = connect(f"me:{SECRET}")
    assert again.perform(fx.Commit(fx.Check(path, 0), fx.Set(f"{path}/a", b"more", 0))) == fx.Applied()


def test_credentials_of_the_environment_are_used(
    connect: Connect, real: ZooKeeperProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(f"me:{SECRET}").perform(fx.Commit(fx.Create(f"{real.root}/a", b"rows")))
    monkeypatch.setenv(AUTH_VARIABLE, f"me:{SECRET}")
    assert connect("").perform(fx.Get(f"{real.root}/a")) == fx.Node(b"rows", fx.Version(0))


def test_credentials_outlast_the_connection(real: ZooKeeperProvider) -> None:
    zk = ZooKeeperCoordination(str(real.connect().url).replace("zk://", f"zk://me:{SECRET}@"))
    heard = Recorder()
    zk.add_listener(heard)
    zk.perform(fx.Commit(fx.Create(f"{real.root}/a", b"rows")))
    for proxy in real.proxies():
        proxy.cut()
    heard.wait_for(Suspended())
    for proxy in real.proxies():
        proxy.mend()
    assert zk.perform(fx.Get(f"{real.root}/a")) == fx.Node(b"rows", fx.Version(0))
    zk.reconnect()
    assert zk.perform(fx.Get(f"{real.root}/a")) == fx.Node(b"rows", fx.Version(0))
    zk.close()


def test_the_password_is_in_no_log_and_no_repr(
    connect: Connect, real: ZooKeeperProvider, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(1)
    for name in ("kazoo", "replitree", "replitree.coordination", "replitree.coordination.session"):
        caplog.set_level(logging.DEBUG, logger=name)
    zk = connect(f"me:{SECRET}")
    zk.perform(fx.Commit(fx.Create(f"{real.root}/a", b"rows")))
    zk.reconnect()
    assert caplog.records
    assert SECRET not in caplog.text
    assert "rows" not in caplog.text
    assert SECRET not in f"{zk} {zk!r} {zk.url} {zk.url!r}"
    assert "zk://me@" in repr(zk)
