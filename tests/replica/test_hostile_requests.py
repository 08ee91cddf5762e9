"""Requests that mean harm, or are wrong by chance: each has an answer below 500, none costs memory, none reaches a log."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import logging
import socket
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from itertools import repeat
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typing_extensions import override

from replitree.replica.http import fast_path, insert_requests, received
from replitree.replica.http.bodies import is_quick
from replitree.replica.http.refusals import Refusals
from replitree.replica.kit.logs import LineFormatter, Log, hide
from replitree.storage.parts.ipc_extent import Extent
from tests.last_turns import last_turns
from tests.replica.inprocess import TOKEN, InProcessCluster, Node, as_stream, rows, wait_for
from tests.replica.test_fast_path import ends, request, talking
from tests.storage.support import ipc_stream

INSERT = "POST /v1/tables/t/insert"
SECRET_LINE = "Proxy-Password: do-not-log-this"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """One replica for all requests of this module: each must leave it able to serve the next one."""
    with limited(tmp_path_factory.mktemp("strangers")) as node:
        yield node


@contextmanager
def limited(folder: Path, **settings: Any) -> Iterator[Node]:
    """One replica with other limits."""
    with closing(InProcessCluster(folder, 1, **settings)) as cluster:
        cluster.create_table()
        yield cluster.nodes[0]


def damaged_name() -> bytes:
    """A stream whose column has a name that is not UTF-8."""
    return ipc_stream(pa.table({"kkkk": [1]})).replace(b"kkkk", b"k\xff\xfek")


MANY = "9" * 5000
DEEP = b"[" * 200_000
RIGHT = as_stream(rows(0))
EXPECTING = request("POST /v1/tables/t/drop", b"{}", "Expect: 100-more")

CASES: dict[str, tuple[bytes, int]] = {
    "as_of of 5,000 digits": (request(f"GET /v1/tables/t/snapshot?as_of={MANY}"), 400),
    "min_index of 5,000 digits": (request(f"GET /v1/tables/t/snapshot?min_index={MANY}"), 400),
    "min_index beyond 64 bits": (request(f"GET /v1/tables/t/snapshot?min_index={'9' * 18}&wait_s=0"), 503),
    "wait_s that is no number": (request("GET /v1/tables/t/snapshot?wait_s=nan"), 400),
    "mutation index of 5,000 digits": (request(f"DELETE /v1/tables/t/mutations/{MANY}"), 400),
    "quorum of 5,000 digits": (request(f"{INSERT}?quorum={MANY}", RIGHT), 400),
    "lease of 5,000 digits": (request(f"POST /v1/tables/t/leases/x?lease_s={MANY}"), 410),
    "part of 5,000 digits": (request(f"GET /v1/tables/t/parts/all_{MANY}_1_0/manifest"), 400),
    "part in a bundle of 5,000 digits": (request(f"GET /v1/tables/t/bundle?part=all_{MANY}_1_0"), 400),
    "part to check of 5,000 digits": (request(f"POST /v1/tables/t/parts/all_{MANY}_1_0/check"), 400),
    "shares version of 5,000 digits": (
        request(f"GET /v1/tables/t/bundle?part=all_1_1_0&shares=1&shares_version={MANY}"),
        200,
    ),
    "a name with a NUL": (request("DELETE /v1/tables/t/detached/%00"), 200),
    "a frozen name with a NUL": (request("DELETE /v1/tables/t/frozen/a%00b"), 400),
    "a file with a NUL": (request("GET /v1/tables/t/parts/all_0_0_0/files/a%00"), 400),
    "a very long name": (request(f"DELETE /v1/tables/t/detached/{'x' * 4000}"), 200),
    "an upload with a NUL": (request("POST /v1/tables/t/uploads/%00"), 400),
    "a table with a NUL": (request("GET /v1/tables/%00/status"), 404),
    "a name that is not UTF-8": (request("DELETE /v1/tables/t/detached/%ff%fe"), 200),
    "JSON of 200,000 levels": (request("POST /v1/tables/t/alter", DEEP), 400),
    "JSON of 200,000 levels in an unknown field": (request("POST /v1/tables/t/uploads", b'{"x":' + DEEP), 400),
    "JSON that is not UTF-8": (request("POST /v1/tables/t/alter", b'{"sql": "\xff"}'), 400),
    "JSON with half a surrogate": (request("POST /v1/tables/t/alter", b'{"sql": "\\ud800"}'), 400),
    "a freeze whose name has a NUL": (request("POST /v1/tables/t/freeze", b'{"name": "a\\u0000"}'), 400),
    "a condition of 5,000 levels": (
        request(
            "POST /v1/tables/t/mutations",
            json.dumps({"sql": f"delete from t where {'(' * 5000}k = 1{')' * 5000}"}).encode(),
        ),
        400,
    ),
    "a condition with half a surrogate": (
        request("POST /v1/tables/t/mutations", b'{"kind": "delete", "where": "s = \'\\ud800\'"}'),
        400,
    ),
    "a condition with 5,000 digits": (
        request("POST /v1/tables/t/mutations", json.dumps({"kind": "delete", "where": f"k = {MANY}"}).encode()),
        400,
    ),
    "an alter with a type of 5,000 levels": (
        request(
            "POST /v1/tables/t/alter", json.dumps({"sql": f"add column x {'array<' * 5000}int{'>' * 5000}"}).encode()
        ),
        400,
    ),
    "a drop of blocks beyond 64 bits": (
        request("POST /v1/tables/t/drop", b'{"blocks": [0, 99999999999999999999]}'),
        400,
    ),
    "an attach of a name with a NUL": (request("POST /v1/tables/t/attach", b'{"name": "\\u0000"}'), 400),
    "a lease of a plan that is no number": (request("POST /v1/tables/t/merges/plan", b'{"lease_s": 1e999}'), 400),
    "a result for nothing": (
        request(
            "POST /v1/tables/t/merges/result", b'{"upload":"\\u0000","sources":["x"],"schema_version":1,"files":[]}'
        ),
        400,
    ),
    "a joint insert into a table that is no shard": (
        request("POST /v1/tables/t/joint?token=x", b'{"prepared":[]}'),
        400,
    ),
    "rows prepared by a map version of 5,000 digits": (
        request(f"POST /v1/tables/t/prepared?map_version={MANY}", RIGHT),
        400,
    ),
    "a joint insert of 200,000 levels": (request("POST /v1/tables/t/joint?token=x", b'{"prepared":' + DEEP), 400),
    "rows prepared for no sharded table": (request("POST /v1/tables/t/prepared?keep_s=nan", RIGHT), 400),
    "prepared rows with a NUL in their name": (request("POST /v1/tables/t/prepared/%00"), 400),
    "rows given up that never were": (request("DELETE /v1/tables/t/prepared/%2e%2e%2fx"), 200),
    "gzip that is none": (request(INSERT, b"garbage", "Content-Encoding: gzip"), 400),
    "gzip that ends early": (request(INSERT, gzip.compress(RIGHT)[:-20], "Content-Encoding: gzip"), 400),
    "gzip of rows": (request(INSERT, gzip.compress(RIGHT), "Content-Encoding: gzip"), 200),
    "deflated rows": (request(INSERT, zlib.compress(RIGHT), "Content-Encoding: deflate"), 200),
    "an encoding that is unknown": (request(INSERT, RIGHT, "Content-Encoding: br"), 400),
    "chunks that are none": (
        request(INSERT).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked") + b"zz\r\nxx\r\n0\r\n\r\n",
        400,
    ),
    "a body of 10 GB": (request(INSERT).replace(b"Content-Length: 0", b"Content-Length: 10000000000"), 400),
    "a body of 5,000 digits": (request(INSERT).replace(b"Length: 0", f"Length: {MANY}".encode()), 400),
    "two lengths": (request(INSERT, b"", "Content-Length: 7"), 400),
    "nothing": (request(INSERT), 400),
    "no stream": (request(INSERT, b"\xff" * 100), 400),
    "a stream that ends": (request(INSERT, RIGHT[:-150]), 400),
    "a file instead of a stream": (request(INSERT, b"ARROW1\0\0" + RIGHT), 400),
    "a name of a column that is not UTF-8": (request(INSERT, damaged_name()), 400),
    "a column of times": (request(INSERT, ipc_stream(pa.table({"k": pa.array([1], pa.time64("us"))}))), 400),
    "a bomb of runs": (
        request(
            INSERT, ipc_stream(pa.table({"k": pa.RunEndEncodedArray.from_arrays(pa.array([2**31 - 2]), pa.array([1]))}))
        ),
        400,
    ),
    "no token": (request(INSERT, RIGHT, token=""), 401),
    "a token that is not ASCII": (request(INSERT, RIGHT).replace(TOKEN.encode(), b"\xff\xfe"), 401),
    "a token that is not ASCII, unusual": (request("GET /v1/status").replace(TOKEN.encode(), b"\xff\xfe"), 401),
    "a token whose header is folded": (request(INSERT).replace(b"Bearer ", b"Bearer\r\n "), 401),
    "a token twice": (request(INSERT, RIGHT, f"Authorization: Bearer {TOKEN}"), 401),
    "a token before its header's colon": (request(INSERT, RIGHT).replace(b"Authorization:", b"Authorization :"), 401),
    "a method that is none": (b"\x16\x03\x01\x02\x00\r\n\r\n", 400),
    "a line that is none": (f"HELLO\r\nAuthorization: Bearer {TOKEN}\r\n{SECRET_LINE}\r\n\r\n".encode(), 400),
    "a head of 20 kB": (request(INSERT, b"", f"X: {'x' * 20_000}"), 400),
    "a path of 9,000 characters": (request(f"GET /v1/tables/{'x' * 9000}/status"), 400),
    "200 headers": (request("GET /v1/status", b"", *(f"X{n}: 1" for n in range(200))), 400),
    "a header with a NUL": (request("GET /v1/status", b"", f"X: \0\r\n{SECRET_LINE}"), 400),
    "a header without a colon": (request("GET /v1/status", b"", f"X\r\n{SECRET_LINE}"), 400),
    "bare line feeds": (request("GET /v1/status").replace(b"Host: x\r\n", b"Host: x\n"), 400),
    "a method that a path has not": (request("PATCH /v1/tables/t/insert"), 405),
    "a path that is not there": (request("GET /v1/nothing"), 404),
    "an expectation that is none": (EXPECTING, 417),
    "an expectation that is not ASCII": (EXPECTING.replace(b"100-more", b"100-\x80"), 417),
    "an expectation of no path": (EXPECTING.replace(b"100-more", b"\x80").replace(b"/drop", b"/nothing"), 404),
    "an expectation of another method": (EXPECTING.replace(b"100-more", b"\x80").replace(b"POST", b"PATCH"), 405),
}


BOMBS: dict[str, Callable[[], bytes]] = {
    "gzip of 100 MB": lambda: request(INSERT, gzip.compress(bytes(100_000_000)), "Content-Encoding: gzip"),
    "a bomb of 20 million rows": lambda: request(
        INSERT, ipc_stream(pa.table({"k": pa.nulls(20_000_000, pa.int64())}), "zstd")
    ),
    "a bomb of a dictionary": lambda: request(
        INSERT,
        ipc_stream(
            pa.table({"k": range(900), "s": pa.DictionaryArray.from_arrays([0] * 900, ["x" * 900_000])}), "zstd"
        ),
    ),
    "a bomb of nulls": lambda: request(INSERT, ipc_stream(pa.table({"k": pa.nulls(2**31 - 2)}))),
    "a bomb of 200 million bytes": lambda: request(
        INSERT, ipc_stream(pa.table({"k": [1], "s": ["x" * 200_000_000]}), "lz4")
    ),
}
"""Requests that are answered with 400; each takes a while to make, which every process that lists the tests would wait for."""


@cache
def hostile(name: str) -> tuple[bytes, int]:
    """Return a request and the status that it is answered with."""
    return (BOMBS[name](), 400) if name in BOMBS else CASES[name]


@pytest.mark.parametrize("name", [*CASES, *BOMBS])
def test_a_wrong_request_is_answered_below_500_and_logs_none_of_it(
    node: Node, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    data, status = hostile(name)
    with talking(node) as talk:
        found, answer = talk.ask(data)
    assert (found, answer) == (status, answer)
    with talking(node) as other:
        assert other.ask(request("GET /v1/status"))[0] == 200
    logged = "\n".join(map(LineFormatter().format, caplog.records))
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR], logged
    assert TOKEN not in logged
    assert "do-not-log" not in logged


# --- memory -----------------------------------------------------------------------------------------------------------


def resident_mb() -> float:
    """Return how much memory this process has."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096 / 1e6


def connected(node: Node) -> socket.socket:
    host, _, port = node.address.partition(":")
    return socket.create_connection((host, int(port)), 20)


@pytest.mark.parametrize("tail", [bytes(1_000_000), b""], ids=["a megabyte of a body", "half a head"])
def test_four_hundred_connections_without_the_token_cost_nearly_nothing(tmp_path: Path, tail: bytes) -> None:
    whole = request(INSERT, bytes(1_000_000), token="wrong")
    head = whole[: whole.index(b"\r\n\r\n") + 4] if tail else whole[:80]
    with limited(tmp_path) as node, ExitStack() as stack:
        with talking(node) as talk:
            assert talk.ask(request(INSERT, RIGHT))[0] == 200
        before = resident_mb()
        for _ in range(400):
            one = stack.enter_context(closing(connected(node)))
            one.settimeout(20.0)
            with contextlib.suppress(ConnectionError):  # the server may have closed it
                one.sendall(head + tail)
        with talking(node) as talk:
            assert talk.ask(request(INSERT, as_stream(rows(10))))[0] == 200
        assert resident_mb() - before < 30
        assert len(node.fast_path.connections) <= node.config.connections_without_token_max + 1


def test_unfinished_bodies_are_bounded_all_together_and_room_comes_back(tmp_path: Path) -> None:
    head = request(INSERT, bytes(1 << 20))[: -(1 << 20)]
    large = head.replace(str(1 << 20).encode(), str(20 << 20).encode())
    with limited(tmp_path, bodies_bytes_max=64 << 20) as node, ExitStack() as stack:
        for begin, count in ((head, 20), (large, 2)):
            for _ in range(count):
                one = stack.enter_context(closing(connected(node)))
                one.sendall(begin + bytes(1000))
        held = node.http.inserts.bodies.held
        wait_for(lambda: held.bytes == 60 << 20, "the bodies are counted")
        with talking(node) as talk:
            assert talk.ask(large)[:2] == (503, {"error": "Unavailable", "message": ANY_TEXT})
        with talking(node) as talk:
            assert talk.ask(request(INSERT, RIGHT))[0] == 200
        stack.close()
        wait_for(lambda: held.bytes == 0, "the bodies are given back")


class _AnyText:
    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, str)

    @override
    def __hash__(self) -> int:
        return 0


ANY_TEXT = _AnyText()


@pytest.mark.parametrize(
    "data",
    [
        request(INSERT, b"no stream"),
        request(INSERT, RIGHT),
        request(INSERT, RIGHT, "Connection: keep-alive"),
        "gzip of 100 MB",
        "gzip of rows",
        "chunks that are none",
        "JSON of 200,000 levels",
    ],
)
def test_a_body_is_not_counted_any_more_when_it_is_answered(node: Node, data: bytes | str) -> None:
    with talking(node) as talk:
        talk.ask(hostile(data)[0] if isinstance(data, str) else data)
    wait_for(lambda: node.http.inserts.bodies.held.bytes == 0, "given back")


def test_a_bomb_is_decoded_nowhere(node: Node) -> None:
    names = ("a bomb of 20 million rows", "a bomb of 200 million bytes", "a bomb of a dictionary", "a bomb of runs")
    bombs = [hostile(name)[0] for name in names]
    before, allocated = resident_mb(), pa.total_allocated_bytes()
    for bomb in bombs:
        with talking(node) as talk:
            assert talk.ask(bomb)[0] == 400
    assert resident_mb() - before < 30
    assert pa.total_allocated_bytes() - allocated < 30_000_000


def test_a_body_that_is_small_and_decodes_to_much_is_decoded_off_the_loop(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick: list[bool] = []

    def looked_at(extent: Extent, columns: int) -> bool:
        quick.append(is_quick(extent, columns))
        return quick[-1]

    for target in (fast_path, insert_requests):
        monkeypatch.setattr(target, "is_quick", looked_at)
    many = pa.table({"k": pa.nulls(400_000, pa.int64()).fill_null(7)})
    with talking(node) as talk:
        assert talk.ask(request(INSERT, ipc_stream(many, "zstd")))[1]["rows"] == 400_000
        assert quick == [False, False]
        assert talk.ask(request(INSERT, RIGHT))[1]["rows"] == 10
        assert quick[2:] == [True]


# --- connections ------------------------------------------------------------------------------------------------------


def test_connections_without_the_token_make_room_for_one_that_has_it(tmp_path: Path) -> None:
    with limited(tmp_path, connections_without_token_max=5) as node, ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(closing(connected(node)))
        with talking(node) as talk:
            assert talk.ask(request(INSERT, RIGHT))[0] == 200
            wait_for(lambda: len(node.fast_path.connections) <= 6, "the oldest are closed")
            for _ in range(20):
                stack.enter_context(closing(connected(node)))
            assert talk.ask(request(INSERT, as_stream(rows(10))))[0] == 200


def test_a_connection_above_the_limit_is_answered_with_503_and_closed(tmp_path: Path) -> None:
    with limited(tmp_path, connections_max=4) as node, ExitStack() as stack:
        talks = [stack.enter_context(talking(node)) for _ in range(4)]
        for number, talk in enumerate(talks):
            begin = "GET /v1/status" if number % 2 else "GET /v1/tables/t/snapshot"
            assert talk.ask(request(begin))[0] == 200
        with talking(node) as talk:
            status, answer = talk.hear()
            assert (status, answer["error"]) == (503, "Unavailable")
            assert ends(talk)
        talks[0].close()
        talks[1].close()
        wait_for(lambda: _has_room(node), "there is room again")
        assert talks[2].ask(request(INSERT, RIGHT))[0] == 200


@pytest.mark.parametrize("turns", range(5))
def test_a_connection_that_is_accepted_as_the_server_closes_is_closed(tmp_path: Path, turns: int) -> None:
    async def connect_and_close() -> None:
        client.connect(("127.0.0.1", int(node.address.rpartition(":")[2])))
        for _ in range(turns):  # accepted, made, begun
            await asyncio.sleep(0)
        await node.http.close()
        await last_turns()

    with limited(tmp_path) as node, closing(socket.socket()) as client:
        client.settimeout(10)
        node.on_loop(connect_and_close())
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""


def test_connections_take_at_most_half_of_the_files_that_a_process_may_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (8, 8))
    with limited(tmp_path, connections_without_token_max=100) as node, ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(closing(connected(node)))
        with talking(node) as talk:
            assert talk.ask(request(INSERT, RIGHT))[0] == 200
            assert len(node.fast_path.connections) <= 4


def _has_room(node: Node) -> bool:
    with talking(node) as talk:
        return talk.ask(request("GET /v1/tables/t/snapshot"))[0] == 200


@pytest.mark.parametrize(
    ("sent", "seconds"),
    [
        (b"", 11.0),
        (b"POST /v1/ta", 11.0),
        (request(INSERT, bytes(1000))[:-10], 32.0),
        (request(INSERT, bytes(1 << 20))[:-10], 63.0),
    ],
    ids=["nothing", "half a head", "half a small body", "half a body"],
)
def test_what_comes_too_slowly_ends_the_connection(node: Node, sent: bytes, seconds: float) -> None:
    with talking(node) as talk:
        talk.send(sent)
        (connection,) = wait_for(talk.on_fast_path, "connected")
        loop = connection.loop
        held = node.http.inserts.bodies.held
        expected = len(sent) if sent.startswith(b"POST /v1/tables") else 0
        wait_for(lambda: (held.bytes > 0) == (expected > 0), "received")
        loop.call_soon_threadsafe(connection.close_if_late, loop.time() + seconds - 3.0)
        loop.call_soon_threadsafe(connection.close_if_late, loop.time() + seconds)
        assert ends(talk)


def test_a_body_that_comes_too_slowly_to_the_general_server_is_refused(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(received, "BODY_S", 0.0)
    with talking(node) as talk:
        talk.send(request(INSERT, bytes(1000), "Connection: keep-alive")[:-10])
        assert talk.hear()[0] == 400


def test_answers_that_nobody_reads_stop_the_connection(node: Node) -> None:
    with closing(connected(node)) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.settimeout(1.0)
        # What the kernel keeps for both ends is less than all of these.
        requests = repeat(b"GET /health HTTP/1.1\r\n\r\n" * 1_000_000, 10)
        with pytest.raises(TimeoutError):
            list(map(one.sendall, requests))


def test_a_refused_client_that_still_sends_hears_why(node: Node) -> None:
    body = bytes(30_000_000)
    with talking(node) as talk:
        status, answer = talk.ask(request(INSERT, body, token="wrong"))
        assert (status, answer["error"]) == (401, "NotAuthorized")


# --- logs -------------------------------------------------------------------------------------------------------------


def test_many_refused_requests_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    refusals = Refusals()
    for number in range(1000):
        refusals.note(Log(), ("10.0.0.1", number), "it has no valid token")
    (record,) = caplog.records
    assert json.loads(LineFormatter().format(record))["address"] == "10.0.0.1"


def test_what_libraries_log_is_reduced_to_its_fixed_text() -> None:
    with pytest.raises(ValueError, match="do-not-log") as caught:
        int(SECRET_LINE)
    raised = (caught.type, caught.value, caught.tb)
    message, arguments = "refused %s\nfuture: %s", (SECRET_LINE, TOKEN)
    record = logging.getLogger("aiohttp.server").makeRecord(
        "aiohttp.server", logging.ERROR, "", 1, message, arguments, raised
    )
    line = json.loads(LineFormatter().format(record))
    assert line["event"] == "aiohttp.server: refused %s"
    assert line["traceback"][0] == "ValueError"
    assert __file__ in line["traceback"][1]


def test_the_token_is_masked_whoever_logs_it() -> None:
    secret = 'a-secret-"with-quotes"-of-some-length'
    hide(secret)
    record = logging.getLogger("replitree").makeRecord("replitree", logging.INFO, "", 1, f"with {secret}", (), None)
    assert secret not in json.loads(LineFormatter().format(record))["event"]
