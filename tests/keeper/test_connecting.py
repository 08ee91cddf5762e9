"""Facts of the handshake, of frames, and of sessions (verified on ZooKeeper 3.9.5)."""

from __future__ import annotations

import pytest

from replitree.keeper.core.sessions import password_of
from replitree.keeper.core.wire import FRAME_BYTES_MAX, Code, Op, int_bytes
from tests.keeper.client import DELETED, Client, Reply
from tests.keeper.frames import PING, auth_body, create_body, handshake, request, watched
from tests.keeper.memory import SECRET, MemoryKeeper


def test_response_has_the_byte_read_only_only_if_the_client_sent_its_own(keeper: MemoryKeeper) -> None:
    with_it, without = Client(keeper), Client(keeper, handshake(read_only=b""))
    assert with_it.response
    assert without.response
    assert (len(with_it.response.frame), len(without.response.frame)) == (37, 36)


@pytest.mark.parametrize(("asked", "given"), [(0, 1_000), (1, 1_000), (5_000, 5_000), (10**9, 60_000), (-5, 1_000)])
def test_timeout_is_bounded(keeper: MemoryKeeper, asked: int, given: int) -> None:
    response = Client(keeper, handshake(timeout_ms=asked)).response
    assert response
    assert response.timeout_ms == given


@pytest.mark.parametrize("password", [None, b"", bytes(16)])
def test_any_password_opens_a_new_session(keeper: MemoryKeeper, password: bytes | None) -> None:
    client = Client(keeper, handshake(password=password))
    assert client.session
    assert len(client.password) == 16


def test_requests_behind_the_handshake_are_answered_after_it_in_order(keeper: MemoryKeeper) -> None:
    ahead = request(1, Op.CREATE, create_body("/a")) + request(2, Op.EXISTS, watched("/a"))
    client = Client(keeper, handshake() + ahead)
    assert client.response
    assert [(each.xid, each.code) for each in client.take() if isinstance(each, Reply)] == [(1, 0), (2, 0)]


def test_resume_keeps_session_and_password_and_closes_the_older_connection(client: Client) -> None:
    again = client.again()
    client.listen()
    assert (again.session, again.password, client.is_closed) == (client.session, client.password, True)
    assert again.exists("/").code == 0


@pytest.mark.parametrize("wrong", ["password", "unknown", "closed"])
def test_refused_resume_is_told_that_the_session_is_gone(keeper: MemoryKeeper, client: Client, wrong: str) -> None:
    session, password = client.session, client.password
    if wrong == "closed":
        client.close()
    if wrong == "unknown":
        session, password = session + 1, password_of(SECRET, session + 1)
    if wrong == "password":
        password = bytes(16)
    refused = Client(keeper, handshake(session, password))
    assert refused.response
    assert refused.is_closed
    assert (refused.response.timeout_ms, refused.session, refused.password) == (0, 0, bytes(16))


def test_a_client_that_has_seen_more_is_closed_without_an_answer(keeper: MemoryKeeper) -> None:
    ahead = Client(keeper, handshake(last_zxid=keeper.state.zxid + 1))
    assert ahead.response is None
    assert ahead.is_closed


def test_opening_a_session_uses_up_a_zxid(keeper: MemoryKeeper, client: Client) -> None:
    before = client.ping().zxid
    Client(keeper)
    assert client.ping().zxid == before + 1


def test_session_ids_are_positive_with_a_high_byte_of_zero_and_never_serve_twice(keeper: MemoryKeeper) -> None:
    first = Client(keeper).session
    later = Client(MemoryKeeper(keeper.state, generation=2**31 - 1)).session
    assert 0 < first < later < 1 << 56


@pytest.mark.parametrize("length", [-1, -5, FRAME_BYTES_MAX + 1, 2_000_000])
def test_a_frame_of_a_wrong_length_closes_without_an_answer(client: Client, length: int) -> None:
    client.send(int_bytes(length))
    assert client.is_closed
    assert client.take() == []


def test_the_largest_frame_is_taken(client: Client) -> None:
    body = create_body("/big", b"x" * (FRAME_BYTES_MAX - 8 - len(create_body("/big"))))
    assert client.call(Op.CREATE, body).code == 0
    assert client.exists("/big").stat.data_bytes > 10**6


def test_frames_are_read_whatever_pieces_they_come_in(client: Client) -> None:
    for byte in request(1, Op.EXISTS, watched("/")):
        client.send(bytes([byte]))
    assert [each.xid for each in client.take() if isinstance(each, Reply)] == [1]


def test_a_short_handshake_and_a_frame_without_a_header_close(keeper: MemoryKeeper, client: Client) -> None:
    short = Client(keeper, int_bytes(3) + b"abc")
    client.send(int_bytes(7) + b"1234567")
    assert short.is_closed
    assert short.response is None
    assert client.is_closed


@pytest.mark.parametrize("xid", [-7, 0, 2**31 - 1])
def test_xid_is_echoed_and_never_interpreted(client: Client, xid: int) -> None:
    assert [client.call(Op.EXISTS, watched("/"), xid=xid).xid for _ in range(2)] == [xid, xid]


def test_ping_is_answered_with_its_own_xid_and_the_last_zxid(client: Client) -> None:
    zxid = client.create("/a").zxid
    assert client.call(Op.PING, xid=5)[:3] == (-2, zxid, 0)


def test_reply_of_a_read_has_the_last_applied_zxid(client: Client, other: Client) -> None:
    zxid = other.create("/a").zxid
    assert client.exists("/a").zxid == zxid


def test_refused_writes_use_up_a_zxid(client: Client) -> None:
    zxid = client.create("/a").zxid
    assert client.create("/a")[1:3] == (zxid + 1, Code.NODE_EXISTS)
    assert client.delete("/none")[1:3] == (zxid + 2, Code.NO_NODE)


@pytest.mark.parametrize("op", [102, 0, -10, 999, Op.CHECK, Op.DELETE_CONTAINER])
def test_unknown_requests_are_refused_without_a_zxid_and_close(client: Client, op: int) -> None:
    client.create("/a", op=Op.CREATE_CONTAINER, flags=4)
    assert client.call(op, watched("/a"), xid=9) == (9, -1, Code.UNIMPLEMENTED, b"")
    assert client.is_closed


def test_close_is_answered_before_the_socket_closes_and_what_is_behind_it_is_dropped(client: Client) -> None:
    client.send(request(1, Op.CLOSE_SESSION) + request(2, Op.CREATE, create_body("/late")))
    (reply,) = client.take()
    assert isinstance(reply, Reply)
    assert (reply.xid, reply.code, client.is_closed) == (1, 0, True)
    assert b"/late" not in client.keeper.state.nodes


def test_refused_authentication_closes(client: Client) -> None:
    assert client.call(Op.AUTH, auth_body("foo", b"x"), xid=-4) == (-4, 0, Code.AUTH_FAILED, b"")
    assert client.is_closed


def test_authentication_is_answered_with_zxid_zero(client: Client) -> None:
    assert client.call(Op.AUTH, auth_body("digest", b"u:p"), xid=-4) == (-4, 0, 0, b"")
    assert client.call(Op.AUTH, auth_body("ip", b""), xid=-4) == (-4, 0, 0, b"")


def test_a_silent_session_expires_one_tick_after_its_timeout_with_its_nodes(
    keeper: MemoryKeeper, other: Client
) -> None:
    quiet = Client(keeper, handshake(timeout_ms=1_000))
    quiet.create("/e", flags=1)
    other.exists("/e", watch=True)
    keeper.advance(1_000)
    assert other.events() == []
    keeper.advance(500)
    quiet.listen()
    assert other.events() == [(DELETED, "/e")]
    assert quiet.is_closed
    refused = quiet.again()
    assert refused.response
    assert refused.response.timeout_ms == 0


@pytest.mark.parametrize("what", [PING, request(1, Op.EXISTS, watched("/")), PING[:1]])
def test_a_client_that_sends_any_bytes_never_expires(keeper: MemoryKeeper, what: bytes) -> None:
    client = Client(keeper, handshake(timeout_ms=1_000))
    for _ in range(3):
        keeper.advance(999)
        client.send(what)
    keeper.advance(999)
    assert client.session in keeper.state.sessions


def test_a_longer_timeout_of_a_resume_is_in_the_log_before_it_is_told(keeper: MemoryKeeper) -> None:
    client = Client(keeper, handshake(timeout_ms=2_000))
    assert client.again(timeout_ms=1_000).response
    assert keeper.state.sessions[client.session] == 2_000
    longer = client.again(timeout_ms=9_000)
    assert longer.response
    assert longer.response.timeout_ms == 9_000
    assert keeper.state.sessions[client.session] == 9_000
