"""Every model of parts that move holds, with as many states as it ever had; every mutant is caught."""

from __future__ import annotations

import pytest

from replitree_verify.moving.invariants import DESCRIPTIONS
from replitree_verify.moving.models import MODELS
from replitree_verify.moving.search import search
from replitree_verify.patches.patch import read_patches
from tests.verify.small_models import SmallModels

MOVES = SmallModels(
    models=MODELS,
    mutants=read_patches("moving"),
    search=search,
    steps={
        "swapped-before-marked": 7,
        "removed-before-owned": 7,
        "moved-without-note": 10,
        "moved-unnoted": 5,
        "moved-attempt-kept": 7,
        "moved-unclaimed": 18,
        "not-looked-again": 22,
        "no-answer-taken-for-none": 12,
        "other-files-taken-over": 12,
        "claim-kept": 18,
        "doubt-worked-off": 10,
        "home-before-rows": 2,
        "let-go-before-home": 4,
        "home-without-note": 2,
        "let-go-at-any-version": 19,
        "let-go-again-in-doubt": 23,
        "moved-mark-deleted-alone": 18,
        "moved-and-deleted": 9,
        "moved-never-let-go": 6,
        "moved-in-part": 11,
        "written-anew-unowned": 18,
    },
)


@pytest.mark.parametrize("name", MOVES.each_model())
def test_model_holds(name: str) -> None:
    MOVES.assert_model_holds(name)


@pytest.mark.parametrize("name", MOVES.each_mutant())
def test_mutant_is_caught(name: str) -> None:
    MOVES.assert_mutant_is_caught(name)


def test_every_invariant_has_a_mutant() -> None:
    assert {mutant.invariant for mutant in MOVES.mutants} == set(DESCRIPTIONS)


def test_a_model_that_is_too_large_is_told() -> None:
    with pytest.raises(RuntimeError, match=f"{MODELS[0].name} has more than 100 states"):
        search(MODELS[0], states_max=100)
