"""Members that take a request and don't answer: whoever asks goes on as soon as the others have proven what it asks for.

Waits for the rest are noted instead of made, and nobody is patient enough to wait for anything else: `PATIENCE_S` is an hour.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from typing_extensions import override

import replitree.tablet
from replitree.tablet.group.effects import (
    Blobs,
    Discover,
    Fence,
    FencedUpTo,
    GroupEffect,
    NotKnown,
    Put,
    Range,
    ReadBlobs,
    ReadFence,
    Restore,
    Stored,
)
from replitree.tablet.group.ids import Generation
from replitree.tablet.group.member import AskFence, Contents, Done, Failed, FenceIs, Reply, Request, Write
from replitree.tablet.group.quorum import Quorum, carry_out
from replitree.tablet.members.gathering import Gathering, Usual
from replitree.tablet.members.group import REST_SHARE, BlobGroups, MemberPool, MemberThread
from replitree.tablet.members.health import Health
from replitree.tablet.members.member import MemoryMember
from replitree.tablet.members.opening import OpenMembers
from tests.storage.blob_providers import do
from tests.storage.test_blob_gathering import Asked
from tests.tablet.building import GROUP, TABLET, entry_id
from tests.tablet.machine import Words
from tests.tablet.runtime.group import CHANNELS, QUIET
from tests.waiting import wait_for

PATIENCE_S = 3600.0
SHORT_S = PATIENCE_S / REST_SHARE
SOON_S = 60.0
"""So long a test waits for what is to happen at once."""

QUORUM = Quorum(GROUP, 3, 2)
FENCE = Fence(Generation(1), "a")
FIRST, LAST = entry_id(1, 0), entry_id(9, 0)
WHOLE = Contents(((FIRST, b"x"),))
Waits = list[float]
Run = Callable[[GroupEffect], Future[Any]]
READS: tuple[GroupEffect, ...] = (Discover(GROUP, FIRST), Range(GROUP, FIRST, LAST), ReadBlobs(GROUP, (FIRST,)))


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Waits:
    """The waits for the rest, which nobody makes."""
    noted: Waits = []
    monkeypatch.setattr(Gathering, "wait_for_rest", lambda _, patience_s: noted.append(patience_s))
    return noted


@pytest.fixture
def three() -> Iterator[tuple[list[Asked], Run]]:
    """Three members whose replies the test gives, and what asks them."""
    members = [Asked() for _ in range(3)]
    groups = BlobGroups({GROUP: (QUORUM, members)}, patience_s=PATIENCE_S)
    with ThreadPoolExecutor(1) as pool:
        yield members, lambda effect: pool.submit(do, groups, effect)
        for member in members:
            while not member.questions.empty():
                member.next()(Failed("the test is over"))


def answer(members: list[Asked], *replies: Reply) -> None:
    """Let the first members answer."""
    for member, reply in zip(members, replies, strict=False):
        member.next()(reply)


def test_probe_goes_on_as_soon_as_enough_have_said_their_fence(three: tuple[list[Asked], Run]) -> None:
    members, run = three
    probed = run(ReadFence(GROUP, TABLET))
    answer(members, FenceIs(FENCE), FenceIs(None))
    assert probed.result(SOON_S) == FencedUpTo(Generation(1), is_set=True)


def test_fence_that_one_member_says_is_no_probe(three: tuple[list[Asked], Run]) -> None:
    members, run = three
    probed = run(ReadFence(GROUP, TABLET))
    answer(members, FenceIs(None), Failed("away"), Failed("away"))
    assert isinstance(probed.result(SOON_S), NotKnown)


@pytest.mark.parametrize("effect", READS, ids=lambda each: type(each).__name__)
def test_read_that_has_a_cover_waits_for_the_rest_for_a_short_time(
    three: tuple[list[Asked], Run], waits: Waits, effect: GroupEffect
) -> None:
    members, run = three
    read = run(effect)
    answer(members, Contents(), WHOLE)
    assert read.result(SOON_S) == Blobs(((FIRST, b"x"),))
    (wait_s,) = waits
    assert 0 < wait_s <= SHORT_S


class Silent(Health):
    """Of a member that has not answered for a while."""

    @property
    @override
    def silent_s(self) -> float:
        return SHORT_S


def test_member_that_has_been_silent_for_a_while_is_not_waited_for_again(
    three: tuple[list[Asked], Run], waits: Waits
) -> None:
    members, run = three
    members[2].health = Silent()
    read = run(READS[1])
    answer(members, WHOLE, WHOLE)
    assert read.result(SOON_S) == Blobs(((FIRST, b"x"),))
    (wait_s,) = waits
    assert wait_s <= 0


def test_rest_that_answers_in_time_is_heard(three: tuple[list[Asked], Run]) -> None:
    members, run = three
    read = run(READS[1])
    answer(members, Contents(), Contents(), WHOLE)
    assert read.result(SOON_S) == Blobs(((FIRST, b"x"),))


def test_rest_is_waited_for_until_it_answers() -> None:
    gathering = told()
    gathering.wait_for_rest(0.05)
    assert gathering.quiet_s >= 0.05
    gathering.take(2, 0, WHOLE)
    gathering.wait_for_rest(PATIENCE_S)
    gathering = told()
    gathering.take(2, 0, WHOLE)
    gathering.wait_for_rest(PATIENCE_S)


def test_damage_that_is_heard_when_enough_was_told_changes_nothing() -> None:
    gathering = Gathering(5, 3, Usual(5), 5)
    for number, reply in enumerate((WHOLE, WHOLE, WHOLE, Contents(damaged=(FIRST,)), WHOLE)):
        gathering.take(number, 0, reply)
    assert gathering.wait(0)
    gathering.wait_for_rest(PATIENCE_S)


def told() -> Gathering:
    """Return what two of three have answered."""
    gathering = Gathering(3, 2, Usual(3), 3)
    for number in (0, 1):
        gathering.take(number, 0, Contents())
    assert gathering.wait(0)
    return gathering


@pytest.mark.parametrize(
    "unclear", [Contents(damaged=(FIRST,)), Contents(doubts=((FIRST, LAST),)), Failed("it is away")]
)
def test_answer_with_damage_is_not_enough_to_go_on(unclear: Reply) -> None:
    gathering = Gathering(3, 2, Usual(3), 3)
    gathering.take(0, 0, unclear)
    gathering.take(1, 0, Contents())
    assert not gathering.wait(0)
    gathering.take(2, 0, WHOLE)
    assert gathering.wait(0)


def test_read_that_meets_damage_waits_for_all(three: tuple[list[Asked], Run]) -> None:
    members, run = three
    read = run(READS[1])
    answer(members, Contents(damaged=(FIRST,)), Contents(), WHOLE)
    assert read.result(SOON_S) == Blobs(((FIRST, b"x"),))


@pytest.mark.parametrize(
    ("effect", "wanted"),
    [(ReadFence(GROUP, TABLET), 2), *((each, 2) for each in READS), (Restore(GROUP, (FIRST,), FENCE), 3)],
)
def test_cover_is_wanted_of_a_read_and_everybody_where_copies_are_mended(effect: GroupEffect, wanted: int) -> None:
    assert next(carry_out(QUORUM, effect)).wanted == wanted


def test_who_mends_says_who_lacks_something(three: tuple[list[Asked], Run]) -> None:
    members, run = three
    restored = run(Restore(GROUP, (FIRST,), FENCE))
    answer(members, WHOLE, WHOLE, Failed("it is not there"))
    assert restored.result(SOON_S).lacking == (2,)
    restored = run(Restore(GROUP, (FIRST,), FENCE))
    answer(members, WHOLE, Contents(), Contents())
    members[1].next()(Done())
    members[2].next()(Failed("it is full"))
    assert restored.result(SOON_S).lacking == (2,)
    restored = run(Restore(GROUP, (FIRST,), FENCE))
    answer(members, WHOLE, WHOLE, WHOLE)
    assert restored.result(SOON_S).lacking == ()


# --- members with threads ---------------------------------------------------------------------------------------------------


class Hanging(MemoryMember):
    """A member that answers when its gate is open; or, if `hangs` says so, all but such requests at once."""

    def __init__(self, incarnation: str) -> None:
        super().__init__(incarnation)
        self.gate = threading.Event()
        self.gate.set()
        self.hangs: type[object] = object

    @override
    def answer(self, request: Request) -> Reply:
        """Do what is asked, when the gate is open."""
        if isinstance(request, self.hangs):
            self.gate.wait()
        return super().answer(request)


@pytest.fixture
def members() -> Iterator[list[Hanging]]:
    found = [Hanging(str(number)) for number in range(3)]
    yield found
    for each in found:
        each.gate.set()


@pytest.mark.parametrize("number", range(3))
def test_leader_is_elected_while_a_member_hangs_and_waits_for_nothing_but_short_times(
    members: list[Hanging], waits: Waits, number: int
) -> None:
    def groups() -> BlobGroups:
        return BlobGroups({GROUP: (QUORUM, [MemberThread(each) for each in members])}, PATIENCE_S)

    with replitree.tablet.open(groups(), Words(), CHANNELS, settings=QUIET) as first:
        first.execute(b"a")
    members[number].gate.clear()
    waits.clear()
    with ThreadPoolExecutor(1) as pool:
        standing = pool.submit(replitree.tablet.open, groups(), Words(), CHANNELS, settings=QUIET)
        with standing.result(SOON_S) as second:
            assert second.execute(b"b") == b"2"
            assert second.read() == ("a", "b")
            assert waits
            assert all(each <= SHORT_S for each in waits)
            members[number].gate.set()


@pytest.mark.parametrize("kind", [MemberThread, MemberPool])
def test_member_that_keeps_a_request_is_away_and_misses_nothing_that_is_counted(
    members: list[Hanging], kind: type[MemberThread | MemberPool]
) -> None:
    opened = OpenMembers(QUORUM, members, [each.incarnation for each in members], kind, patience_s=0.05)
    members[2].hangs = Write
    members[2].gate.clear()
    assert do(opened.groups, Put(GROUP, entry_id(1, 1), b"x")) == Stored()
    wait_for(lambda: opened.away == (2,))
    assert list(opened.groups.missed()) == [(GROUP, 0), (GROUP, 1)]
    do(opened.groups, ReadFence(GROUP, TABLET))
    assert opened.away == (2,), "what it answers meanwhile does not count"
    members[2].gate.set()
    wait_for(lambda: opened.away == ())
    assert opened.groups.missed() == {(GROUP, number): 0 for number in range(3)}
    opened.groups.close()


def test_oldest_request_that_is_waited_for_counts() -> None:
    health = Health()
    first, second = health.sent(), health.sent()
    wait_for(lambda: health.silent_s > 0)
    silent_s = health.silent_s
    health.heard(second, AskFence(TABLET), FenceIs(None))
    assert health.silent_s >= silent_s
    health.heard(first, AskFence(TABLET), FenceIs(None))
    assert health.silent_s == 0
    assert health.trouble is None
