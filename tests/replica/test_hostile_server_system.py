"""A server as a process meets strangers and damaged rows: it lives on, stays small, and its log has nothing of theirs."""

from __future__ import annotations

import contextlib
import json
import random
import socket
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.request import Request, urlopen

import pyarrow as pa
import pytest

from replitree.coordination.embedded import EmbeddedZooKeeper
from tests.replica.hostile_streams import corpus, mutated
from tests.replica.inprocess import SCHEMA, TOKEN, as_stream, rows
from tests.replica.test_fast_path import request
from tests.replica.test_hostile_requests import BOMBS, CASES, INSERT, SECRET_LINE, hostile
from tests.replica.test_server import Process, connect
from tests.storage.support import ipc_stream
from tests.storage.test_plain_arrays import SHORT, view, views

pytestmark = pytest.mark.system

GROWTH_MB_MAX = 30
MUTATED = 300


def resident_mb(pid: int) -> float:
    """Return how much memory a process has."""
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * 4096 / 1e6


def answer(address: tuple[str, int], data: bytes) -> bytes:
    """Send a request and return the beginning of the answer."""
    with closing(socket.create_connection(address, 20)) as connection, contextlib.suppress(ConnectionError):
        connection.sendall(data)
        return connection.recv(12)
    return b""


def insert_works(address: tuple[str, int], first: int) -> bool:
    return answer(address, request(INSERT, as_stream(rows(first)))) == b"HTTP/1.1 200"


def test_a_server_outlives_strangers_and_damaged_rows(tmp_path: Path, zookeeper: EmbeddedZooKeeper) -> None:
    server = Process(tmp_path, f"{zookeeper.url}/hostile")
    host, _, port = str(server.ready()["address"]).partition(":")
    address, pid = (host, int(port)), server.process.pid
    with connect(f"{zookeeper.url}/hostile") as connection:
        connection.create_table("t", SCHEMA, order_by="k")
    assert insert_works(address, 0)
    assert answer(address, request("GET /v1/status")) == b"HTTP/1.1 200"
    before = resident_mb(pid)

    with ExitStack() as stack:
        head = request(INSERT, bytes(1 << 20), token="wrong")[: -(1 << 20)]
        for number in range(400):
            one = stack.enter_context(closing(socket.create_connection(address, 20)))
            with contextlib.suppress(ConnectionError):
                one.sendall(head + bytes(1 << 19) if number % 2 else head[:-10])
        assert insert_works(address, 10)
        assert resident_mb(pid) - before < GROWTH_MB_MAX

    chance, streams = random.Random(21), corpus()
    null_slot = views(SHORT, view(-5), valid=b"\x01")
    bodies = [
        ipc_stream(pa.table({"k": [1, 2], "s": null_slot})),
        *(mutated(chance.choice(streams), chance) for _ in range(MUTATED)),
    ]
    for body in bodies:
        assert answer(address, request(INSERT, body))[9:10] in b"24"
    for name in (*CASES, *BOMBS):
        data, status = hostile(name)
        assert answer(address, data)[9:] == str(status).encode(), name
    assert insert_works(address, 20)

    with urlopen(Request(f"http://{host}:{port}/health")) as health:
        assert json.load(health)["state"] == "ok"
    assert server.process.pid == pid
    assert server.stop() == 0
    log = server.log.read_text(encoding="utf-8")
    assert TOKEN not in log
    assert SECRET_LINE.partition(" ")[2] not in log
    assert "Traceback" not in log
    assert sum("a request was refused" in line for line in log.splitlines()) <= 10
