"""Bytes of a connection: several answers that arrive together, one that arrives in pieces, and calls that are spared."""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.exceptions import ConnectionDropped
from kazoo.handlers.threading import KazooTimeoutError

from replitree.coordination.frames import AHEAD_BYTES_MAX, Frames
from replitree.coordination.port import READS_MAX
from replitree.protocol.core import effects as fx
from tests.coordination.conftest import ZooKeeperProvider

TIMEOUT_S = 5.0
Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Our end, which does not block, and the server's."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


class Waits:
    """Waits for sockets, and counts."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, *arguments: Any) -> Any:
        self.count += 1
        return select.select(*arguments)


def frame(text: bytes) -> bytes:
    return struct.pack("!i", len(text)) + text


def take(frames: Frames, ours: socket.socket) -> bytes:
    return frames.read(ours, struct.unpack("!i", frames.read(ours, 4, TIMEOUT_S))[0], TIMEOUT_S)


def test_answers_that_arrive_together_are_read_at_once_and_waited_for_never(pair: Pair) -> None:
    ours, theirs = pair
    waits = Waits()
    frames = Frames(waits)
    theirs.sendall(frame(b"one") + frame(b"") + frame(b"three") + frame(b"four")[:6])
    frames.read_ahead(ours)
    assert [take(frames, ours) for _ in range(3) if frames.has_frame] == [b"one", b"", b"three"]
    assert not frames.has_frame
    assert waits.count == 0


def test_an_answer_that_arrives_in_pieces_is_waited_for(pair: Pair) -> None:
    ours, theirs = pair
    frames, whole = Frames(select.select), frame(b"x" * (3 * AHEAD_BYTES_MAX)) + frame(b"next")
    theirs.sendall(whole[:2])
    frames.read_ahead(ours)
    assert not frames.has_frame
    theirs.sendall(whole[2:])
    frames.read_ahead(ours)
    assert not frames.has_frame
    assert len(take(frames, ours)) == 3 * AHEAD_BYTES_MAX
    assert take(frames, ours) == b"next"


def test_nothing_is_taken_beyond_what_the_beginning_of_a_session_asks_for(pair: Pair) -> None:
    ours, theirs = pair
    frames = Frames(select.select)
    theirs.sendall(frame(b"hello") + frame(b"event"))
    assert take(frames, ours) == b"hello"
    assert ours.recv(100) == frame(b"event")


def test_bytes_that_do_not_come_and_a_connection_that_has_ended_are_told_apart(pair: Pair) -> None:
    ours, theirs = pair
    frames = Frames(select.select)
    frames.read_ahead(ours)
    assert not frames.has_frame
    with pytest.raises(KazooTimeoutError):
        frames.read(ours, 1, 0.0)
    theirs.close()
    with pytest.raises(ConnectionDropped):
        frames.read(ours, 1, TIMEOUT_S)
    with pytest.raises(ConnectionDropped):
        frames.write(ours, b"request", TIMEOUT_S)


def test_a_request_waits_only_where_there_is_no_room_for_it(pair: Pair) -> None:
    ours, theirs = pair
    waits = Waits()
    frames = Frames(waits)
    frames.write(ours, b"request", TIMEOUT_S)
    assert theirs.recv(100) == b"request"
    assert waits.count == 0
    with pytest.raises(KazooTimeoutError):
        frames.write(ours, bytes(1 << 24), 0.0)
    assert waits.count == 1


@pytest.mark.system
def test_answers_of_a_server_that_arrive_together_are_all_had_at_once(real: ZooKeeperProvider) -> None:
    zk = real.connect(session_timeout_s=40.0)  # no ping wakes kazoo's thread before the reads are out of time
    paths = tuple(f"{real.root}/{number}" for number in range(2 * READS_MAX))
    zk.perform(fx.Commit(*(fx.Create(path, path.encode()) for path in paths)))
    real.proxy(zk).gathered = 3
    many = zk.perform(fx.GetMany(paths, watch=paths[0]))
    assert [node and node.value for node in many.nodes] == [path.encode() for path in paths]
    assert many.watched
    assert real.proxy(zk).gathered == 0
