"""Connections that carry only small inserts and snapshots, and those that turn out to carry something else."""

from __future__ import annotations

import http.client
import io
import json
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, cast

import pytest
from typing_extensions import override

from replitree.replica.http import connections, http_server
from replitree.replica.http.connections import BODY_BYTES_MAX, HEAD_BYTES_MAX, ServedConnection
from replitree.replica.http.heads import Head, parse_head
from replitree.replica.insert import inserts
from replitree.replica.kit.config import IDLE_S_MAX
from replitree.storage.schema.definition import TableSettings
from tests.replica.inprocess import TOKEN, InProcessCluster, Node, as_stream, rows, wait_for

INSERT = "POST /v1/tables/t/insert"


def request(begin: str, body: bytes = b"", *headers: str, token: str = TOKEN) -> bytes:
    lines = (f"{begin} HTTP/1.1", "Host: x", f"Authorization: Bearer {token}", f"Content-Length: {len(body)}", *headers)
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Answers(io.BufferedReader):
    """The bytes of all answers; what was read ahead belongs to the next one, so nobody closes it in between."""

    def makefile(self, _mode: str) -> Answers:
        return self

    @override
    def close(self) -> None:
        """Stay open."""


class Talk:
    """One connection to a node."""

    def __init__(self, node: Node) -> None:
        self.node = node
        host, _, port = node.address.partition(":")
        self.socket = socket.create_connection((host, int(port)), 20)
        self.answers = Answers(socket.SocketIO(self.socket, "r"))

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def hear(self) -> tuple[int, Any]:
        """Read one answer."""
        response = http.client.HTTPResponse(cast("socket.socket", self.answers), method="POST")
        response.begin()
        body = response.read()
        return response.status, json.loads(body) if body.startswith(b"{") else body

    def ask(self, data: bytes) -> tuple[int, Any]:
        self.send(data)
        return self.hear()

    def on_fast_path(self) -> list[ServedConnection]:
        """Return what the fast path has of this connection, if it has it; other replicas connect, too."""
        connections = list(self.node.fast_path.connections)  # its thread goes on meanwhile
        return [connection for connection in connections if connection.peer == self.socket.getsockname()]

    def close(self) -> None:
        self.socket.close()


@pytest.fixture
def talk(cluster: InProcessCluster) -> Iterator[Talk]:
    with talking(cluster.nodes[0]) as talk:
        yield talk


@contextmanager
def talking(node: Node) -> Iterator[Talk]:
    with closing(Talk(node)) as talk:
        yield talk


def inserted(index: int) -> tuple[int, dict[str, object]]:
    return 200, {"outcome": "inserted", "index": index, "rows": 10}


# --- heads ----------------------------------------------------------------------------------------------------------------


def test_a_plain_head_is_read() -> None:
    head = b"POST /v1/tables/a_b/insert?token=x%20y&overwrite=all HTTP/1.1\r\nhost: h\r\nCONTENT-LENGTH:  12 \r\naccept: */*"
    assert parse_head(head) == Head("insert", "a_b", "token=x%20y&overwrite=all", "", 12)


@pytest.mark.parametrize(
    "head",
    [
        b"GET /v1/tables/t/insert HTTP/1.1\r\nContent-Length: 1",
        b"POST /v1/tables/t/snapshot HTTP/1.1\r\nContent-Length: 1",
        b"GET /v1/tables/t/snapshot HTTP/1.0",
        b"POST /v1/tables/t/insert HTTP/1.0\r\nContent-Length: 1",
        b"POST /v1/tables/../insert HTTP/1.1\r\nContent-Length: 1",
        b"POST /v1/tables/t/insert/more HTTP/1.1\r\nContent-Length: 1",
        b"POST /v1/tables/t/insert HTTP/1.1",
        b"POST /v1/tables/t/insert HTTP/1.1\r\nContent-Length: -1",
        b"POST /v1/tables/t/insert HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2",
        b"POST /v1/tables/t/insert HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked",
        b"POST /v1/tables/t/insert HTTP/1.1\r\nContent-Length: 1\r\nExpect: 100-continue",
        b"POST /v1/tables/t/insert HTTP/1.1\r\nContent-Length: 1\r\nConnection: close",
        b"POST /v1/tables/t/insert HTTP/1.1\r\nContent-Length: 1\r\n folded",
        b"POST /v1/tables/t/insert HTTP/1.1\r\nContent-Length: 1\r\nX: \xff",
    ],
)
def test_whatever_is_unusual_is_left_to_the_general_server(head: bytes) -> None:
    assert parse_head(head) is None


# --- on the fast path -----------------------------------------------------------------------------------------------------


def test_a_connection_stays_on_the_fast_path_as_long_as_it_carries_inserts(
    cluster: InProcessCluster, talk: Talk
) -> None:
    for number in range(3):
        assert talk.ask(request(INSERT, as_stream(rows(10 * number)))) == inserted(number)
        assert talk.on_fast_path()
    cluster.wait_equal(list(range(30)))


def test_requests_may_come_in_pieces_or_several_at_once(talk: Talk) -> None:
    first, second, third = (request(f"{INSERT}?token={n}", as_stream(rows(10 * n))) for n in range(3))
    for piece in (first[:7], first[7:60], first[60:-5], first[-5:] + second + third[:30], third[30:]):
        talk.send(piece)
    assert sorted(talk.hear()[1]["index"] for _ in range(3)) == [0, 1, 2]
    assert talk.on_fast_path()


def test_more_than_can_be_held_is_not_read_ahead_and_not_lost(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "AHEAD_BYTES_MAX", 100)
    talk.send(b"".join(request(f"{INSERT}?token={n}", as_stream(rows(10 * n))) for n in range(20)))
    answers = [talk.hear()[1] for _ in range(20)]
    assert [answer["outcome"] for answer in answers] == ["inserted"] * 20
    indexes = [answer["index"] for answer in answers]  # a merge may take an index between them
    assert indexes == sorted(set(indexes))


@pytest.mark.parametrize(
    ("begin", "body", "token", "status"),
    [
        (INSERT, b"not arrow", TOKEN, 400),
        (INSERT, as_stream(rows(0).drop_columns(["k"])), TOKEN, 400),
        (INSERT, as_stream(rows(0).slice(0, 0)), TOKEN, 400),
        (f"{INSERT}?overwrite=some", as_stream(rows(0)), TOKEN, 400),
        (f"{INSERT}?token=", as_stream(rows(0)), TOKEN, 400),
        ("POST /v1/tables/nobody/insert", as_stream(rows(0)), TOKEN, 404),
        (INSERT, as_stream(rows(0)), "another", 401),
        (f"{INSERT}?token=a%20b", as_stream(rows(0)), TOKEN, 200),
        (f"{INSERT}?overwrite=all&token=c+d", as_stream(rows(0)), TOKEN, 200),
    ],
)
def test_the_fast_path_answers_as_the_general_server_does(
    cluster: InProcessCluster, begin: str, body: bytes, token: str, status: int
) -> None:
    node = cluster.nodes[0]
    with talking(node) as fast, talking(node) as general:
        ours = fast.ask(request(begin, body, token=token))
        assert fast.on_fast_path() or status == 401
        theirs = general.ask(request(begin, body, "Connection: keep-alive", token=token))
    assert ours[0] == theirs[0] == status
    if status == 200:
        assert (ours[1].pop("outcome"), theirs[1].pop("outcome")) == ("inserted", "duplicate")
    assert ours[1] == theirs[1]


def test_a_table_with_many_parts_delays_inserts_on_the_fast_path_and_then_refuses_them(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inserts, "COUNT_CACHE_S", 0.0)
    cluster.create_table("few", settings=TableSettings(parts_delay=2, parts_max=3))
    node = cluster.nodes[0]
    node.table("few").pause_merges(paused=True)
    with talking(node) as talk:
        statuses: list[int] = []
        for number in range(4):
            index = len(statuses)
            statuses.append(talk.ask(request("POST /v1/tables/few/insert", as_stream(rows(10 * number))))[0])
            wait_for(lambda index=index: len(node.keys("few")) >= 10 * min(3, index + 1), "executed")  # type: ignore[misc]
        assert talk.on_fast_path()
    assert statuses == [200, 200, 200, 429]


def test_an_answer_that_does_not_come_in_time_is_unknown(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = cluster.nodes[0]
    monkeypatch.setattr(node.http.inserts, "timeout_s", 0.0)
    with talking(node) as talk:
        status, answer = talk.ask(request(f"{INSERT}?token=late", as_stream(rows(0))))
        assert (status, answer["error"], answer["token"]) == (504, "OutcomeUnknown", "late")
        monkeypatch.setattr(node.http.inserts, "timeout_s", 10.0)
        assert talk.ask(request(f"{INSERT}?token=late", as_stream(rows(0))))[1]["index"] == 0


def test_a_client_that_goes_before_its_answer_changes_nothing(cluster: InProcessCluster) -> None:
    node = cluster.nodes[0]
    with talking(node) as talk:
        mine = talk.socket.getsockname()
        talk.send(request(INSERT, as_stream(rows(0))))
    cluster.wait_equal(list(range(10)))
    wait_for(lambda: all(each.peer != mine for each in list(node.fast_path.connections)), "the connection is forgotten")


def ends(talk: Talk) -> bool:
    """Tell whether the server ends the connection before it sends anything else."""
    try:
        return not talk.socket.recv(1)
    except ConnectionResetError:
        return True


def test_idle_connections_are_closed(talk: Talk) -> None:
    assert talk.ask(request(INSERT, as_stream(rows(0)))) == inserted(0)
    (connection,) = talk.on_fast_path()
    loop = connection.loop
    loop.call_soon_threadsafe(connection.close_if_late, loop.time() + IDLE_S_MAX - 1.0)
    assert talk.ask(request(INSERT, as_stream(rows(10)))) == inserted(1)
    loop.call_soon_threadsafe(connection.close_if_late, loop.time() + IDLE_S_MAX + 1.0)
    assert ends(talk)


# --- off the fast path ----------------------------------------------------------------------------------------------------


def test_a_connection_that_carries_something_else_is_handed_over_and_goes_on_there(talk: Talk) -> None:
    assert talk.ask(request(INSERT, as_stream(rows(0)))) == inserted(0)
    assert talk.ask(request("GET /v1/tables/t/status"))[1]["table"] == "t"
    assert not talk.on_fast_path()
    assert talk.ask(request(INSERT, as_stream(rows(10)))) == inserted(1)
    assert talk.ask(request("GET /nowhere"))[0] == 404


def test_a_connection_that_asks_for_snapshots_stays_on_the_fast_path(talk: Talk) -> None:
    assert talk.ask(request(INSERT, as_stream(rows(0)))) == inserted(0)
    for query in ("?min_index=1&lease_s=5", "?as_of=1", ""):
        status, answer = talk.ask(request(f"GET /v1/tables/t/snapshot{query}"))
        assert (status, answer["index"], len(answer["parts"])) == (200, 1, 1)
    assert talk.on_fast_path()


@pytest.mark.parametrize(
    ("query", "token", "status"),
    [("?min_index=9&wait_s=0.01", TOKEN, 503), ("?wait_s=soon", TOKEN, 400), ("?as_of=x", TOKEN, 400), ("", "x", 401)],
)
def test_a_snapshot_that_is_refused_is_refused_as_by_the_general_server(
    cluster: InProcessCluster, query: str, token: str, status: int
) -> None:
    begin = f"GET /v1/tables/t/snapshot{query}"
    with talking(cluster.nodes[0]) as fast, talking(cluster.nodes[0]) as general:
        ours = fast.ask(request(begin, token=token))
        theirs = general.ask(request(begin, b"", "Connection: keep-alive", token=token))
        assert status == 401 or not general.on_fast_path()
    assert ours == theirs
    assert ours[0] == status


def test_what_was_sent_behind_an_insert_is_handed_over_after_its_answer(talk: Talk) -> None:
    talk.send(request(INSERT, as_stream(rows(0))) + request("GET /health"))
    assert talk.hear() == inserted(0)
    assert talk.hear()[1]["state"] == "ok"


def test_health_needs_no_token_and_the_connection_stays(talk: Talk) -> None:
    for _ in range(2):
        assert talk.ask(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")[1]["state"] == "ok"
    talk.send(b"HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n" + b"GET /health HTTP/1.0\r\n\r\n")
    whole = b""
    while piece := talk.socket.recv(1 << 16):
        whole += piece
    head, answer, body = whole.split(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"Connection: close" in answer
    assert json.loads(body)["state"] == "ok"


def test_something_else_that_comes_in_pieces_is_handed_over_whole(talk: Talk) -> None:
    whole = request("GET /v1/tables/t/status")
    talk.send(whole[:50])
    assert talk.ask(whole[50:])[0] == 200
    assert not talk.on_fast_path()


@pytest.mark.parametrize("header", [f"X: {'x' * HEAD_BYTES_MAX}", "Transfer-Encoding: gzip"])
def test_a_head_that_is_too_long_or_wrong_is_refused(talk: Talk, header: str) -> None:
    assert talk.ask(request(INSERT, b"", header))[0] == 400


def test_a_large_body_is_left_to_the_general_server(talk: Talk) -> None:
    data = rows(0, 60_000)
    body = as_stream(data)
    assert len(body) > BODY_BYTES_MAX
    assert talk.ask(request(INSERT, body)) == (200, {"outcome": "inserted", "index": 0, "rows": 60_000})
    assert not talk.on_fast_path()


def test_a_general_server_that_can_not_be_loaded_ends_the_connection_and_is_tried_again(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> Any:
        raise ImportError("no such module")

    with monkeypatch.context() as patch:
        patch.setattr(http_server, "_import", broken)
        talk.send(request("GET /v1/status"))
        assert talk.socket.recv(1) == b""
    with talking(talk.node) as other:
        assert other.ask(request("GET /v1/status"))[0] == 200
