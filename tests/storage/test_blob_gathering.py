"""Who is asked first, and when the spares are asked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue

import pytest

from replitree.tablet.group.effects import NotKnown, Procedure, Put, Stored
from replitree.tablet.group.member import Done, Failed, Request
from replitree.tablet.group.quorum import Quorum
from replitree.tablet.members import gathering as blob_gathering
from replitree.tablet.members.gathering import Usual
from replitree.tablet.members.group import BlobGroups, Heard
from replitree.tablet.members.health import Health
from tests.tablet.building import GROUP, entry_id

PATIENCE_S = 30.0


class Asked:
    """A member whose replies the test gives."""

    def __init__(self) -> None:
        self.health = Health()
        self.questions: SimpleQueue[tuple[Request, Heard]] = SimpleQueue()

    def ask(self, request: Request, heard: Heard) -> None:
        """Take a question."""
        self.questions.put((request, heard))

    def next(self) -> Heard:
        """Wait for a question; return who hears the reply."""
        return self.questions.get(timeout=PATIENCE_S)[1]

    def close(self, patience_s: float = PATIENCE_S) -> bool:  # noqa: ARG002 - there is nothing to wait for
        """Do nothing."""
        return True


Outcome = Future[object]
Three = tuple[list[Asked], Callable[[int], Outcome]]


@pytest.fixture
def three() -> Iterator[Three]:
    members = [Asked() for _ in range(3)]
    groups = BlobGroups({GROUP: (Quorum(GROUP, 3, 2), members)}, patience_s=PATIENCE_S)
    with ThreadPoolExecutor(4) as pool:
        yield members, lambda step: pool.submit(groups.run, _put(step))


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is ever waited for too long."""
    monkeypatch.setattr(blob_gathering, "PATIENCE_NS", int(PATIENCE_S * 1e9))


def _put(step: int) -> Procedure[object]:
    return (yield Put(GROUP, entry_id(1, step), b"x"))


@pytest.mark.usefixtures("patient")
def test_spare_of_a_lone_write_is_asked_when_the_others_are_done(three: Three) -> None:
    members, put = three
    stored = put(1)
    first, second = members[0].next(), members[1].next()
    first(Done())
    assert members[2].questions.empty()
    second(Done())
    assert stored.result(PATIENCE_S) == Stored()
    assert not members[2].questions.empty(), "whoever hears that it is stored finds the spare asked"


@pytest.mark.usefixtures("patient")
def test_spare_is_asked_when_another_one_fails(three: Three) -> None:
    members, put = three
    stored = put(1)
    members[0].next()(Failed("it is full"))
    members[2].next()(Done())
    assert not stored.done()
    members[1].next()(Done())
    assert stored.result(PATIENCE_S) == Stored()


@pytest.mark.usefixtures("patient")
def test_two_that_fail_leave_a_doubt(three: Three) -> None:
    members, put = three
    stored = put(1)
    members[0].next()(Failed("it is full"))
    members[2].next()(Done())
    members[1].next()(Failed("it is full"))
    assert isinstance(stored.result(PATIENCE_S), NotKnown)


def test_spare_is_asked_when_another_one_hangs(three: Three) -> None:
    members, put = three
    stored = put(1)
    members[0].next()(Done())
    members[2].next()(Done())
    assert stored.result(PATIENCE_S) == Stored()


@pytest.mark.usefixtures("patient")
def test_who_is_not_alone_asks_all(three: Three) -> None:
    members, put = three
    stored = [put(1)]
    heard = [members[0].next(), members[1].next()]
    stored.append(put(2))
    heard += [member.next() for member in members]
    for each in heard:
        each(Done())
    assert [each.result(PATIENCE_S) for each in stored] == [Stored(), Stored()]


def test_slow_member_becomes_the_spare() -> None:
    usual = Usual(3)
    assert usual.in_order([0, 1, 2]) == [0, 1, 2]
    for number, took_ns in enumerate((900, 300, 310)):
        usual.note(number, took_ns)
    assert usual.in_order([0, 1, 2]) == [1, 2, 0]


def test_times_are_smoothed() -> None:
    usual = Usual(1)
    usual.note(0, 800)
    usual.note(0, 1600)
    assert usual.patience_s([0]) == pytest.approx((blob_gathering.PATIENCE_NS + 2 * 900) / 1e9)


def test_spares_are_asked_once() -> None:
    asked = list[int]()
    gathering = blob_gathering.Gathering(3, 2, Usual(3), 3)
    gathering.keep(lambda: asked.append(1))
    threads = [threading.Thread(target=gathering.ask_spares) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert asked == [1]
