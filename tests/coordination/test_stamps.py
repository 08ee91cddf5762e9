"""Reads with the numbers of transactions: of what a commit has changed, and of what the session had been told before."""

# ruff: noqa: SLF001 - kazoo has no public names for what a connection does

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import NoNodeError
from kazoo.protocol import serialization as kazoo
from kazoo.protocol.connection import ConnectionHandler

from replitree.coordination.requests import Reply, _StampedReads
from replitree.coordination.session import _KazooConnection
from replitree.coordination.stamped import StampedCoordination
from replitree.protocol.core import effects as fx
from replitree.protocol.core.stamps import BEFORE_ALL, GetStamped, StampedNode, Zxid
from tests.coordination.conftest import MemoryProvider, Provider
from tests.coordination.waiting import PATIENCE_S


def stamped(zk: StampedCoordination, *paths: str) -> list[StampedNode]:
    found = [node for node in zk.perform(GetStamped(paths)).nodes if node is not None]
    assert len(found) == len(paths)
    return found


def test_all_nodes_of_a_commit_have_its_number_and_later_commits_have_higher_ones(provider: Provider) -> None:
    zk, root = provider.connect(PATIENCE_S), provider.root
    zk.perform(fx.Commit(fx.Create(f"{root}/a"), fx.Create(f"{root}/log"), fx.Create(f"{root}/log/log-", b"0")))
    first, log, entry = stamped(zk, f"{root}/a", f"{root}/log", f"{root}/log/log-")
    assert first.created == first.changed == log.created == entry.created
    zk.perform(fx.Commit(fx.Set(f"{root}/a", b"x", 0), fx.Create(f"{root}/log/log-", b"1", sequential=True)))
    again, entry, log = stamped(zk, f"{root}/a", f"{root}/log/log-0000000001", f"{root}/log")
    assert (again.value, again.version, again.created) == (b"x", 1, first.created)
    assert again.changed == entry.created == entry.changed > first.changed
    # A node does not change when a child is created.
    assert log.changed == log.created == first.created


def test_a_node_tells_the_number_of_its_next_child(provider: Provider) -> None:
    zk, root = provider.connect(PATIENCE_S), provider.root
    for _ in range(3):
        zk.perform(fx.Commit(fx.Create(f"{root}/log-", sequential=True)))
    zk.perform(fx.Commit(fx.Delete(f"{root}/log-0000000000", fx.ANY_VERSION)))
    assert stamped(zk, root)[0].number == zk.perform(fx.NextNumber(root)) == 3
    assert stamped(zk, f"{root}/log-0000000001")[0].number == 0


def test_what_is_not_there_has_no_stamps(provider: Provider) -> None:
    zk, root = provider.connect(PATIENCE_S), provider.root
    assert zk.perform(GetStamped((f"{root}/no", f"{root}/no/deeper"))).nodes == (None, None)
    assert zk.requests["get"] == 1


def test_an_answer_tells_of_all_that_it_shows_and_the_next_request_has_seen_it(provider: Provider) -> None:
    zk, other, root = provider.connect(PATIENCE_S), provider.connect(PATIENCE_S), provider.root
    for name in "abc":
        other.perform(fx.Commit(fx.Create(f"{root}/{name}")))
        created = stamped(zk, f"{root}/{name}")[0].created
        assert zk.perform(GetStamped((root,))).seen >= created


def test_a_new_session_has_been_told_by_its_first_answer(provider: Provider) -> None:
    zk, root = provider.connect(PATIENCE_S), provider.root
    zk.perform(fx.Commit(fx.Create(f"{root}/a")))
    zk.reconnect()
    created = stamped(zk, f"{root}/a")[0].created
    assert zk.perform(GetStamped((root,))).seen >= created


def test_the_answer_itself_does_not_count_as_seen() -> None:
    memory = MemoryProvider()
    zk, other = memory.connect(), memory.connect()
    zk.perform(fx.Get(memory.root))
    other.perform(fx.Commit(fx.Create(f"{memory.root}/a")))
    found = zk.perform(GetStamped((f"{memory.root}/a",)))
    assert found.nodes[0] is not None
    assert found.seen < found.nodes[0].created
    memory.close()


def test_the_end_of_a_session_is_a_transaction_of_its_own() -> None:
    memory = MemoryProvider()
    zk, other, root = memory.connect(), memory.connect(), memory.root
    zk.perform(fx.Commit(fx.Create(f"{root}/mine", ephemeral=True)))
    before = other.perform(GetStamped((root,)))
    memory.expire(zk)
    other.perform(fx.Get(root))
    assert other.perform(GetStamped((f"{root}/mine",))).seen > before.seen
    memory.close()


# --- the requests, and the connection ---------------------------------------------------------------------------------------


def test_stamps_are_read_from_where_zookeeper_writes_them() -> None:
    done, number = kazoo.multiheader_struct.pack, kazoo.int_struct.pack
    # czxid, mzxid, ctime, mtime, version, cversion, aversion, owner, length of the value, children, pzxid
    stat = kazoo.stat_struct.pack(71, 72, 1, 2, 5, 9, 4, 6, 3, 1, 73)
    answer = b"".join(
        (
            b"head",
            *(done(4, 0, 0), number(3), b"abc", stat),
            *(done(-1, 0, NoNodeError.code), number(NoNodeError.code)),
            *(done(4, 0, 0), number(-1), stat),
            done(-1, 1, -1),
        )
    )
    read, missing, empty = _StampedReads(b"").deserialize(answer, 4)
    assert read == StampedNode(b"abc", fx.Version(5), Zxid(71), Zxid(72), (9 + 1) // 2)
    assert isinstance(missing, NoNodeError)
    assert empty.value == b""


def connection() -> tuple[Any, list[Any]]:
    """A connection without kazoo's thread: what it sends is noted."""
    made, queue = _KazooConnection.__new__(_KazooConnection), list[Any]()
    made.client = SimpleNamespace(_queue=queue, _session_id=None)
    return made, queue


def test_a_request_is_marked_with_what_was_told_when_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    made, queue = connection()
    monkeypatch.setattr(ConnectionHandler, "_send_request", lambda *_: queue.pop(0))
    headers = iter((7, 9, 8))
    monkeypatch.setattr(
        ConnectionHandler, "_read_header", lambda *_: (SimpleNamespace(xid=1, zxid=next(headers), err=0), b"", 0)
    )
    replies = [Reply() for _ in range(4)]
    for number, reply in enumerate(replies):
        queue.append((None, reply))
        made._send_request(1.0, 1.0)
        if number < 3:
            made._read_header(1.0)
    # A ping that was answered from an older state than the answer before tells nothing new.
    assert [reply.seen for reply in replies] == [BEFORE_ALL, 7, 9, 9]


def test_a_connection_does_not_count_on_what_the_one_before_has_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its member may lag: kazoo asks it for the last answer, and not for what pings and watches have told."""
    made, queue = connection()
    monkeypatch.setattr(ConnectionHandler, "_send_request", lambda *_: None)
    monkeypatch.setattr(ConnectionHandler, "_connect", lambda *_: (1.0, 1.0))
    made.told = Zxid(7)
    reply = Reply()
    queue.append((None, reply))
    made._send_request(1.0, 1.0)
    assert reply.seen == 7
    # The answer was lost, and the request waits for the next connection.
    made._connect("host", "127.0.0.1", 2181)
    made._send_request(1.0, 1.0)
    assert reply.seen == BEFORE_ALL
