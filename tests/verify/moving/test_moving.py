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
    pins={
        "move_two": (356, 704),
        "move_leave": (18_050, 57_919),
        "move_crash": (1_773, 3_923),
        "move_leave_crash": (22_287, 66_468),
        "move_two_crash": (64_924, 198_706),
        "move_doubt": (4_428, 9_968),
        "move_leave_doubt": (72_327, 208_539),
        "take_crash": (232, 396),
        "take_doubt": (147, 247),
        "take_lag": (5_040, 14_547),
        "move_store": (848, 1_949),
        "take_unanswered": (18_282, 59_500),
        "take_unanswered_twice": (26, 25),
        "move_differing": (9_668, 27_200),
        "home_differing": (1_372, 3_322),
        "move_expiry": (87_894, 263_097),
        "home_two": (192, 361),
        "home_leave": (1_372, 3_463),
        "home_crash": (4_282, 10_342),
        "home_doubt": (3_138, 7_801),
        "there_and_back": (446, 828),
        "home_mend": (155, 268),
        "home_anew": (346, 677),
        "borrowed_home": (1_742, 4_147),
        "borrowed_home_crash": (1_091, 2_107),
        "borrowed_home_doubt": (724, 1_461),
        "borrowed_there_and_back": (79_347, 209_239),
        "borrowed_home_mend": (832, 1_516),
    },
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
    slow_states=3_000,
    nightly_states=50_000,
)


@pytest.mark.parametrize("name", MOVES.each_model())
def test_model_holds(name: str) -> None:
    MOVES.assert_model_holds(name)


@pytest.mark.parametrize("name", MOVES.each_mutant())
def test_mutant_is_caught(name: str) -> None:
    MOVES.assert_mutant_is_caught(name)


def test_every_invariant_has_a_mutant() -> None:
    assert {mutant.invariant for mutant in MOVES.mutants} == set(DESCRIPTIONS)
