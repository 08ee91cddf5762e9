"""Every model of replicas that join again holds, with as many states as it ever had; every mutant is caught."""

from __future__ import annotations

import pytest

from replitree_verify.rejoining.invariants import DESCRIPTIONS
from replitree_verify.rejoining.models import MODELS
from replitree_verify.rejoining.mutants import MUTANTS
from replitree_verify.rejoining.search import search
from tests.verify.small_models import SmallModels

REJOINING = SmallModels(
    models=MODELS,
    mutants=MUTANTS,
    search=search,
    pins={
        "rejoin_register": (3_061, 5_687),
        "rejoin_leave": (17_017, 42_690),
        "rejoin_append": (4_510, 10_755),
        "rejoin_count": (3_580, 7_448),
        "rejoin_first": (2_150, 4_814),
        "rejoin_again": (2_150, 4_814),
        "rejoin_doubt": (28_491, 65_242),
        "remade_register": (10_554, 23_998),
        "remade_leave": (56_226, 155_561),
        "remade_append": (20_386, 52_949),
        "remade_activate": (68_806, 183_935),
        "remade_helped": (5_696, 9_305),
        "remade_doubt": (1_142, 1_491),
        "remade_restored": (522, 1_189),
    },
    steps={
        "epochs-begin-anew": 26,
        "epochs-not-noted": 27,
        "epochs-reached": 23,
        "note-unproved": 30,
        "absence-unproved": 30,
        "marks-outlive-drop": 14,
        "incarnation-left-out": 56,
        "incarnation-left-out-restored": 13,
        "any-table-marked": 37,
        "removed-unmarked": 43,
    },
    slow_states=4_000,
    nightly_states=60_000,
)


@pytest.mark.parametrize("name", REJOINING.each_model())
def test_model_holds(name: str) -> None:
    REJOINING.assert_model_holds(name)


@pytest.mark.parametrize("name", REJOINING.each_mutant())
def test_mutant_is_caught(name: str) -> None:
    REJOINING.assert_mutant_is_caught(name)


def test_every_invariant_has_a_mutant() -> None:
    assert {mutant.invariant for mutant in MUTANTS} == set(DESCRIPTIONS)
