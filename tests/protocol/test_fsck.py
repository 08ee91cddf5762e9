"""What fsck judges: each finding from the least that shows it, and what is not enough for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from replitree.protocol.rescue.fsck import Finding, FindingKind, MarkName, confirmed, findings
from replitree.protocol.rescue.fsck_look import (
    AgedNode,
    FsckLook,
    MultipartUpload,
    NeededFile,
    Reference,
    SeenReplica,
    StoredObject,
)
from replitree.protocol.shares.share import ShareId

S = ShareId("s")
GRACE_MS = 1000
NOW_MS = 10_000
OLD = (StoredObject(S, "f", 4, NOW_MS - GRACE_MS),)
REFERENCE = Reference("p", S, (NeededFile("f", 4),))
HAS = SeenReplica("r1", "i1", frozenset({"p"}), (REFERENCE,))
NOTHING = SeenReplica("r1", "i1", frozenset(), ())
EMPTY = FsckLook(NOW_MS, {}, (), (), {}, (), (NOTHING,))
WELL = FsckLook(NOW_MS, {S: OLD}, (), (), {S: ("r1~i1~p",)}, (), (HAS,))


def kinds(seen: FsckLook) -> list[FindingKind]:
    return [each.kind for each in findings(seen, GRACE_MS)]


def test_what_is_well_has_no_findings() -> None:
    assert kinds(WELL) == []
    assert kinds(EMPTY) == []


# --- dangling, unmarked -------------------------------------------------------------------------------------------------------


def test_a_part_whose_object_is_missing_or_of_another_size_is_dangling() -> None:
    missing = next(findings(replace(WELL, objects={}), GRACE_MS))
    assert (missing.kind, missing.replica, missing.part, missing.evidence) == (
        FindingKind.DANGLING,
        "r1",
        "p",
        ("f is missing",),
    )
    shorter = replace(WELL, objects={S: (StoredObject(S, "f", 3, 0),)})
    assert next(findings(shorter, GRACE_MS)).evidence == ("f has 3 bytes instead of 4",)


def test_a_file_of_any_size_need_only_be_there() -> None:
    anything = replace(HAS, references=(Reference("p", S, (NeededFile("f", None),)),))
    assert kinds(replace(WELL, replicas=(anything,))) == []


def test_objects_of_a_part_that_is_only_staged_may_still_come() -> None:
    staged = replace(HAS, registered=frozenset(), references=(Reference("staging", S, REFERENCE.files),))
    noted = (AgedNode("s", b"r1~i1", GRACE_MS),)
    assert kinds(FsckLook(NOW_MS, {}, (), noted, {}, (), (staged,))) == []


def test_an_owned_share_without_any_object_is_dangling_though_its_owner_is_silent() -> None:
    silent = replace(HAS, references=None)
    found = list(findings(replace(WELL, objects={}, replicas=(silent,)), GRACE_MS))
    assert [(each.kind, each.replica, each.part) for each in found] == [(FindingKind.DANGLING, "r1", "p")]


def test_a_registered_part_without_a_mark_is_unmarked() -> None:
    assert kinds(
        replace(WELL, owners={S: ("r2~i2~p",)}, replicas=(HAS, replace(HAS, name="r2", incarnation="i2")))
    ) == [FindingKind.UNMARKED]


LENDER = ShareId("lender")
LENT = (StoredObject(LENDER, "g", 5, NOW_MS - GRACE_MS),)
BORROWS = replace(HAS, references=(REFERENCE, Reference("p", LENDER, (NeededFile("g", 5),))))
BORROWING = FsckLook(NOW_MS, {S: OLD, LENDER: LENT}, (), (), {S: ("r1~i1~p",), LENDER: ("r1~i1~p",)}, (), (BORROWS,))


def test_of_a_part_that_borrows_every_share_has_its_mark_and_its_objects() -> None:
    assert kinds(BORROWING) == []
    unmarked = replace(BORROWING, owners={S: ("r1~i1~p",), LENDER: ("r2~i2~p",)}, replicas=(BORROWS, silent("r2")))
    assert [(each.kind, each.share) for each in findings(unmarked, GRACE_MS)] == [(FindingKind.UNMARKED, LENDER)]
    (dangling,) = findings(replace(BORROWING, objects={S: OLD}), GRACE_MS)
    assert (dangling.kind, dangling.share, dangling.evidence) == (FindingKind.DANGLING, LENDER, ("g is missing",))


def test_what_a_part_has_left_needs_no_mark() -> None:
    """A folder that is still to be let go of has no files that the part needs."""
    left = replace(HAS, references=(REFERENCE, Reference("p", LENDER)))
    assert kinds(replace(WELL, replicas=(left,))) == []


def silent(name: str) -> SeenReplica:
    return replace(HAS, name=name, incarnation=f"i{name[1:]}", references=None)


# --- unreferenced -------------------------------------------------------------------------------------------------------------

EXTRA = StoredObject(S, "late", 3, NOW_MS - GRACE_MS)
HAS_EXTRA = replace(WELL, objects={S: (*OLD, EXTRA)})


def test_old_objects_that_no_part_needs_are_told_of() -> None:
    (found,) = findings(HAS_EXTRA, GRACE_MS)
    assert (found.kind, found.share, found.bytes) == (FindingKind.UNREFERENCED, S, 3)
    assert found.evidence == (f"late: 3 bytes of {EXTRA.modified_ms}",)
    two = replace(HAS, name="r2", incarnation="i2", references=(Reference("q", S, (NeededFile("f", 4),)),))
    both = replace(HAS_EXTRA, owners={S: ("r1~i1~p", "r2~i2~q")}, replicas=(HAS, two))
    assert kinds(both) == [FindingKind.UNREFERENCED]


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"objects": {S: (*OLD, replace(EXTRA, modified_ms=NOW_MS - GRACE_MS + 1))}}, id="young"),
        pytest.param({"attempts": (AgedNode("s", b"r1~i1", 0),)}, id="begun"),
        pytest.param({"owners": {S: ("r1~i1~p", "r2~i2~q")}, "replicas": (HAS, silent("r2"))}, id="silent"),
        pytest.param({"owners": {S: ("r1~i1~p", "r1~i1~lost")}}, id="an owner that did not say what it needs"),
        pytest.param({"replicas": (replace(HAS, references=(REFERENCE, Reference("", S))),)}, id="being written"),
        pytest.param({"replicas": (replace(HAS, references=(REFERENCE, Reference("left", S))),)}, id="leaving"),
        pytest.param(
            {"replicas": (replace(HAS, references=(REFERENCE, Reference("i", S, (NeededFile("late", 3),)))),)},
            id="needed by what is staged",
        ),
    ],
)
def test_what_somebody_may_need_is_not_told_of(more: dict[str, Any]) -> None:
    registered = frozenset({"p", "lost", "left"})
    seen = replace(HAS_EXTRA, **more)
    seen = replace(seen, replicas=tuple(replace(each, registered=registered) for each in seen.replicas))
    assert kinds(seen) == []


# --- orphans ------------------------------------------------------------------------------------------------------------------

ORPHAN = replace(EMPTY, objects={S: OLD})


def test_old_objects_of_nobody_are_an_orphan() -> None:
    (found,) = findings(ORPHAN, GRACE_MS)
    assert (found.kind, found.bytes) == (FindingKind.ORPHAN, 4)


@pytest.mark.parametrize(
    "seen",
    [
        replace(ORPHAN, objects={S: (*OLD, StoredObject(S, "g", 1, NOW_MS - GRACE_MS + 1))}),
        replace(ORPHAN, attempts=(AgedNode("s", b"r1~i1", 0),)),
        replace(ORPHAN, garbage=(AgedNode("s", b"", 0),)),
        replace(ORPHAN, replicas=(replace(NOTHING, references=(Reference("", S),)),)),
        replace(ORPHAN, replicas=(NOTHING, replace(NOTHING, name="r2", references=None))),
    ],
    ids=["one is young", "begun", "garbage", "referred to", "somebody is silent"],
)
def test_what_is_not_enough_for_an_orphan(seen: FsckLook) -> None:
    assert kinds(seen) == []


# --- marks --------------------------------------------------------------------------------------------------------------------


def test_a_share_without_marks_is_unowned() -> None:
    assert kinds(replace(ORPHAN, owners={S: ()})) == [FindingKind.UNOWNED]


@pytest.mark.parametrize(
    ("mark", "replica", "is_gone"),
    [
        ("r9~i1~p", NOTHING, True),
        ("r1~i0~p", HAS, True),
        ("r1~i1~q", NOTHING, False),
        ("r1~i1~p", replace(HAS, references=(Reference("p", ShareId("other")),)), False),
    ],
    ids=["of nobody", "of an earlier one", "of no part", "of a part with another share"],
)
def test_a_mark_that_stands_for_nothing_is_stale(mark: str, replica: SeenReplica, is_gone: bool) -> None:
    found = findings(replace(WELL, owners={S: (mark,)}, replicas=(replica,)), GRACE_MS)
    assert [(each.mark, each.is_gone) for each in found if each.kind is FindingKind.STALE_MARK] == [(mark, is_gone)]


@pytest.mark.parametrize(
    "replica",
    [
        replace(HAS, registered=frozenset()),
        replace(HAS, references=()),
        replace(NOTHING, references=None),
    ],
    ids=["kept for readers", "lost on the disk", "silent"],
)
def test_a_mark_that_may_stand_for_something_is_left_alone(replica: SeenReplica) -> None:
    assert kinds(replace(WELL, replicas=(replica,))) == []


def test_a_name_that_is_no_mark_is_left_alone() -> None:
    assert MarkName.parse("r1~p") is None
    assert kinds(replace(WELL, owners={S: ("r1~i1~p", "strange")})) == []


# --- what was left ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("writer", "age_ms", "replica", "is_left"),
    [
        (b"r1~i1", GRACE_MS, NOTHING, True),
        (b"r9~i1", 0, NOTHING, True),
        (b"r1~i0", 0, NOTHING, True),
        (b"r1~i1", GRACE_MS - 1, NOTHING, False),
        (b"r1~i1", GRACE_MS, replace(NOTHING, references=(Reference("", S),)), False),
        (b"r1~i1", GRACE_MS, replace(NOTHING, references=None), False),
    ],
    ids=["forgotten", "of nobody", "of an earlier one", "young", "at work", "silent"],
)
def test_attempts(writer: bytes, age_ms: int, replica: SeenReplica, is_left: bool) -> None:
    seen = replace(EMPTY, attempts=(AgedNode("s", writer, age_ms),), replicas=(replica,))
    assert kinds(seen) == [FindingKind.LEFT_ATTEMPT] * is_left


def test_garbage_and_uploads_are_left_when_they_are_old() -> None:
    def seen(age_ms: int) -> FsckLook:
        upload = MultipartUpload(S, "f", "f#1", NOW_MS - age_ms)
        return replace(EMPTY, garbage=(AgedNode("s", b"", age_ms),), uploads=(upload,))

    assert kinds(seen(GRACE_MS)) == [FindingKind.LEFT_GARBAGE, FindingKind.LEFT_UPLOAD]
    assert kinds(seen(GRACE_MS - 1)) == []


# --- two looks ----------------------------------------------------------------------------------------------------------------


def test_only_what_both_looks_find_counts() -> None:
    assert [each.kind for each in confirmed(ORPHAN, ORPHAN, GRACE_MS)] == [FindingKind.ORPHAN]
    assert confirmed(EMPTY, ORPHAN, GRACE_MS) == ()
    assert confirmed(ORPHAN, EMPTY, GRACE_MS) == ()
    changed = replace(ORPHAN, objects={S: (replace(OLD[0], bytes=5),)})
    assert confirmed(ORPHAN, changed, GRACE_MS) == ()


def test_the_worst_comes_first() -> None:
    seen = replace(WELL, objects={ShareId("o"): (replace(OLD[0], share=ShareId("o")),)})
    assert [each.kind for each in confirmed(seen, seen, GRACE_MS)] == [FindingKind.DANGLING, FindingKind.ORPHAN]
    assert isinstance(next(findings(seen, GRACE_MS)), Finding)
