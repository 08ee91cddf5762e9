"""What can happen between a member behind a blob service and its client: who may ask, and what is lost or late on the way."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from typing_extensions import override

from replitree.errors import BadInput, NotAuthorized
from replitree.replica import blob_service
from replitree.replica.blob_service import BlobService
from replitree.replica.http import connections, received
from replitree.tablet.group.effects import Overtaken
from replitree.tablet.group.ids import BlobId, Generation
from replitree.tablet.group.member import (
    AskFence,
    Contents,
    Done,
    Failed,
    FenceIs,
    Look,
    Raise,
    Reply,
    Request,
    Scan,
    Write,
)
from replitree.tablet.members import remote as blob_remote
from replitree.tablet.members.directory import BlobDirectory, make_blob_directory
from replitree.tablet.members.member import Admission, MemoryMember, Reopened, Standing
from replitree.tablet.members.remote import RemoteMember
from replitree.tablet.members.wire import PATH, decode_message, encode_message
from tests.faults.proxy import HELD, Link, Network
from tests.storage.blob_providers import GROUP, TABLET, blob_id, fence
from tests.storage.blob_service_provider import PATIENCE_S, TOKEN, Services
from tests.waiting import wait_for

ALL = Scan(blob_id(1, 0), blob_id(9, 0))
IMPATIENCE_S = 1.0


@pytest.fixture
def services() -> Iterator[Services]:
    services = Services()
    yield services
    services.close()


@pytest.fixture
def directory(tmp_path: Path) -> BlobDirectory:
    make_blob_directory(tmp_path / "0", GROUP, 0, "d0")
    return BlobDirectory(tmp_path / "0")


@pytest.fixture
def network() -> Iterator[Network]:
    network = Network()
    yield network
    network.close()


@pytest.fixture
def linked(services: Services, directory: BlobDirectory, network: Network) -> Iterator[tuple[RemoteMember, Link]]:
    """A client that gives up soon, and its way to the service."""
    port = int(services.start(directory).rpartition(":")[2])
    link = network.link("client", "service")
    front = network.front({"": link}, 0, port)
    member = RemoteMember(f"127.0.0.1:{front}", TOKEN, IMPATIENCE_S)
    yield member, link
    member.close()


def write(member: RemoteMember | BlobDirectory, step: int, generation: int = 1) -> Reply:
    """Write a small blob."""
    return member.answer(Write(((blob_id(generation, step), b"x"),)))


def names(member: RemoteMember | BlobDirectory) -> list[BlobId]:
    """Read everything."""
    reply = member.answer(ALL)
    assert isinstance(reply, Contents), reply
    return [blob for blob, _ in reply.blobs]


def test_lost_answer_is_a_doubt_and_the_blob_may_be_there(
    linked: tuple[RemoteMember, Link], directory: BlobDirectory
) -> None:
    member, link = linked
    assert write(member, 1) == Done()
    link.impose(HELD, up=False)
    reply = write(member, 2)
    assert isinstance(reply, Failed)
    assert "may be done" in reply.reason
    assert names(directory) == [blob_id(1, 1), blob_id(1, 2)]
    link.lift(HELD, up=False)
    assert write(member, 2) == Done()


def test_42_answer_that_comes_late_is_not_taken_for_that_of_the_next_request(
    linked: tuple[RemoteMember, Link], directory: BlobDirectory
) -> None:
    member, link = linked
    assert directory.answer(Raise(TABLET, fence(1))) == Done()
    assert write(member, 1) == Overtaken(Generation(1))
    link.impose(HELD, up=False)
    assert isinstance(write(member, 2), Failed)
    link.lift(HELD, up=False)
    assert write(member, 1, generation=2) == Done()
    assert write(member, 3) == Overtaken(Generation(1))


def test_request_that_comes_late_meets_the_fence(linked: tuple[RemoteMember, Link], directory: BlobDirectory) -> None:
    member, link = linked
    link.impose(HELD, down=False)
    assert isinstance(write(member, 1), Failed)
    assert isinstance(write(member, 1, generation=2), Failed)
    assert directory.answer(Raise(TABLET, fence(1))) == Done()
    assert names(directory) == []
    link.lift(HELD, down=False)
    wait_for(lambda: names(directory) == [blob_id(2, 1)], "the late blob that no fence forbids is there")
    assert write(member, 1) == Overtaken(Generation(1))
    assert names(directory) == [blob_id(2, 1)]


def test_service_that_can_not_be_reached_is_a_doubt_for_every_question(linked: tuple[RemoteMember, Link]) -> None:
    member, link = linked
    link.refuse(refusing=True)
    replies = (write(member, 1), member.answer(ALL), member.standing(), member.admit(1), member.remember((1,)))
    assert all(isinstance(each, Failed) for each in replies)
    link.refuse(refusing=False)
    assert member.answer(ALL) == Contents()


def test_connection_that_was_closed_is_opened_anew(linked: tuple[RemoteMember, Link]) -> None:
    member, link = linked
    assert write(member, 1) == Done()
    link.reset()
    assert write(member, 2) == Done()
    assert names(member) == [blob_id(1, 1), blob_id(1, 2)]


def test_client_that_is_closed_lets_go_whoever_waits_for_an_answer(
    services: Services, directory: BlobDirectory, network: Network
) -> None:
    port = int(services.start(directory).rpartition(":")[2])
    link = network.link("client", "service")
    member = RemoteMember(f"127.0.0.1:{network.front({'': link}, 0, port)}", TOKEN, PATIENCE_S)
    assert write(member, 1) == Done()
    link.impose(HELD, up=False)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(write, member, 2)
        wait_for(lambda: len(names(directory)) == 2, "the service has done what it does not get across")
        member.close()
        reply = waiting.result(PATIENCE_S / 2)
    assert isinstance(reply, Failed)
    assert "may be done" in reply.reason
    after = write(member, 3)
    assert isinstance(after, Failed)
    assert "was closed" in after.reason
    assert names(directory) == [blob_id(1, 1), blob_id(1, 2)]


def test_late_opening_does_not_make_a_member_forget(services: Services, directory: BlobDirectory) -> None:
    member = RemoteMember(services.start(directory), TOKEN)
    for session, seen in ((5, (5, 5, 4)), (4, (4, 4, 4))):
        assert member.admit(session) == Done()
        assert member.remember(seen) == Done()
    assert member.standing() == Standing("d0", 5, (5, 5, 4))
    member.close()


def test_client_says_as_what_the_member_was_admitted_and_a_service_that_is_started_anew_knows(
    services: Services, directory: BlobDirectory, tmp_path: Path
) -> None:
    assert directory.admit(2) == Done()
    member = RemoteMember(services.start(BlobDirectory(tmp_path / "0")), TOKEN)
    assert member.answer_as(Admission("d0", 2), ALL) == Contents()
    assert isinstance(member.answer_as(Admission("d0", 1), ALL), Reopened)
    for admission in (Admission("d0", 3), Admission("other", 2)):
        reply = member.answer_as(admission, ALL)
        assert isinstance(reply, Failed)
        assert not isinstance(reply, Reopened)
        assert isinstance(member.admit(4, admission), Failed)
    assert member.admit(4, Admission("d0", 2)) == Done()
    member.close()


@pytest.mark.parametrize("token", ["", "wrong", f"{TOKEN}s"])
def test_without_the_token_nothing_is_done(services: Services, directory: BlobDirectory, token: str) -> None:
    member = RemoteMember(services.start(directory), token)
    for reply in (write(member, 1), member.answer(AskFence(TABLET)), member.admit(7)):
        assert isinstance(reply, Failed)
        assert "the token is missing or wrong" in reply.reason
        assert TOKEN not in reply.reason
    assert names(directory) == []
    assert directory.standing() == Standing("d0", 0, ())
    member.close()


def test_service_without_a_token_does_not_start() -> None:
    with pytest.raises(NotAuthorized, match="--token-file"):
        BlobService(MemoryMember("m"), "")


def test_port_that_is_taken_is_told(services: Services) -> None:
    port = int(services.start(MemoryMember("m")).rpartition(":")[2])
    with pytest.raises(BadInput, match="port 0 for a free one"):
        services.start(MemoryMember("m"), port)


# --- what clients can cost ----------------------------------------------------------------------------------------------


def connected(address: str) -> socket.socket:
    host, _, port = address.partition(":")
    return socket.create_connection((host, int(port)), PATIENCE_S)


def head(length: int, token: str = TOKEN) -> bytes:
    lines = (f"POST {PATH} HTTP/1.1", "Host: x", f"Authorization: Bearer {token}", f"Content-Length: {length}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def test_a_body_without_the_token_is_refused_before_it_is_sent(services: Services) -> None:
    with connected(services.start(MemoryMember("m"))) as one:
        one.sendall(head(100_000_000, "wrong"))
        assert one.recv(12) == b"HTTP/1.1 401"


def test_connections_without_the_token_are_limited_and_keep_no_client_out(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blob_service, "CONNECTIONS_WITHOUT_TOKEN_MAX", 4)
    address = services.start(MemoryMember("m"))
    member = RemoteMember(address, TOKEN, PATIENCE_S)
    assert write(member, 1) == Done()
    with ExitStack() as stack:
        strangers = [stack.enter_context(connected(address)) for _ in range(6)]
        for each in strangers[:2]:  # the oldest two made room
            with suppress(ConnectionError):
                assert each.recv(1) == b""
        assert write(member, 2) == Done()
        another = RemoteMember(address, TOKEN, PATIENCE_S)
        assert write(another, 3) == Done()
        another.close()
    member.close()


def test_a_head_that_does_not_end_is_given_up(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.05)
    monkeypatch.setattr(connections, "SWEEP_S", 0.05)
    with connected(services.start(MemoryMember("m"))) as one:
        one.sendall(head(0)[:40])
        assert one.recv(1) == b""


def test_a_message_that_comes_too_slowly_is_refused(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(received, "BODY_S", 0.05)
    monkeypatch.setattr(received, "BODY_BYTES_PER_S_MIN", 1 << 30)
    with connected(services.start(MemoryMember("m"))) as one:
        one.sendall(head(100) + b"x")
        assert one.recv(12) == b"HTTP/1.1 400"


def test_messages_in_memory_are_limited(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blob_service, "BODIES_BYTES_MAX", 1000)
    member = RemoteMember(services.start(MemoryMember("m")), TOKEN, PATIENCE_S)
    for _ in range(3):  # what was received is given back
        assert member.answer(Write(((blob_id(1, 1), b"x" * 500),))) == Done()
        reply = member.answer(Write(((blob_id(1, 2), b"x" * 1000),)))
        assert isinstance(reply, Failed)
        assert "answered 503" in reply.reason
    member.close()


class Hanging(MemoryMember):
    """A member whose disk hangs when it is asked what it knows of openings."""

    def __init__(self) -> None:
        super().__init__("hanging")
        self.gate, self.asked = threading.Event(), 0

    @override
    def standing(self) -> Standing | Failed:
        """Wait for the gate."""
        self.asked += 1
        assert self.gate.wait(PATIENCE_S)
        return super().standing()


def test_a_member_that_hangs_is_asked_once_however_many_want_its_health(services: Services) -> None:
    held = Hanging()
    address = services.start(held)
    member = RemoteMember(address, TOKEN, PATIENCE_S)
    with ExitStack() as stack:
        asking = [stack.enter_context(connected(address)) for _ in range(20)]
        for each in asking:
            each.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_for(lambda: held.asked > 0, "the member is asked")
        assert write(member, 1) == Done(), "other requests are served"
        held.gate.set()
        assert [each.recv(12) for each in asking] == [b"HTTP/1.1 200"] * 20
    assert held.asked <= 2  # a request may have come after the answer
    member.close()


def _damaged(message: bytes) -> bytes:
    return bytes([message[0] ^ 1]) + message[1:]


@pytest.mark.parametrize(
    ("change", "problem"),
    [(_damaged, "damaged on its way"), (lambda _: b"", "damaged on its way"), (lambda _: b"x" * 40, "damaged")],
)
def test_message_that_was_changed_is_not_obeyed(
    services: Services, directory: BlobDirectory, change: Callable[[bytes], bytes], problem: str
) -> None:
    address = services.start(directory)
    connection = http.client.HTTPConnection(address, timeout=PATIENCE_S)
    body = change(encode_message(Write(((blob_id(1, 1), b"x"),))))
    connection.request("POST", PATH, body, {"Authorization": f"Bearer {TOKEN}"})
    with connection.getresponse() as response:
        assert response.status == 400
        assert problem in response.read().decode()
    connection.close()
    assert names(directory) == []


def test_answer_that_is_none_is_a_doubt(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    held = MemoryMember("m")
    member = RemoteMember(services.start(held), TOKEN)
    monkeypatch.setattr(held, "answer", lambda _: FenceIs(None))
    for reply in (member.answer(ALL), write(member, 1)):
        assert isinstance(reply, Failed)
        assert "something else" in reply.reason
    member.close()


class Slow(MemoryMember):
    """A member that answers when it is let."""

    def __init__(self) -> None:
        super().__init__("slow")
        self.gate = threading.Event()

    @override
    def answer(self, request: Request) -> Reply:
        """Do what is asked, when the gate is open."""
        assert self.gate.wait(PATIENCE_S)
        return super().answer(request)


@pytest.mark.parametrize("read", [ALL, Look((blob_id(1, 1),))])
def test_read_of_a_slow_member_is_waited_for_longer_than_a_write(
    services: Services, read: Scan | Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blob_remote, "READ_PATIENCE", PATIENCE_S / IMPATIENCE_S)
    held = Slow()
    member = RemoteMember(services.start(held), TOKEN, IMPATIENCE_S)
    assert isinstance(write(member, 1), Failed)
    opening = threading.Timer(2 * IMPATIENCE_S, held.gate.set)
    opening.start()
    assert isinstance(member.answer(read), Contents)
    opening.join()
    held.gate.clear()
    assert isinstance(write(member, 2), Failed), "the next write is waited for as long as the first"
    held.gate.set()
    member.close()


def test_only_questions_are_answered(services: Services) -> None:
    address = services.start(MemoryMember("m"))
    connection = http.client.HTTPConnection(address, timeout=PATIENCE_S)
    connection.request("POST", PATH, encode_message(Done()), {"Authorization": f"Bearer {TOKEN}"})
    with connection.getresponse() as response:
        assert isinstance(decode_message(response.read()), Failed)
    connection.request("GET", "/health")
    with connection.getresponse() as response:
        assert (response.status, response.read()) == (200, b'{"incarnation": "m"}')
    connection.close()


def test_message_of_a_newer_version_is_told() -> None:
    class Unheard:
        """Not known to this version."""

    with pytest.raises(BadInput, match="same version"):
        decode_message(encode_message(_as_message(Unheard)))


def _as_message(kind: type) -> Write:
    """Make a write that calls itself something else."""
    return type(kind.__name__, (Write,), {})(((blob_id(1, 1), b"x"),))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"POST / HTTP/1.1\r\nHost: x\r\nAuthorization : Bearer %s\r\n\r\n", 401),
        (b"POST / HTTP/1.1\r\nHost: x\r\nX\0: %s\r\n\r\n", 401),
        (b"POST / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer TOKEN\r\nX\0: %s\r\n\r\n", 400),
        (b"POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \xff\xfe\r\nContent-Length: 0\r\n\r\n", 401),
        (
            b"POST %s HTTP/1.1\r\nHost:x\r\nAuthorization: Bearer TOKEN\r\nContent-Encoding: gzip\r\nContent-Length: 0\r\n\r\n",
            400,
        ),
    ],
    ids=[
        "a wrong header",
        "a header with a NUL",
        "a header with a NUL and the token",
        "a token that is not ASCII",
        "gzip of nothing",
    ],
)
def test_a_wrong_request_is_refused_and_logged_without_its_content(
    services: Services, directory: BlobDirectory, caplog: pytest.LogCaptureFixture, head: bytes, status: int
) -> None:
    port = int(services.start(directory).rpartition(":")[2])
    data = (head % PATH.encode()).replace(b"TOKEN", TOKEN.encode())
    with socket.create_connection(("127.0.0.1", port), 20) as connection:
        connection.sendall(data)
        assert connection.recv(12)[9:] == str(status).encode()
    assert [record.exc_info for record in caplog.records if record.exc_info] == []
    assert PATH not in caplog.text
    assert TOKEN not in caplog.text
