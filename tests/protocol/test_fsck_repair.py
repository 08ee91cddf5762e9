"""What becomes of a finding when something has changed, or an answer does not come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from typing_extensions import override

from replitree.coordination.tree import Tree
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Children, ChildrenMany, Commit, Get, Unknown
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.rescue.fsck import Finding, FindingKind
from replitree.protocol.rescue.fsck_look import (
    AbortUpload,
    AskReferences,
    DeleteTrial,
    ListAges,
    Listing,
    ListObjects,
    MultipartUpload,
    Reference,
    Trial,
)
from replitree.protocol.rescue.fsck_repair import Repair, Report, fsck, repair
from replitree.protocol.shares.share import DeleteObjects, ObjectsGone, ObjectsInDoubt, ShareId
from tests.protocol.tree_world import TreeWorld

TABLE = TablePlace("/t")
R1 = Replica(TABLE, "r1")
S = ShareId("s")
MARK = f"{layout.share(TABLE, S)}/r1~i1~p"
NODES = {
    layout.all_writing(TABLE): b"",
    layout.shares(TABLE): b"",
    layout.all_garbage(TABLE): b"",
    layout.replica_path(R1): b"i1",
    layout.host(R1): b"here",
    layout.parts(R1): b"",
}


class World(TreeWorld):
    """A tree, a replica that says what it has, and a store; some answers do not come."""

    def __init__(self, *paths: str) -> None:
        super().__init__(Tree.of(NODES | dict.fromkeys(paths, b"")))
        self.said: tuple[Reference, ...] | None = ()
        self.store_answers = True
        self.listing = Listing(0, ())
        self.lost: Callable[[Commit], bool] = lambda _: False
        self.deleted: list[str] = []

    @override
    def perform(self, effect: Any) -> Any:
        match effect:
            case Commit():
                return Unknown() if self.lost(effect) else super().perform(effect)
            case Get() | Children() | ChildrenMany():
                return super().perform(effect)
            case AskReferences():
                return self.said
            case DeleteObjects(share):
                self.deleted.append(share)
                return ObjectsGone() if self.store_answers else ObjectsInDoubt("no answer")
            case AbortUpload() | DeleteTrial():
                return ObjectsGone() if self.store_answers else ObjectsInDoubt("no answer")
            case ListObjects():
                return self.listing if self.store_answers else ObjectsInDoubt("no answer")
            case ListAges():
                return ()
        return None

    def repair(self, finding: Finding) -> Repair:
        found: Repair = self.run(repair(TABLE, finding))
        return found


ORPHAN = Finding(FindingKind.ORPHAN, S)
STALE = Finding(FindingKind.STALE_MARK, S, "r1", "p", "r1~i1~p")
LEFT = Finding(FindingKind.LEFT_ATTEMPT, S, "r1")


@pytest.mark.parametrize("place", [layout.writing(TABLE, S), layout.share(TABLE, S), layout.garbage(TABLE, S)])
def test_what_has_a_place_after_all_is_no_orphan(place: str) -> None:
    there = World(place)
    assert there.repair(ORPHAN) is Repair.CHANGED
    assert there.deleted == []


def test_an_orphan_whose_commit_has_no_answer_may_be_garbage() -> None:
    there = World()
    there.lost = lambda _: True
    assert there.repair(ORPHAN) is Repair.UNKNOWN
    assert there.deleted == []


def test_garbage_stays_noted_until_the_store_has_answered() -> None:
    there = World()
    there.store_answers = False
    assert there.repair(ORPHAN) is Repair.UNKNOWN
    assert there.tree.get(layout.garbage(TABLE, S)) is not None
    there.store_answers = True
    assert there.repair(Finding(FindingKind.LEFT_GARBAGE, S)) is Repair.DONE
    assert there.tree.get(layout.garbage(TABLE, S)) is None


def test_a_share_that_has_an_owner_by_now_is_kept() -> None:
    there = World(layout.share(TABLE, S), MARK)
    assert there.repair(Finding(FindingKind.UNOWNED, S)) is Repair.CHANGED
    assert there.tree.get(layout.share(TABLE, S)) is not None


def test_a_stale_mark_goes_under_a_new_epoch_and_with_it_the_share() -> None:
    there = World(layout.share(TABLE, S), MARK)
    assert there.repair(STALE) is Repair.DONE
    host = there.tree.get(layout.host(R1))
    assert host is not None
    assert host.version == 1
    assert there.tree.children(layout.shares(TABLE)) == ()
    assert there.deleted == ["s"]


def test_a_mark_whose_part_is_back_is_kept() -> None:
    there = World(layout.share(TABLE, S), MARK)
    there.said = (Reference("p", S),)
    assert there.repair(STALE) is Repair.CHANGED
    assert there.tree.get(MARK) is not None


@pytest.mark.parametrize("finding", [STALE, LEFT])
def test_a_replica_that_does_not_answer_loses_nothing(finding: Finding) -> None:
    there = World(layout.share(TABLE, S), MARK, layout.writing(TABLE, S))
    there.said = None
    assert there.repair(finding) is Repair.UNKNOWN
    assert there.tree.get(MARK) is not None
    assert there.tree.get(layout.writing(TABLE, S)) is not None


def test_a_fence_without_an_answer_ends_the_repair() -> None:
    there = World(layout.share(TABLE, S), MARK)
    there.lost = lambda _: True
    assert there.repair(STALE) is Repair.UNKNOWN
    assert there.repair(LEFT) is Repair.UNKNOWN


def test_an_attempt_that_is_at_work_is_kept_and_another_is_given_up() -> None:
    there = World(layout.writing(TABLE, S))
    there.said = (Reference("", S),)
    assert there.repair(LEFT) is Repair.CHANGED
    there.said = ()
    assert there.repair(LEFT) is Repair.DONE
    assert there.tree.get(layout.writing(TABLE, S)) is None


@pytest.mark.parametrize("kind", [FindingKind.DANGLING, FindingKind.UNMARKED])
def test_parts_are_never_made_again(kind: FindingKind) -> None:
    there = World()
    before = there.tree
    assert there.repair(Finding(kind, S, "r1", "p")) is Repair.NONE
    assert there.tree == before


def test_an_upload_ends_when_the_store_says_so() -> None:
    there, left = World(), Finding(FindingKind.LEFT_UPLOAD, S, upload=MultipartUpload(S, "f", "f#1", 0))
    assert there.repair(left) is Repair.DONE
    there.store_answers = False
    assert there.repair(left) is Repair.UNKNOWN


def test_without_a_listing_nothing_is_known() -> None:
    there = World()
    there.store_answers = False
    assert isinstance(there.run(fsck(TABLE, 0, with_repair=True)), ObjectsInDoubt)


def test_who_does_not_answer_makes_a_table_not_clean() -> None:
    there = World()
    there.said = None
    report = there.run(fsck(TABLE, 0, with_repair=False))
    assert isinstance(report, Report)
    assert (report.silent, report.findings, report.is_clean) == (("r1",), (), False)


def test_uploads_that_the_store_does_not_list_make_a_table_not_clean() -> None:
    there = World()
    assert there.run(fsck(TABLE, 0, with_repair=False)).is_clean
    there.listing = Listing(0, (), not_judged="not offered")
    report = there.run(fsck(TABLE, 0, with_repair=False))
    assert (report.not_judged, report.findings, report.is_clean) == ("not offered", (), False)


def test_a_trial_object_goes_when_it_is_old() -> None:
    there = World()
    there.listing = Listing(10, (), trials=(Trial("replitree-clock/1", 0, 4), Trial("replitree-clock/2", 0, 6)))
    report = there.run(fsck(TABLE, 5, with_repair=True))
    assert report.findings == ((Finding(FindingKind.LEFT_TRIAL, ShareId(""), trial="replitree-clock/1"), Repair.DONE),)
    there.store_answers = False
    assert there.repair(report.findings[0][0]) is Repair.UNKNOWN
