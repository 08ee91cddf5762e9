from __future__ import annotations

import gc
import io
import socket
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from typing_extensions import override

from replitree.client.transport.http import AnswerLost, HttpClient, HttpResponse, _Connections
from replitree.errors import NotAuthorized, OutcomeUnknown, ReadOnly, ReplicaUnavailable, ReplitreeError, StoreError
from tests.client.fake_replica import DROP_SERVED, FakeReplica


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[FakeReplica]:
    made = FakeReplica("r1", tmp_path)
    yield made
    made.close()


@pytest.fixture
def http() -> Iterator[HttpClient]:
    client = HttpClient("secret")
    yield client
    client.close()


def closed_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def test_nobody_listens_means_nothing_was_sent(http: HttpClient) -> None:
    with pytest.raises(ReplicaUnavailable, match="can't be reached"):
        http.request(closed_port(), "GET", "/health", timeout_s=1)


def test_connection_closed_instead_of_an_answer_is_a_lost_answer(http: HttpClient, replica: FakeReplica) -> None:
    replica.script.append(DROP_SERVED)
    with pytest.raises(AnswerLost) as caught:
        http.request(replica.address, "GET", "/v1/tables/t/snapshot", timeout_s=5)
    assert not caught.value.stale


def test_silence_is_a_lost_answer(http: HttpClient) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(AnswerLost, match="did not answer in"):
            http.request(address, "GET", "/health", timeout_s=0.05)


def test_half_an_answer_is_a_lost_answer(http: HttpClient) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer_half() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this")

        thread = threading.Thread(target=answer_half)
        thread.start()
        with pytest.raises(AnswerLost):
            http.request(f"127.0.0.1:{server.getsockname()[1]}", "GET", "/health", timeout_s=5)
        thread.join()


def test_connection_is_kept_and_the_token_sent(http: HttpClient, replica: FakeReplica) -> None:
    for _ in range(3):
        assert http.request(replica.address, "GET", "/v1/tables/t/snapshot", timeout_s=5).status == 200
    assert len(replica.connections) == 1
    assert {seen.authorization for seen in replica.seen} == {"Bearer secret"}


def test_connections_are_closed_when_a_forgotten_client_is_collected() -> None:
    gc.collect()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        ours, theirs = socket.socketpair()  # older than what closes it: the collector comes to it first
        connections = _Connections()
        connections.open["r1"] = ours
        cycle: list[object] = [connections]
        cycle.append(cycle)
        del ours, connections, cycle
        gc.collect()
        assert theirs.recv(1) == b""
        theirs.close()
    assert [str(warning.message) for warning in warned] == []


def test_connection_that_went_stale_is_said_to_be_so(http: HttpClient, replica: FakeReplica) -> None:
    http.request(replica.address, "GET", "/v1/tables/t/snapshot", timeout_s=5)
    replica.script.append(DROP_SERVED)
    with pytest.raises(AnswerLost) as caught:
        http.request(replica.address, "GET", "/v1/tables/t/snapshot", timeout_s=5)
    assert caught.value.stale


def test_token_is_in_no_text(http: HttpClient) -> None:
    assert "secret" not in repr(http)


def test_error_of_a_replica_keeps_its_class_and_its_token() -> None:
    body = b'{"error":"OutcomeUnknown","message":"who knows","token":"t7"}'
    with pytest.raises(OutcomeUnknown, match="who knows") as caught:
        HttpResponse(504, body).decode(dict)
    assert caught.value.token == "t7"
    with pytest.raises(ReadOnly):
        HttpResponse(503, b'{"error":"ReadOnly","message":"no room"}').decode(dict)


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [(401, b"", NotAuthorized), (500, b"<html>", ReplitreeError), (200, b"[1]", ReplitreeError)],
)
def test_answer_that_makes_no_sense_is_an_error(status: int, body: bytes, expected: type[Exception]) -> None:
    with pytest.raises(expected):
        HttpResponse(status, body).decode(dict[str, int])


def test_download_writes_the_whole_file(http: HttpClient, replica: FakeReplica) -> None:
    content = bytes(range(256)) * 20_000
    replica.files["p/files/data-0.parquet"] = content
    replica.files["p/data-0.parquet"] = content
    target = io.BytesIO()
    http.download(replica.address, "/v1/tables/t/parts/p/files/data-0.parquet", target, timeout_s=5)
    assert target.getvalue() == content


def test_full_disk_during_a_download_is_not_the_replicas_fault(http: HttpClient, replica: FakeReplica) -> None:
    class Full(io.BytesIO):
        name = "full"

        @override
        def write(self, _: object) -> int:
            raise OSError(28, "No space left on device")

    replica.files["p/data-0.parquet"] = b"x"
    with pytest.raises(StoreError, match="No space"):
        http.download(replica.address, "/v1/tables/t/parts/p/files/data-0.parquet", Full(), timeout_s=5)
