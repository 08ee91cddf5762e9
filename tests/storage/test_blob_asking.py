"""Members that are asked for themselves: all at once, and who hangs holds up nobody for long."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from typing_extensions import override

from replitree.tablet.group.admission import Answer, AskStanding, Standing
from replitree.tablet.group.ids import GroupId
from replitree.tablet.group.member import Failed
from replitree.tablet.group.openings import AskEach, open_group
from replitree.tablet.group.quorum import Quorum
from replitree.tablet.members import asking as blob_asking
from replitree.tablet.members.asking import SILENT, UNANSWERED, Asking, performed
from replitree.tablet.members.member import MemoryMember
from tests.waiting import wait_for

SOON_S = 60.0
"""So long a test waits for what is to happen at once."""

EACH = (AskStanding(),) * 3


class Hanging(MemoryMember):
    """A member that says how it stands when its gate is open."""

    def __init__(self, incarnation: str) -> None:
        super().__init__(incarnation)
        self.gate, self.asked = threading.Event(), threading.Event()
        self.gate.set()
        self.asked_by = ""

    @override
    def standing(self) -> Standing | Failed:
        """Return what it knows of openings, when the gate is open."""
        self.asked_by = threading.current_thread().name
        self.asked.set()
        self.gate.wait()
        return super().standing()


@pytest.fixture
def members() -> Iterator[list[Hanging]]:
    found = [Hanging(str(number)) for number in range(3)]
    yield found
    for each in found:
        each.gate.set()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody wait for the rest."""
    monkeypatch.setattr(blob_asking, "REST_S", 0.0)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as found:
        yield found


def stood(number: int) -> Standing:
    return Standing(str(number), 0, ())


def shut(*members: Hanging) -> None:
    for each in members:
        each.gate.clear()


Asked = Future[tuple[Answer | None, ...]]


def test_all_are_asked_before_any_of_them_has_answered(members: list[Hanging], pool: ThreadPoolExecutor) -> None:
    shut(*members)
    asked: Asked = pool.submit(Asking().each, members, AskEach(EACH, 2))
    assert all(each.asked.wait(SOON_S) for each in members)
    assert not asked.done()
    for each in members:
        each.gate.set()
    assert asked.result(SOON_S) == (stood(0), stood(1), stood(2))


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("number", range(3))
def test_who_hangs_is_left_when_enough_have_answered(members: list[Hanging], number: int) -> None:
    shut(members[number])
    answers = Asking(SOON_S).each(members, AskEach(EACH, 2))
    assert answers == tuple(SILENT if each == number else stood(each) for each in range(3))


@pytest.mark.usefixtures("at_once")
def test_all_are_waited_for_while_too_few_answers_are_good(members: list[Hanging], pool: ThreadPoolExecutor) -> None:
    members[0].trouble = "it is broken"
    shut(members[2])
    asked: Asked = pool.submit(Asking(SOON_S).each, members, AskEach(EACH, 2))
    assert all(each.asked.wait(SOON_S) for each in members)
    members[2].gate.set()
    assert asked.result(SOON_S) == (Failed("it is broken"), stood(1), stood(2))


@pytest.mark.usefixtures("at_once")
def test_all_are_wanted_unless_it_is_said_how_many(members: list[Hanging], pool: ThreadPoolExecutor) -> None:
    shut(members[2])
    asked: Asked = pool.submit(Asking(SOON_S).each, members, AskEach(EACH))
    assert all(each.asked.wait(SOON_S) for each in members)
    members[2].gate.set()
    assert asked.result(SOON_S) == (stood(0), stood(1), stood(2))


def test_the_rest_is_waited_for_a_little(
    members: list[Hanging], pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blob_asking, "REST_S", SOON_S)
    shut(members[2])
    asked: Asked = pool.submit(Asking().each, members, AskEach(EACH, 2))
    assert all(each.asked.wait(SOON_S) for each in members)
    wait_for(lambda: len(threads()) == 1, "the others have answered")
    assert not asked.done()
    members[2].gate.set()
    assert asked.result(SOON_S) == (stood(0), stood(1), stood(2))


def test_nobody_waits_for_ever_where_too_few_answer(members: list[Hanging]) -> None:
    shut(*members[1:])
    assert Asking(1.0).each(members, AskEach(EACH, 2)) == (stood(0), SILENT, SILENT)


@pytest.mark.usefixtures("at_once")
def test_who_has_not_answered_is_not_asked_again_and_has_one_thread(members: list[Hanging]) -> None:
    shut(members[2])
    asking = Asking(SOON_S)
    assert asking.each(members, AskEach(EACH, 2))[2] == SILENT
    assert [asking.each(members, AskEach(EACH, 2))[2] for _ in range(5)] == [UNANSWERED] * 5
    assert len(threads()) == 1
    members[2].gate.set()
    wait_for(lambda: asking.each(members, AskEach(EACH, 3))[2] == stood(2))
    asking.close()
    assert threads() == []


def test_close_does_not_wait_for_a_member_that_hangs_and_says_so(
    members: list[Hanging], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(blob_asking, "REST_S", 0.0)
    monkeypatch.setattr(blob_asking, "CLOSE_S", 0.0)
    shut(members[2])
    asking = Asking(SOON_S)
    asking.each(members, AskEach(EACH, 2))
    asking.close()
    assert "1 members of a blob group hang" in caplog.text
    members[2].gate.set()
    wait_for(lambda: threads() == [])


def test_one_alone_is_asked_by_whoever_asks(members: list[Hanging]) -> None:
    assert Asking().each(members, AskEach((None, AskStanding(), None))) == (None, stood(1), None)
    assert members[1].asked_by == threading.current_thread().name
    assert Asking().each(members, AskEach((None,) * 3)) == (None,) * 3


class Broken(MemoryMember):
    """A member with an error that nobody has reckoned with."""

    @override
    def standing(self) -> Standing | Failed:
        """Fail."""
        raise ValueError("what is this")


def test_error_that_nobody_reckoned_with_is_a_doubt() -> None:
    members = [MemoryMember("0"), Broken("1"), MemoryMember("2")]
    answers = Asking().each(members, AskEach(EACH))
    assert (answers[0], answers[2]) == (stood(0), stood(2))
    assert isinstance(answers[1], Failed)
    assert "what is this" in answers[1].reason


@pytest.mark.usefixtures("at_once")
def test_group_is_opened_without_a_member_that_hangs(members: list[Hanging]) -> None:
    shut(members[1])
    obstacles = performed(members, open_group(Quorum(GroupId("g"), 3, 2), ["0", "1", "2"])).obstacles
    assert [each is None for each in obstacles] == [True, False, True]


def threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "blob-asking"]
