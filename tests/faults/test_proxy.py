"""The proxy does to a connection what its conditions say, and nothing else."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from typing_extensions import override

from replitree.coordination.embedded import LOCALHOST, free_ports
from tests.faults.proxy import HELD, Condition, Link, Network

PATIENCE_S = 10.0
A_MOMENT_S = 0.05
"""So long is looked for what must not come.  Too short a look can miss a defect, never invent one."""


@dataclass
class Echo:
    """A server that sends back what it gets, and remembers it."""

    received: bytearray = field(default_factory=bytearray)
    connections: int = 0
    came: threading.Condition = field(default_factory=threading.Condition)
    port: int = 0

    def wait_for(self, data: bytes) -> bool:
        with self.came:
            return self.came.wait_for(lambda: data in self.received, PATIENCE_S)


@pytest.fixture
def echo() -> Iterator[Echo]:
    state = Echo()

    class Handler(socketserver.BaseRequestHandler):
        @override
        def handle(self) -> None:
            with state.came:
                state.connections += 1
            try:
                while data := self.request.recv(1 << 16):
                    with state.came:
                        state.received += data
                        state.came.notify_all()
                    self.request.sendall(data)
            except OSError:
                return

    server = socketserver.ThreadingTCPServer((LOCALHOST, 0), Handler)
    server.daemon_threads = True
    state.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield state
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def network() -> Iterator[Network]:
    network = Network()
    yield network
    network.close()


@dataclass
class Way:
    """A link to the echo, and how to go there."""

    link: Link
    port: int

    def connect(self, source: str = LOCALHOST) -> socket.socket:
        return socket.create_connection((LOCALHOST, self.port), PATIENCE_S, (source, 0))


@pytest.fixture
def way(network: Network, echo: Echo) -> Way:
    link = network.link("a", "b")
    (port,) = free_ports(1)
    network.front({"": link}, port, echo.port)
    return Way(link, port)


def receive(end: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = end.recv(size - len(data))
        if not piece:
            break
        data += piece
    return data


def hears_nothing(end: socket.socket) -> bool:
    end.settimeout(A_MOMENT_S)
    try:
        return end.recv(1) == b"never"
    except TimeoutError:
        return True
    finally:
        end.settimeout(PATIENCE_S)


def test_what_is_sent_arrives_whole_in_both_directions(way: Way) -> None:
    data = bytes(range(256)) * 20_000
    with way.connect() as end:
        sender = threading.Thread(target=end.sendall, args=(data,))
        sender.start()
        assert receive(end, len(data)) == data
        sender.join()
        end.shutdown(socket.SHUT_WR)
        assert end.recv(1) == b""
    assert way.link.passed == [len(data), len(data)]
    assert way.link.head == data[:64]


def test_what_is_held_comes_late(way: Way, echo: Echo) -> None:
    with way.connect() as end:
        end.sendall(b"first")
        assert receive(end, 5) == b"first"
        way.link.impose(HELD)
        end.sendall(b"second")
        assert hears_nothing(end)
        assert echo.received == b"first"
        way.link.lift(HELD)
        assert receive(end, 6) == b"second"


def test_one_way_up_the_target_hears_nothing(way: Way, echo: Echo) -> None:
    with way.connect() as end:
        end.sendall(b"first")
        assert receive(end, 5) == b"first"
        way.link.impose(HELD, down=False)
        end.sendall(b"second")
        assert hears_nothing(end)
        assert echo.received == b"first"


def test_one_way_down_the_target_hears_and_its_answer_does_not_come(way: Way, echo: Echo) -> None:
    with way.connect() as end:
        end.sendall(b"first")
        assert receive(end, 5) == b"first"
        way.link.impose(HELD, up=False)
        end.sendall(b"second")
        assert echo.wait_for(b"second")
        assert hears_nothing(end)
        way.link.clear()
        assert receive(end, 6) == b"second"


def test_a_new_connection_waits_while_the_link_is_held(way: Way, echo: Echo) -> None:
    way.link.impose(HELD, up=False)
    with way.connect() as end:
        end.sendall(b"hello")
        assert hears_nothing(end)
        assert echo.connections == 0
        way.link.clear()
        assert receive(end, 5) == b"hello"


def test_a_link_is_held_as_long_as_anybody_holds_it(way: Way) -> None:
    way.link.impose(HELD)
    way.link.impose(HELD, down=False)
    way.link.lift(HELD)
    with way.connect() as end:
        end.sendall(b"hello")
        assert hears_nothing(end)
        way.link.lift(HELD, down=False)
        assert receive(end, 5) == b"hello"


def test_a_reset_ends_connections_and_loses_what_is_held(way: Way, echo: Echo) -> None:
    with way.connect() as end:
        end.sendall(b"first")
        assert receive(end, 5) == b"first"
        way.link.impose(HELD, down=False)
        end.sendall(b"second")
        way.link.reset()
        with pytest.raises(ConnectionError):
            receive(end, 1)
        way.link.clear()
    with way.connect() as end:
        end.sendall(b"third")
        assert receive(end, 5) == b"third"
    assert echo.received == b"firstthird"


def test_a_link_that_refuses_resets_new_connections_and_leaves_old_ones(way: Way, echo: Echo) -> None:
    with way.connect() as old:
        old.sendall(b"first")
        assert receive(old, 5) == b"first"
        way.link.refuse(refusing=True)
        with pytest.raises(ConnectionError), way.connect() as new:
            receive(new, 1)
        old.sendall(b"second")
        assert receive(old, 6) == b"second"
    assert echo.connections == 1


def test_a_slow_link_takes_its_time(way: Way) -> None:
    with way.connect() as end:
        began = time.monotonic()
        end.sendall(b"quick")
        assert receive(end, 5) == b"quick"
        way.link.impose(Condition(delay_s=0.1))
        began = time.monotonic()
        end.sendall(b"slow")
        assert receive(end, 4) == b"slow"
        assert time.monotonic() - began >= 0.2


def test_a_narrow_link_lets_so_many_bytes_through_in_a_second(way: Way) -> None:
    way.link.impose(Condition(bytes_per_s=1_000_000), up=False)
    data = bytes(200_000)
    with way.connect() as end:
        began = time.monotonic()
        sender = threading.Thread(target=end.sendall, args=(data,))
        sender.start()
        assert receive(end, len(data)) == data
        assert time.monotonic() - began >= 0.2
        sender.join()


def test_who_calls_is_known_by_the_address_of_the_call(network: Network, echo: Echo) -> None:
    mine, others = network.link("mine", "b"), network.link("others", "b")
    (port,) = free_ports(1)
    network.front({"127.0.1.1": mine, "": others}, port, echo.port)
    mine.impose(HELD)
    way = Way(others, port)
    with way.connect("127.0.1.1") as cut, way.connect() as whole:
        cut.sendall(b"cut")
        whole.sendall(b"whole")
        assert receive(whole, 5) == b"whole"
        assert hears_nothing(cut)
    assert echo.received == b"whole"


def test_a_target_that_does_not_listen_ends_the_connection(network: Network) -> None:
    port, nobody = free_ports(2)
    link = network.link("a", "b")
    network.front({"": link}, port, nobody)
    heard = b""
    with contextlib.suppress(ConnectionError), Way(link, port).connect() as end:  # it may end before it has begun
        heard = end.recv(1)
    assert heard == b""
    assert link.accepted == 1
