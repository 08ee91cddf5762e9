"""Every model of parts that move holds, with as many states as it ever had; every mutant is caught."""

from __future__ import annotations

import pytest

from replitree_verify.moving.invariants import DESCRIPTIONS
from replitree_verify.moving.models import MODELS
from replitree_verify.moving.mutants import MUTANTS
from replitree_verify.moving.search import search
from tests.verify.small_models import SmallModels

MOVES = SmallModels(
    models=MODELS,
    mutants=MUTANTS,
    search=search,
    pins={
        "move_two": (356, 704),
        "move_leave": (22_074, 71_639),
        "move_crash": (1_884, 4_170),
        "move_leave_crash": (36_540, 114_139),
        "move_two_crash": (65_126, 201_381),
        "move_doubt": (4_593, 10_417),
        "move_leave_doubt": (89_222, 274_800),
        "take_crash": (248, 433),
        "take_doubt": (646, 1_260),
        "take_lag": (5_519, 16_003),
        "move_store": (904, 2_067),
        "take_unanswered": (20_018, 65_240),
        "take_unanswered_twice": (26, 25),
        "move_differing": (12_235, 35_266),
        "home_differing": (1_670, 4_041),
        "move_expiry": (62_941, 189_589),
        "home_two": (217, 409),
        "home_leave": (2_036, 5_287),
        "home_crash": (4_716, 11_255),
        "home_doubt": (2_862, 6_785),
        "there_and_back": (1_240, 2_467),
        "home_mend": (162, 280),
        "borrowed_home": (2_077, 4_989),
        "borrowed_home_crash": (1_189, 2_301),
        "borrowed_home_doubt": (783, 1_582),
        "borrowed_there_and_back": (84_531, 224_261),
        "borrowed_home_mend": (987, 1_805),
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
        "doubt-worked-off": 11,
        "home-before-rows": 2,
        "let-go-before-home": 4,
        "home-without-note": 2,
        "let-go-at-any-version": 19,
        "let-go-again-in-doubt": 25,
        "moved-mark-deleted-alone": 20,
        "moved-and-deleted": 10,
        "moved-never-let-go": 6,
        "moved-in-part": 12,
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
    assert {mutant.invariant for mutant in MUTANTS} == set(DESCRIPTIONS)
