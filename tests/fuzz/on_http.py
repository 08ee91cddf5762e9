"""Targets: the HTTP server of a replica, its fast path and the general server behind it, over a real connection.

An input is what a stranger sends.  The token is put in where an input has its place-holder, so that most requests get past the
door.  A finding is: a 500, a request that is logged as a defect, a log line with the token or with the bytes of a refused head,
and a server that does not answer afterwards.  A server that speaks TLS gets inputs in place of a handshake; there a finding is
also an answer in clear text that says more than that the port speaks TLS.
"""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from typing_extensions import override

from replitree.replica.kit.logs import LineFormatter
from replitree.tls import HANDSHAKE_BYTE, Contexts, TlsFiles, open_connection, split_address
from tests.fuzz.mutate import Sealed, Shape
from tests.fuzz.target import Read, Target
from tests.replica.inprocess import TOKEN, InProcessCluster

PLACE = b"$TOKEN"
SECRET = "hunter2hunter2hunter2"
"""Stands in the corpus where a token may be wrong, or in a header that is refused: no log line may have it."""

SILENT_S = 0.05
"""A server that says nothing for so long waits for more."""

ANSWER_S_MAX = 30.0
ALIVE_EVERY = 50


class Kept(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(LineFormatter())
        self.lines: list[str] = []

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


def exchange(address: tuple[str, int], data: bytes, silent_s: float = SILENT_S) -> bytes:
    """Send an input, end the sending, and return everything that comes back."""
    answer = bytearray()
    # A server waits for nothing after a whole head without a body, and answers, on a busy machine a while later.
    is_whole = (
        data.startswith(b"GET ") and b"\r\n\r\n" in data and not re.search(rb"(?i)content-|transfer-|expect", data)
    )
    with socket.create_connection(address, timeout=ANSWER_S_MAX) as connection, suppress(ConnectionError):
        connection.sendall(data)
        connection.settimeout(ANSWER_S_MAX if is_whole else silent_s)
        with suppress(TimeoutError):
            while piece := connection.recv(1 << 16):
                answer += piece
                connection.settimeout(silent_s)
        connection.settimeout(ANSWER_S_MAX)
        connection.shutdown(socket.SHUT_WR)
        while piece := connection.recv(1 << 16):
            answer += piece
    return bytes(answer)


def status_in(answer: bytes) -> int:
    found = answer.split(b" ", 2)
    return int(found[1]) if answer.startswith(b"HTTP/1.") and len(found) > 2 and found[1].isdigit() else 0


@contextmanager
def _server(folder: Path) -> Iterator[Read]:
    cluster = InProcessCluster(folder, 1, clean_log_delay_s=3600.0, check_interval_s=0.0)
    cluster.create_table()
    host, _, port = cluster.nodes[0].address.partition(":")
    address, kept, sent = (host, int(port)), Kept(), [0]
    logging.getLogger().addHandler(kept)
    health = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    assert status_in(exchange(address, health, ANSWER_S_MAX)) == 200

    def one(data: bytes) -> bool:
        answer = exchange(address, data.replace(PLACE, TOKEN.encode()))
        assert re.search(rb"HTTP/1.[01] 500", answer) is None, answer[:600]
        logged = "".join(kept.lines)
        kept.lines.clear()
        for word in ("defect", "Traceback", TOKEN, SECRET):
            assert word not in logged, logged[:1500]
        sent[0] += 1
        if sent[0] % ALIVE_EVERY == 0:
            assert status_in(exchange(address, health, ANSWER_S_MAX)) == 200, "the server does not answer"
        return 200 <= status_in(answer) < 300

    yield one


@contextmanager
def _secure_server(folder: Path) -> Iterator[Read]:
    # Here: the targets without certificates do not need what makes them.
    from tests.certificates import Authority

    files = Authority(folder).issue()
    settings: dict[str, Any] = {"tls_ca": files.ca, "tls_certificate": files.certificate, "tls_key": files.key}
    cluster = InProcessCluster(folder, 1, clean_log_delay_s=3600.0, check_interval_s=0.0, **settings)
    url, kept, sent = cluster.nodes[0].address, Kept(), [0]
    host, _, port = split_address(url)[1].partition(":")
    logging.getLogger().addHandler(kept)
    contexts = Contexts(TlsFiles(files.ca))

    def is_alive() -> bool:
        with open_connection(url, contexts, ANSWER_S_MAX) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            return status_in(connection.recv(1 << 16)) == 200

    assert is_alive()

    def one(data: bytes) -> bool:
        answer = exchange((host, int(port)), data.replace(PLACE, TOKEN.encode()))
        status = status_in(answer)
        assert status in (0, 400), answer[:600]
        logged = "".join(kept.lines)
        kept.lines.clear()
        for word in ("defect", "Traceback", TOKEN, SECRET):
            assert word not in logged, logged[:1500]
        sent[0] += 1
        if sent[0] % ALIVE_EVERY == 0:
            assert is_alive(), "the server does not answer"
        # The first byte of its half of a handshake.
        return answer[:1] == bytes([HANDSHAKE_BYTE])

    yield one


def _body(request: bytes) -> bytes:
    return request.partition(b"\r\n\r\n")[2]


def _with_body(request: bytes, body: bytes) -> bytes:
    """Put another body into a request, and its length into the head."""
    head = re.sub(rb"(?i)(content-length: *)\d+", lambda found: found[1] + str(len(body)).encode(), _head(request))
    return head + b"\r\n\r\n" + body


def _head(request: bytes) -> bytes:
    return request.partition(b"\r\n\r\n")[0]


TARGETS = (
    Target("http-head", _server, (), Shape.LINES, share=60, cpu_s_max=20.0),
    Target("tls-hello", _secure_server, (), Shape.BYTES, share=20, cpu_s_max=20.0),
    Target("http-body", _server, (), Shape.JSON, seal=Sealed(_body, _with_body), share=60, cpu_s_max=20.0),
)
