"""Every model of shared storage holds, with as many states as it ever had; every mutant breaks what it is said to break."""

from __future__ import annotations

import pytest

from replitree_verify.patches.patch import find_patch, read_patches
from replitree_verify.sharing.invariants import DESCRIPTIONS
from replitree_verify.sharing.models import MODELS, find_model
from replitree_verify.sharing.search import search
from tests.verify.small_models import SmallModels

SHARING = SmallModels(
    models=MODELS,
    mutants=read_patches("sharing"),
    search=search,
    pins={
        "share_two": (1_930, 5_000),
        "share_crash": (15_032, 43_288),
        "share_doubt": (49_127, 151_908),
        "share_store": (60_818, 203_505),
        "share_three": (82_919, 275_102),
        "share_borrow": (3_843, 8_995),
        "share_borrow_crash": (22_624, 66_917),
        "share_borrow_refused": (5_206, 14_881),
        "share_twice": (13_338, 37_532),
        "share_drop": (9_946, 29_844),
        "share_drop_crash": (29_954, 100_880),
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
        "upload": (101_543, 294_575),
        "upload_crash": (34_715, 82_991),
        "upload_doubt": (10_349, 24_610),
        "upload_store": (8_065, 18_176),
        "upload_old": (56_681, 155_204),
        "own_leave": (130_242, 428_697),
        "own_second": (269_176, 890_866),
        "own_crash": (49_255, 162_858),
        "own_doubt": (5_522, 14_855),
        "own_store": (1_968, 4_748),
        "own_old": (3_414, 9_429),
    },
    steps={
        "registered-before-marked": 7,
        "marked-before-registered": 7,
        "share-resurrected": 23,
        "borrowed-not-taken-over": 27,
        "borrowed-not-marked": 15,
        "share-named-by-part": 18,
        "deleted-in-doubt": 8,
        "borrowed-deleted": 19,
        "registered-before-stored": 6,
        "left-without-witness": 26,
        "owners-counted": 12,
        "deleted-by-last-owner": 14,
        "absence-is-permission": 23,
        "deregistered-before-left": 12,
        "dropped-marks-kept": 10,
        "unfenced": 11,
        "garbage-forgotten-first": 15,
        "store-believed": 16,
        "garbage-kept": 23,
        "failed-take-over-deletes": 15,
        "mark-is-ephemeral": 8,
        "owners-in-a-number": 23,
        "marks-are-optional": 23,
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
        "upload-believed": 8,
        "upload-named-by-the-disk": 12,
        "upload-given-up-for-its-age": 25,
        "upload-late-put-kept": 35,
        "own-mark-taken-for-stale": 34,
        "own-silence-is-no": 14,
        "own-first-owner-only": 13,
        "own-of-any-incarnation": 49,
    },
    slow_states=7_000,
    nightly_states=30_000,
    slow_mutants=(
        "borrowed-deleted",
        "absence-is-permission",
        "store-believed",
        "owners-in-a-number",
        "failed-take-over-deletes",
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
    assert {mutant.invariant for mutant in SHARING.mutants} == set(DESCRIPTIONS)


def test_a_mutant_leaves_nothing_behind() -> None:
    search(find_model("share_two"), find_patch("sharing", "owners-counted"))
    assert search(find_model("share_two")).violation == ""


def test_the_shortest_way_to_a_violation_is_told() -> None:
    found = search(find_model("share_two"), find_patch("sharing", "registered-before-stored"))
    registered = "create r1/parts/a, delete writing/a-r100, create shared/a-r100, create shared/a-r100/r1~i1~a"
    assert found.trace == (
        "r1: sync r1/host → ",
        "r1: get r1/host → read",
        "r1: commit set r1/host → applied",
        "r1: get r1/parts/a → read",
        "r1: commit check r1/host, create writing/a-r100 → applied",
        f"r1: commit check r1/host, {registered} → applied",
    )


def test_a_model_that_is_too_large_is_told() -> None:
    with pytest.raises(RuntimeError, match="share_two has more than 100 states"):
        search(find_model("share_two"), states_max=100)
