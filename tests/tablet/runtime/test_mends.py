"""What a member missed while one leader leads: it gets it as soon as it can take it; until then all is not well."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping
from typing import TypeVar

import pytest
from typing_extensions import override

from replitree.tablet import Settings
from replitree.tablet import open as open_tablet
from replitree.tablet.group.effects import Procedure, Put, ReadFence, Stored
from replitree.tablet.group.ids import GroupId, Step
from replitree.tablet.group.member import AskFence, Failed, Look, Reply, Request
from replitree.tablet.group.quorum import Quorum
from replitree.tablet.members import group as blob_group
from replitree.tablet.members.group import BlobGroups, MemberThread
from replitree.tablet.members.member import MemoryMember
from replitree.tablet.runtime.mends import LOOKS_MAX, Mend, Mends
from tests.storage.blob_providers import do
from tests.tablet.building import GROUP, TABLET, entry_id
from tests.tablet.machine import Words
from tests.tablet.runtime.group import CHANNELS, QUIET, Gated, Group
from tests.waiting import wait_for

T = TypeVar("T")

BUSY = Settings(look_s=0.01)
ILLS: dict[str, tuple[Callable[[Gated], None], Callable[[Gated], None]]] = {
    "away": (lambda member: setattr(member, "trouble", "it is away"), lambda member: setattr(member, "trouble", None)),
    "full": (lambda member: setattr(member, "is_full", True), lambda member: setattr(member, "is_full", False)),
}


@pytest.fixture
def group() -> Group:
    return Group()


def has(member: Gated, *steps: int) -> bool:
    """Whether a member has entries of the first generation."""
    return all(member.held.index(entry_id(1, step)) is not None for step in steps)


@pytest.mark.parametrize("ill", sorted(ILLS))
@pytest.mark.parametrize("more", [0, 1])
def test_member_that_was_ill_for_a_while_has_everything_under_the_same_leader(
    group: Group, ill: str, more: int
) -> None:
    member, (fall_ill, recover) = group.members[2], ILLS[ill]
    with group.open(BUSY) as tablet:
        tablet.execute(b"a")
        fall_ill(member)
        tablet.execute(b"b")
        wait_for(lambda: not tablet.status().is_mended or (GROUP, 2) not in group.groups.missed(), "that is noticed")
        assert not has(member, 2)
        recover(member)
        for _ in range(more):
            tablet.execute(b"c")
        wait_for(lambda: has(member, *range(1, 3 + more)), "the member gets what it missed")
        wait_for(lambda: tablet.status().is_mended)


def test_full_member_is_not_called_whole(group: Group) -> None:
    with group.open(BUSY) as tablet:
        wait_for(lambda: tablet.status().is_mended)
        group.members[2].is_full = True
        tablet.execute(b"a")
        wait_for(lambda: not tablet.status().is_mended, "it answers, and lacks something")
        probes = group.members[2].writes
        wait_for(lambda: group.members[2].writes > probes + 2, "it is tried again")
        wait_for(
            lambda: not tablet.status().is_mended, "it answers again, and still lacks it"
        )  # who just failed is not counted
        assert not has(group.members[2], 1)


def test_blobs_that_were_not_sent_to_a_member_that_was_behind_are_written_later(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blob_group, "BACKLOG_BYTES", 1)
    member = group.members[2]
    with group.open(BUSY) as tablet:
        wait_for(lambda: has(member, 0))
        member.gate.clear()
        for _ in range(3):
            tablet.execute(b"a")
        member.gate.set()
        wait_for(lambda: has(member, 1, 2, 3), "it gets what was not sent to it")


def due(mends: Mends, last: int, confirmed: int, groups: BlobGroups | None = None) -> Mend | None:
    """Ask what is to be mended; without groups nothing was missed by three members that answer."""
    missed = {(GROUP, number): 0 for number in range(3)} if groups is None else groups.missed()
    return mends.due(missed, Step(last), Step(confirmed))


# --- what is due ------------------------------------------------------------------------------------------------------------


def test_request_that_comes_while_something_is_mended_is_not_lost(group: Group) -> None:
    mends = Mends(group.groups, is_needed=True)
    mend = due(mends, 1, 1)
    assert mend is not None
    mends.ask()
    mends.ended(mend, ())
    assert not mends.is_whole()
    again = due(mends, 1, 1)
    assert again is not None
    mends.ended(again, ())
    assert mends.is_whole()
    assert due(mends, 1, 1) is None


def test_what_was_missed_is_mended_when_all_that_was_sent_by_then_is_confirmed(group: Group) -> None:
    mends = Mends(group.groups, is_needed=True)
    assert due(mends, 5, 3) is None
    assert due(mends, 9, 4) is None
    mend = due(mends, 9, 5)
    assert mend is not None
    assert mend.last == 5


def test_mend_that_did_not_help_is_tried_later_and_later(group: Group) -> None:
    mends = Mends(group.groups, is_needed=True)
    looks, tried = 0, list[int]()
    while len(tried) < 7:
        mend = due(mends, 0, 0)
        if mend is not None:
            tried.append(looks)
            mends.ended(mend, None)
        looks += 1
    pauses = [later - earlier - 1 for earlier, later in itertools.pairwise(tried)]
    assert pauses == [1, 2, 4, LOOKS_MAX, LOOKS_MAX, LOOKS_MAX]
    mends.ask()
    assert due(mends, 0, 0) is not None


def test_member_that_goes_away_while_it_is_mended_is_mended_when_it_is_back() -> None:
    members = [MemoryMember(str(number)) for number in range(3)]
    threads = [MemberThread(member) for member in members]
    groups = BlobGroups({GROUP: (Quorum(GROUP, 3, 2), threads)})
    mends = Mends(groups, is_needed=False)

    def flush() -> None:
        answered = threading.Event()
        threads[2].ask(AskFence(TABLET), lambda _: answered.set())
        answered.wait()  # what came before is answered, too

    def set_trouble(trouble: str | None) -> None:
        flush()
        members[2].trouble = trouble
        flush()

    set_trouble("it is away")
    assert do(groups, Put(GROUP, entry_id(1, 1), b"x")) == Stored()
    set_trouble(None)
    mend = due(mends, 1, 1, groups)
    assert mend is not None
    set_trouble("it is away again")
    mends.ended(mend, ())
    assert mends.is_whole(), "every member that answers has everything"
    set_trouble(None)
    assert not mends.is_whole()
    again = due(mends, 1, 1, groups)
    assert again is not None
    mends.ended(again, ())
    assert mends.is_whole()
    groups.close()


def test_member_that_was_silent_while_the_others_were_mended_is_mended_again(group: Group) -> None:
    mends = Mends(group.groups, is_needed=True)
    mend = due(mends, 1, 1)
    assert mend is not None
    mends.ended(mend, ((GROUP, 2),))
    assert not mends.is_whole()
    assert due(mends, 1, 1) is None, "not at once"
    again = due(mends, 1, 1)
    assert again is not None
    mends.ended(again, ())
    assert mends.is_whole()


# --- what happens in between --------------------------------------------------------------------------------------------------


class Interrupted:
    """A group with something that happens once, just before it says what members have missed.

    Attributes
    ----------
    happens
        What it is; None: nothing.
    """

    def __init__(self, groups: BlobGroups) -> None:
        self.happens: Callable[[], object] | None = None
        self._groups = groups

    def run(self, procedure: Procedure[T]) -> T:
        """Run a procedure."""
        return self._groups.run(procedure)

    def missed(self) -> Mapping[tuple[GroupId, int], int]:
        """Return as of the group, when that has happened."""
        happens, self.happens = self.happens, None
        if happens is not None:
            happens()
        return self._groups.missed()


def test_entry_that_is_sent_and_refused_while_it_is_looked_what_was_missed_is_mended(group: Group) -> None:
    groups, member = Interrupted(group.groups), group.members[2]

    def miss_one() -> None:
        member.is_full = True
        tablet.execute(b"b")
        wait_for(lambda: (GROUP, 2) not in groups.missed(), "it has refused")
        member.is_full = False
        wait_for(lambda: do(group.groups, ReadFence(GROUP, TABLET)) and (GROUP, 2) in groups.missed(), "it answers")

    with open_tablet(groups, Words(), CHANNELS, settings=BUSY) as tablet:
        tablet.execute(b"a")
        wait_for(lambda: has(member, 1))
        groups.happens = miss_one
        wait_for(lambda: has(member, 2), "it gets what it missed")


class Sulking(Gated):
    """A member whose next reads, as many as are left, go wrong; or hang until the gate is opened."""

    def __init__(self, incarnation: str) -> None:
        super().__init__(incarnation)
        self.left = 0
        self.reads = threading.Event()
        self.reads.set()

    @override
    def answer(self, request: Request) -> Reply:
        """Do what is asked."""
        if isinstance(request, Look):
            self.reads.wait()
            if self.left:
                self.left -= 1
                return Failed("not now")
        return super().answer(request)


@pytest.mark.parametrize("ill", ["fails", "hangs"])
def test_member_that_does_not_answer_the_mend_of_an_idle_leader_is_mended_later(ill: str) -> None:
    members = [Sulking(str(number)) for number in range(3)]
    quorum = Quorum(GROUP, 3, 2)

    def groups() -> BlobGroups:
        return BlobGroups({GROUP: (quorum, [MemberThread(member) for member in members])}, patience_s=0.2)

    members[2].trouble = "it is away"
    with open_tablet(groups(), Words(), CHANNELS, settings=QUIET) as tablet:
        for _ in range(3):
            tablet.execute(b"a")  # what is known to be confirmed a recovery does not restore
    members[2].trouble = None
    if ill == "fails":
        members[2].left = 1
    else:
        members[2].reads.clear()
    with open_tablet(groups(), Words(), CHANNELS, settings=BUSY) as tablet:
        if ill == "hangs":
            wait_for(lambda: tablet.status().is_mended, "who does not answer is not waited for")
            assert not has(members[2], 1)
            members[2].reads.set()
        wait_for(lambda: has(members[2], 0, 1), "it gets what it missed")
