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
        "fsck-marks-unproven": 45,
        "fsck-asks-before-fence": 51,
        "own-mark-taken-for-stale": 34,
        "own-silence-is-no": 10,
        "own-first-owner-only": 9,
        "own-of-any-incarnation": 44,
    },
    slow_mutants=(
        "fsck-marks-unproven",
        "fsck-asks-before-fence",
    ),
)


@pytest.mark.parametrize("name", SHARING.each_model())
def test_model_holds(name: str) -> None:
    SHARING.assert_model_holds(name)


@pytest.mark.parametrize("name", SHARING.each_mutant())
def test_mutant_is_caught(name: str) -> None:
    SHARING.assert_mutant_is_caught(name)


def test_every_invariant_has_a_mutant() -> None:
    mutants = (*SHARING.mutants, *read_patches("stored"))
    assert {mutant.invariant for mutant in mutants} >= set(DESCRIPTIONS)


def test_a_mutant_leaves_nothing_behind() -> None:
    assert search(find_model("own_store"), find_patch("sharing", "own-first-owner-only")).violation != ""
    assert search(find_model("own_store")).violation == ""


def test_a_model_that_is_too_large_is_told() -> None:
    with pytest.raises(RuntimeError, match="fsck_marks has more than 100 states"):
        search(find_model("fsck_marks"), states_max=100)
