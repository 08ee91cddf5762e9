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
    steps={
        "registered-before-marked": 15,
        "marked-before-registered": 15,
        "share-resurrected": 36,
        "borrowed-not-taken-over": 15,
        "borrowed-not-marked": 9,
        "share-named-by-part": 32,
        "deleted-in-doubt": 16,
        "borrowed-deleted": 13,
        "registered-before-stored": 14,
        "left-without-witness": 36,
        "owners-counted": 17,
        "deleted-by-last-owner": 19,
        "absence-is-permission": 36,
        "deregistered-before-left": 17,
        "dropped-marks-kept": 24,
        "unfenced": 18,
        "garbage-forgotten-first": 20,
        "store-believed": 10,
        "garbage-kept": 33,
        "failed-take-over-deletes": 31,
        "mark-is-ephemeral": 16,
        "owners-in-a-number": 36,
        "marks-are-optional": 36,
        "fsck-one-share-each": 36,
        "fsck-no-grace": 27,
        "fsck-references-first": 24,
        "fsck-one-look": 24,
        "fsck-marks-unproven": 45,
        "fsck-asks-before-fence": 51,
        "fsck-silence-is-no": 29,
        "fsck-silence-needs-nothing": 32,
        "fsck-registered-is-all": 35,
        "fsck-attempts-by-age": 25,
        "fsck-forgets-garbage-first": 17,
        "fsck-keeps-marks-of-the-gone": 31,
        "upload-believed": 8,
        "upload-named-by-the-disk": 16,
        "upload-given-up-for-its-age": 25,
        "upload-late-put-kept": 34,
        "own-mark-taken-for-stale": 34,
        "own-silence-is-no": 10,
        "own-first-owner-only": 9,
        "own-of-any-incarnation": 44,
    },
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
    registered = "create r1/parts/a, delete writing/a-r1-1, create shared/a-r1-1, create shared/a-r1-1/r1~i1~a"
    assert found.trace == (
        "r1: sync r1/host → ",
        "r1: get r1/host, r1/is_active → read",
        "r1: commit set r1/host, create r1/is_active → applied",
        "r1: sync zero_copy_s3 → ",
        "r1: get zero_copy_s3 → read",
        "r1: sync r1 → ",
        "r1: get r1 → read",
        "r1: sync zero_copy_s3 → ",
        "r1: children zero_copy_s3 → read",
        "r1: sync writing → ",
        "r1: children writing → read",
        "r1: get r1/parts/a → read",
        "r1: commit check r1/host, create writing/a-r1-1 → applied",
        f"r1: commit check r1/host, {registered} → applied",
    )


def test_a_model_that_is_too_large_is_told() -> None:
    with pytest.raises(RuntimeError, match="share_two has more than 100 states"):
        search(find_model("share_two"), states_max=100)
