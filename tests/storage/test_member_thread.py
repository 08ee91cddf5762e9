"""The thread of a member: one that is far behind gets no more blobs, and catches up; one that hangs is not waited for."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import ClassVar

import pytest
from typing_extensions import override

from replitree.tablet.group.effects import Blobs, Fence, NotKnown, Procedure, ReadBlobs
from replitree.tablet.group.ids import Generation
from replitree.tablet.group.member import AskFence, Done, Failed, FenceIs, Look, Reply, Request, Write
from replitree.tablet.group.quorum import Quorum
from replitree.tablet.members import group as blob_group
from replitree.tablet.members.group import BlobGroups, MemberPool, MemberThread
from replitree.tablet.members.member import MemoryMember
from tests.tablet.building import GROUP, TABLET, entry_id
from tests.tablet.runtime.group import Gated
from tests.waiting import wait_for

FENCE = Fence(Generation(0), "a")


def asked(thread: MemberThread | MemberPool, request: Request) -> Future[Reply]:
    """Ask, and wait for the reply later."""
    future: Future[Reply] = Future()
    thread.ask(request, future.set_result)
    return future


def test_member_that_is_far_behind_gets_no_more_blobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blob_group, "BACKLOG_BYTES", 2 << 20)
    member = Gated("slow")
    thread = MemberThread(member)
    member.gate.clear()
    first, second = (asked(thread, Write(((entry_id(1, step), bytes(1 << 20)),))) for step in (1, 2))
    assert asked(thread, Write(((entry_id(1, 3), b"x"),))).result(0) == Failed("it is 2 MiB behind")
    other = asked(thread, AskFence(TABLET))
    member.gate.set()
    assert (first.result(10), second.result(10), other.result(10)) == (Done(), Done(), FenceIs(None))
    assert asked(thread, Write(((entry_id(1, 3), b"x"),))).result(10) == Done()
    thread.close()


def test_member_with_an_obstacle_is_not_asked() -> None:
    thread = MemberThread(Gated("away"), "it is away")
    assert asked(thread, AskFence(TABLET)).result(10) == Failed("it is away")
    thread.close()


class Broken(MemoryMember):
    """A member whose next answer is an error that nobody has reckoned with."""

    errors: ClassVar[list[Exception]] = []

    @override
    def answer(self, request: Request) -> Reply:
        """Do what is asked, or fail."""
        if self.errors:
            raise self.errors.pop()
        return super().answer(request)


@pytest.mark.parametrize("kind", [MemberThread, MemberPool])
def test_error_that_nobody_reckoned_with_is_a_doubt_and_the_next_request_is_answered(
    kind: type[MemberThread | MemberPool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Broken, "errors", [ValueError("what is this")])
    thread = kind(Broken("odd"))
    reply = asked(thread, Write(((entry_id(1, 1), b"x"),))).result(10)
    assert isinstance(reply, Failed)
    assert "what is this" in reply.reason
    assert (thread.health.missed, thread.health.trouble) == (1, reply.reason)
    assert asked(thread, AskFence(TABLET)).result(10) == FenceIs(None)
    assert (thread.health.missed, thread.health.trouble) == (1, None)
    thread.close()


def test_group_that_is_closed_does_not_wait_for_a_member_that_hangs_and_what_it_was_asked_is_done(
    caplog: pytest.LogCaptureFixture,
) -> None:
    member = Gated("hangs")
    thread = MemberThread(member)
    groups = BlobGroups({GROUP: (Quorum(GROUP, 1, 1), [thread])}, patience_s=0.05)
    member.gate.clear()
    replies = [asked(thread, Write(((entry_id(1, step), b"x"),), restorer=FENCE)) for step in (1, 2)]
    groups.close()
    assert "member 0 has kept a request" in caplog.text
    assert not any(each.done() for each in replies)
    member.gate.set()
    assert [each.result(10) for each in replies] == [Done(), Done()]
    assert thread.close()


def test_member_that_fails_while_it_is_closed_is_asked_nothing_more() -> None:
    member = Gated("gone")
    thread = MemberThread(member)
    member.gate.clear()
    replies = [asked(thread, Write(((entry_id(1, step), b"x"),), restorer=FENCE)) for step in range(1, 5)]
    wait_for(lambda: thread.health.silent_s > 0)
    assert not thread.close(0)
    member.trouble = "it is gone"
    member.gate.set()
    assert [each.result(10) for each in replies] == [Failed("it is gone")] * 4
    assert member.writes == 1
    assert thread.close()


class Slow(MemoryMember):
    """A member that reads when it is let."""

    def __init__(self, incarnation: str) -> None:
        super().__init__(incarnation)
        self.gate = threading.Event()

    @override
    def answer(self, request: Request) -> Reply:
        """Do what is asked, when the gate is open."""
        if isinstance(request, Look):
            self.gate.wait()
        return super().answer(request)


def test_long_read_is_waited_for_longer_than_silence() -> None:
    members = [Slow(str(number)) for number in range(3)]
    threads = [MemberThread(member) for member in members]
    groups = BlobGroups({GROUP: (Quorum(GROUP, 3, 2), threads)}, patience_s=0.2)

    def open_two() -> None:
        for member in members[:2]:
            member.gate.set()

    opening = threading.Timer(0.5, open_two)
    opening.start()
    assert isinstance(groups.run(_get()), Blobs)
    members[2].gate.set()
    opening.join()
    groups.close()


def test_read_that_nobody_answers_is_a_doubt_in_the_end() -> None:
    members = [Slow(str(number)) for number in range(3)]
    groups = BlobGroups({GROUP: (Quorum(GROUP, 3, 2), [MemberThread(each) for each in members])}, patience_s=0.01)
    assert isinstance(groups.run(_get()), NotKnown)
    for member in members:
        member.gate.set()
    groups.close()


def _get() -> Procedure[object]:
    return (yield ReadBlobs(GROUP, (entry_id(1, 1),)))
