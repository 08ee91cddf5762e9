"""What a member missed while one leader leads: it gets it as soon as it can take it; until then all is not well."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from replitree.storage import blob_group
from replitree.tablet import Settings
from replitree.tablet.effects import Put, ReadFence, Stored
from replitree.tablet.ids import Step
from replitree.tablet.runtime.mends import LOOKS_MAX, Mends
from tests.storage.blob_providers import do
from tests.tablet.building import GROUP, TABLET, entry_id
from tests.tablet.runtime.group import Gated, Group
from tests.waiting import wait_for

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
        assert not tablet.status().is_mended


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


# --- what is due ------------------------------------------------------------------------------------------------------------


def test_request_that_comes_while_something_is_mended_is_not_lost(group: Group) -> None:
    mends = Mends(group.groups, is_needed=True)
    mend = mends.due(Step(1), Step(1))
    assert mend is not None
    mends.ask()
    mends.ended(mend, is_done=True)
    assert not mends.is_whole()
    again = mends.due(Step(1), Step(1))
    assert again is not None
    mends.ended(again, is_done=True)
    assert mends.is_whole()
    assert mends.due(Step(1), Step(1)) is None


def test_what_was_missed_is_mended_when_all_that_was_sent_by_then_is_confirmed(group: Group) -> None:
    mends = Mends(group.groups, is_needed=True)
    assert mends.due(Step(5), Step(3)) is None
    assert mends.due(Step(9), Step(4)) is None
    mend = mends.due(Step(9), Step(5))
    assert mend is not None
    assert mend.last == 5


def test_mend_that_did_not_help_is_tried_later_and_later(group: Group) -> None:
    mends = Mends(group.groups, is_needed=True)
    looks, tried = 0, list[int]()
    while len(tried) < 7:
        mend = mends.due(Step(0), Step(0))
        if mend is not None:
            tried.append(looks)
            mends.ended(mend, is_done=False)
        looks += 1
    pauses = [later - earlier - 1 for earlier, later in itertools.pairwise(tried)]
    assert pauses == [1, 2, 4, LOOKS_MAX, LOOKS_MAX, LOOKS_MAX]
    mends.ask()
    assert mends.due(Step(0), Step(0)) is not None


def test_member_that_goes_away_while_it_is_mended_is_mended_when_it_is_back(group: Group) -> None:
    member, mends = group.members[2], Mends(group.groups, is_needed=False)

    def set_trouble(trouble: str | None) -> None:
        member.trouble = trouble
        do(group.groups, ReadFence(GROUP, TABLET))  # everybody is asked, and has answered what came before

    set_trouble("it is away")
    assert do(group.groups, Put(GROUP, entry_id(1, 1), b"x")) == Stored()
    do(group.groups, ReadFence(GROUP, TABLET))
    set_trouble(None)
    mend = mends.due(Step(1), Step(1))
    assert mend is not None
    set_trouble("it is away again")
    mends.ended(mend, is_done=True)
    assert mends.is_whole(), "every member that answers has everything"
    set_trouble(None)
    assert not mends.is_whole()
    again = mends.due(Step(1), Step(1))
    assert again is not None
    mends.ended(again, is_done=True)
    assert mends.is_whole()
