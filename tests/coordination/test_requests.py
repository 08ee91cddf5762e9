"""Our own requests against kazoo's: the same bytes out, the same answers in."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from kazoo.exceptions import ConnectionLoss, NodeExistsError, RolledBackError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol import serialization as kazoo
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from replitree.coordination.requests import Reply, _Transaction, encode_transaction
from replitree.protocol.core import effects as fx

OPERATIONS: tuple[fx.Operation, ...] = (
    fx.Check("/t/host", fx.Version(7)),
    fx.Create("/t/log/log-", "Grüße".encode(), sequential=True),
    fx.Create("/t/is_active", b"", ephemeral=True),
    fx.Create("/t/both-", b"x", ephemeral=True, sequential=True),
    fx.Set("/t/größe", b"\x00\xff", fx.Version(3)),
    fx.Delete("/t/queue/queue-1", fx.ANY_VERSION),
)


def client(*, secret: bool = False, chroot: str = "") -> SimpleNamespace:
    return SimpleNamespace(chroot=chroot, default_acl=[make_digest_acl("me", "secret", all=True)] if secret else None)


@pytest.mark.parametrize("secret", [False, True])
def test_a_transaction_has_the_bytes_that_kazoo_would_send(secret: bool) -> None:
    acl = client(secret=secret).default_acl or OPEN_ACL_UNSAFE
    theirs = kazoo.Transaction(
        (
            kazoo.CheckVersion("/t/host", 7),
            kazoo.Create("/t/log/log-", "Grüße".encode(), acl, 2),
            kazoo.Create("/t/is_active", b"", acl, 1),
            kazoo.Create("/t/both-", b"x", acl, 3),
            kazoo.SetData("/t/größe", b"\x00\xff", 3),
            kazoo.Delete("/t/queue/queue-1", -1),
        )
    )
    assert encode_transaction(client(secret=secret), OPERATIONS) == bytes(theirs.serialize())


def test_a_transaction_is_of_kazoos_type() -> None:
    assert _Transaction(b"").type == kazoo.Transaction.type


@pytest.mark.parametrize(("path", "sent"), [("/a//b", "/a/b"), ("/a/.b", "/a/.b"), ("/a/", "/a")])
def test_a_path_that_is_not_plain_is_sent_as_kazoo_would_send_it(path: str, sent: str) -> None:
    assert encode_transaction(client(), (fx.Check(path, fx.Version(0)),)) == bytes(
        kazoo.Transaction((kazoo.CheckVersion(sent, 0),)).serialize()
    )


@pytest.mark.parametrize("path", ["/a/../b", "/a/./b", "/.."])
def test_a_relative_path_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="relative"):
        encode_transaction(client(), (fx.Create(path, b""),))


def test_the_root_of_a_client_is_put_before_every_path() -> None:
    assert encode_transaction(client(chroot="/kept"), (fx.Check("/a", fx.Version(0)),)) == bytes(
        kazoo.Transaction((kazoo.CheckVersion("/kept/a", 0),)).serialize()
    )


def test_answers_are_told_apart_by_operation() -> None:
    done = kazoo.multiheader_struct.pack
    stat = kazoo.stat_struct.pack(*range(11))
    answer = b"".join(
        (
            b"head",
            done(13, 0, 0),
            done(1, 0, 0),
            kazoo.write_string("/t/log/log-0000000003"),
            done(5, 0, 0),
            stat,
            done(2, 0, 0),
            done(-1, 1, -1),
        )
    )
    assert _Transaction(b"").deserialize(answer, 4) == [True, "/t/log/log-0000000003", True, True]


def test_the_errors_of_a_refused_transaction_stand_where_its_operations_do() -> None:
    errors = b"".join(
        kazoo.multiheader_struct.pack(-1, 0, code) + kazoo.int_struct.pack(code) for code in (0, NodeExistsError.code)
    )
    found = _Transaction(b"").deserialize(errors + kazoo.multiheader_struct.pack(-1, 1, -1), 0)
    assert [type(error) for error in found] == [RolledBackError, NodeExistsError]


# --- replies --------------------------------------------------------------------------------------------------------------


def test_an_answer_is_had_by_whoever_waits_and_again_later() -> None:
    reply = Reply()
    setter = threading.Timer(0.0, reply.set, ("here",))
    setter.start()
    assert reply.get(20.0) == "here"
    assert reply.wait(0.0)
    assert reply.get(0.0) == "here"
    setter.join()


def test_the_first_word_counts() -> None:
    reply = Reply()
    reply.set_exception(ConnectionLoss())
    reply.set("late")
    reply.set_exception(NodeExistsError())
    with pytest.raises(ConnectionLoss):
        reply.get(0.0)


def test_no_answer_in_time_is_an_error_of_its_own() -> None:
    reply = Reply()
    assert not reply.wait(0.0)
    with pytest.raises(KazooTimeoutError):
        reply.get(0.0)
