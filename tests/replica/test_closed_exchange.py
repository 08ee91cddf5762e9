"""A replica that is stopped: its exchange sends nothing any more, keeps nobody waiting, and leaves no connection open."""

from __future__ import annotations

import http.client
import http.server
import socket
import threading
from collections.abc import Iterator

import pytest
from typing_extensions import override

from replitree.protocol.core.effects import FetchPart, NotFetched
from replitree.replica.http import http_exchange
from replitree.replica.perform import exchange
from replitree.replica.perform.exchange import IN_CLEAR, Exchange, Peer
from replitree.replica.perform.peer_connections import Closed, PeerConnections
from tests.replica.inprocess import TOKEN, InProcessCluster
from tests.replica.test_silent_source import Silent

ENOUGH_S = 20.0


@pytest.fixture
def source() -> Iterator[Silent]:
    """Counts who calls."""
    source = Silent()
    yield source
    source.close()


def test_after_the_end_nothing_is_asked_for_and_it_is_said_why(
    cluster: InProcessCluster, wanted: FetchPart, source: Silent
) -> None:
    second = cluster.nodes[1]
    looked_up: list[str] = []

    def peer(name: str, _fresh: bool) -> Peer:
        looked_up.append(name)
        return Peer(source.address, TOKEN, "t")

    closed = Exchange(second.table().store, peer, 2)
    closed.close()
    other = FetchPart("p_9_9_0", wanted.content_hash, ("r3",))
    for fetches in ((wanted,), (wanted, other)):  # of one source, and of several side by side
        for outcome in closed.fetch(fetches):
            assert isinstance(outcome, NotFetched)
            assert outcome.reason == str(Closed())
    assert looked_up == [], "coordination is not asked any more, either"
    closed.begin(wanted)
    assert closed.manifest_of("r1", wanted.part) is None
    assert source.callers() == 0
    assert second.table().store.fetches() == ()
    second.coordination.resume()


def test_a_connection_that_its_thread_still_has_is_not_opened_again(source: Silent) -> None:
    connections = PeerConnections(ENOUGH_S)
    kept = connections.to(source.address, IN_CLEAR)
    kept.request("GET", "/")
    connections.close()
    assert source.callers() == 1
    with pytest.raises(Closed, match="started again"):
        kept.request("GET", "/")
    with pytest.raises(Closed):
        connections.to(source.address, IN_CLEAR)
    assert source.callers() == 0


def test_a_connection_that_is_being_opened_at_the_end_is_closed(
    source: Silent, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections = PeerConnections(ENOUGH_S)
    connect = socket.create_connection
    opened: list[socket.socket] = []

    def connect_late(*arguments: object) -> socket.socket:
        connections.close()
        opened.append(connect(*arguments))  # type: ignore[arg-type] # whatever http.client gives
        return opened[0]

    monkeypatch.setattr(socket, "create_connection", connect_late)
    with pytest.raises(Closed):
        connections.to(source.address, IN_CLEAR).request("GET", "/")
    assert [each.fileno() for each in opened] == [-1]


class Halting(http.server.ThreadingHTTPServer):
    """Passes requests on to a replica; those for files wait until they are let go."""

    def __init__(self, address: str) -> None:
        super().__init__(("127.0.0.1", 0), _PassOn)
        self.address = address
        self.reached = threading.Event()
        self.go_on = threading.Event()
        self.files = 0


class _PassOn(http.server.BaseHTTPRequestHandler):
    server: Halting

    def do_GET(self) -> None:
        if "/files/" in self.path:
            self.server.files += 1
            self.server.reached.set()
            assert self.server.go_on.wait(ENOUGH_S)
        asked = http.client.HTTPConnection(self.server.address, timeout=ENOUGH_S)
        asked.request("GET", self.path, headers=dict(self.headers))
        answer = asked.getresponse()
        body = answer.read()
        asked.close()
        self.send_response(answer.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def halting(cluster: InProcessCluster) -> Iterator[Halting]:
    server = Halting(cluster.nodes[0].address)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.go_on.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.timeout(60)
def test_the_end_in_the_middle_of_a_large_part_keeps_nobody_waiting(
    cluster: InProcessCluster, wanted: FetchPart, halting: Halting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_exchange, "BUNDLE_INLINE_BYTES", 0)
    monkeypatch.setattr(exchange, "RANGE_BYTES", 100)
    second = cluster.nodes[1]
    ending = Exchange(
        second.table().store, lambda _name, _fresh: Peer(f"127.0.0.1:{halting.server_port}", TOKEN, "t"), 1
    )
    refuse, refused = PeerConnections.refuse, threading.Event()

    def refuse_and_tell(connections: PeerConnections) -> None:
        refuse(connections)
        refused.set()

    monkeypatch.setattr(PeerConnections, "refuse", refuse_and_tell)
    outcomes: list[object] = []
    fetching = threading.Thread(target=lambda: outcomes.extend(ending.fetch((wanted,))), daemon=True)
    fetching.start()
    assert halting.reached.wait(ENOUGH_S), "the first range is under way, and others wait behind it"
    closing = threading.Thread(target=ending.close, daemon=True)
    closing.start()
    assert refused.wait(ENOUGH_S)
    halting.go_on.set()
    for thread in (closing, fetching):
        thread.join(ENOUGH_S)
        assert not thread.is_alive()
    (outcome,) = outcomes
    assert isinstance(outcome, NotFetched)
    assert outcome.reason == str(Closed())
    assert halting.files == 1
    ranges = list(second.table().store.fetched.begin(wanted.part).glob("*.done"))
    assert len(ranges) == 1, "what has arrived is not asked for again"
    second.coordination.resume()
