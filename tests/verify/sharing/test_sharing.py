"""Every model of shared storage holds, with as many states as it ever had; every mutant breaks what it is said to break."""

from __future__ import annotations

import pytest

from replitree_verify.sharing.invariants import DESCRIPTIONS
from replitree_verify.sharing.models import MODELS, find_model
from replitree_verify.sharing.mutants import MUTANTS, find_mutant
from replitree_verify.sharing.search import search
from tests.verify.small_models import SmallModels

SHARING = SmallModels(
    models=MODELS,
    mutants=MUTANTS,
    search=search,
    pins={
        "share_two": (1_829, 4_745),
        "share_crash": (10_143, 28_421),
        "share_doubt": (33_695, 102_648),
        "share_store": (21_079, 62_431),
        "share_three": (76_403, 254_269),
        "share_borrow": (3_675, 8_619),
        "share_borrow_crash": (13_146, 37_104),
        "share_borrow_refused": (4_166, 11_956),
        "share_twice": (7_526, 20_277),
        "share_drop": (9_156, 27_524),
        "share_drop_crash": (16_466, 54_348),
        "fsck_write": (2_024, 4_124),
        "fsck_leave": (2_336, 5_480),
        "fsck_borrowed": (3_130, 7_303),
        "fsck_crash": (5_025, 10_922),
        "fsck_doubt": (2_298, 5_150),
        "fsck_store": (3_686, 7_683),
        "fsck_stale": (8_422, 18_779),
        "fsck_staged": (119, 232),
        "fsck_silent": (9_098, 22_611),
        "fsck_marks": (12_388, 30_036),
        "fsck_orphan": (3_913, 10_303),
        "fsck_unowned": (17_947, 46_217),
        "fsck_two": (16_628, 45_864),
        "upload": (151_361, 458_734),
        "upload_crash": (31_167, 78_496),
        "upload_doubt": (18_389, 43_525),
        "upload_store": (8_714, 19_988),
        "upload_old": (88_048, 253_683),
        "own_leave": (64_110, 209_159),
        "own_second": (166_626, 545_763),
        "own_crash": (43_450, 145_546),
        "own_doubt": (4_506, 12_093),
        "own_store": (1_186, 2_825),
        "own_old": (2_812, 7_740),
    },
    steps={
        "registered-before-marked": 12,
        "marked-before-registered": 13,
        "share-resurrected": 20,
        "borrowed-not-taken-over": 25,
        "borrowed-not-marked": 13,
        "share-named-by-part": 13,
        "deleted-in-doubt": 7,
        "borrowed-deleted": 18,
        "registered-before-stored": 5,
        "left-without-witness": 25,
        "owners-counted": 11,
        "deleted-by-last-owner": 13,
        "absence-is-permission": 22,
        "deregistered-before-left": 11,
        "dropped-marks-kept": 9,
        "unfenced": 10,
        "garbage-forgotten-first": 14,
        "store-believed": 15,
        "garbage-kept": 22,
        "failed-take-over-deletes": 13,
        "mark-is-ephemeral": 14,
        "owners-in-a-number": 21,
        "marks-are-optional": 20,
        "fsck-one-share-each": 36,
        "fsck-no-grace": 27,
        "fsck-references-first": 24,
        "fsck-one-look": 24,
        "fsck-marks-unproven": 61,
        "fsck-asks-before-fence": 67,
        "fsck-silence-is-no": 30,
        "fsck-silence-needs-nothing": 37,
        "fsck-registered-is-all": 36,
        "fsck-attempts-by-age": 25,
        "fsck-forgets-garbage-first": 17,
        "fsck-keeps-marks-of-the-gone": 31,
        "upload-believed": 3,
        "upload-given-up-for-its-age": 25,
        "upload-late-put-kept": 45,
        "own-mark-taken-for-stale": 34,
        "own-silence-is-no": 11,
        "own-first-owner-only": 9,
        "own-of-any-incarnation": 44,
    },
    slow_states=7_000,
    nightly_states=30_000,
    slow_mutants=(
        "borrowed-deleted",
        "absence-is-permission",
        "store-believed",
        "owners-in-a-number",
        "fsck-marks-unproven",
        "fsck-asks-before-fence",
        "fsck-silence-is-no",
        "fsck-silence-needs-nothing",
        "fsck-registered-is-all",
        "upload-given-up-for-its-age",
        "upload-late-put-kept",
    ),
)


@pytest.mark.parametrize("name", SHARING.each_model())
def test_model_holds(name: str) -> None:
    SHARING.assert_model_holds(name)


@pytest.mark.parametrize("name", SHARING.each_mutant())
def test_mutant_is_caught(name: str) -> None:
    SHARING.assert_mutant_is_caught(name)


def test_every_invariant_has_a_mutant() -> None:
    assert {mutant.breaks for mutant in MUTANTS} == set(DESCRIPTIONS)


def test_a_mutant_leaves_nothing_behind() -> None:
    search(find_model("share_two"), find_mutant("owners-counted"))
    assert search(find_model("share_two")).violation == ""


def test_the_shortest_way_to_a_violation_is_told() -> None:
    found = search(find_model("share_two"), find_mutant("registered-before-stored"))
    assert found.trace == (
        "r1: sync r1/host → ",
        "r1: get r1/host → read",
        "r1: commit set r1/host → applied",
        "r1: get r1/parts/a → read",
        "r1: commit check r1/host, create shared/a-r100, create shared/a-r100/r1~i1~a, create r1/parts/a → applied",
    )


def test_a_model_that_is_too_large_is_told() -> None:
    with pytest.raises(RuntimeError, match="share_two has more than 100 states"):
        search(find_model("share_two"), states_max=100)
