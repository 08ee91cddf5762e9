"""Every model of replicas that join again holds, with as many states as it ever had; every mutant is caught."""

from __future__ import annotations

import pytest

from replitree_verify.patches.patch import read_patches
from replitree_verify.rejoining.invariants import DESCRIPTIONS
from replitree_verify.rejoining.models import MODELS
from replitree_verify.rejoining.search import search
from tests.verify.small_models import SmallModels

REJOINING = SmallModels(
    models=MODELS,
    mutants=read_patches("rejoining"),
    search=search,
    pins={
        "rejoin_register": (1_715, 3_557),
        "rejoin_leave": (8_301, 22_173),
        "rejoin_append": (7_263, 18_174),
        "rejoin_count": (2_578, 5_623),
        "rejoin_first": (117_438, 345_386),
        "rejoin_again": (117_438, 345_386),
        "rejoin_doubt": (14_155, 37_363),
        "remade_register": (2_990, 6_589),
        "remade_leave": (14_376, 38_592),
        "remade_append": (5_366, 13_508),
        "remade_activate": (57_839, 153_951),
        "remade_helped": (5_696, 9_305),
        "remade_doubt": (1_142, 1_491),
        "remade_restored": (516, 1_292),
    },
    steps={
        "epochs-begin-anew": 26,
        "epochs-not-noted": 27,
        "epochs-reached": 23,
        "note-unproved": 39,
        "absence-unproved": 39,
        "marks-outlive-drop": 14,
        "incarnation-left-out": 56,
        "incarnation-left-out-restored": 13,
        "any-table-marked": 37,
        "removed-unmarked": 43,
    },
    slow_states=4_000,
    nightly_states=60_000,
    slow_mutants=("note-unproved", "absence-unproved"),
)


@pytest.mark.parametrize("name", REJOINING.each_model())
def test_model_holds(name: str) -> None:
    REJOINING.assert_model_holds(name)


@pytest.mark.parametrize("name", REJOINING.each_mutant())
def test_mutant_is_caught(name: str) -> None:
    REJOINING.assert_mutant_is_caught(name)


def test_every_invariant_has_a_mutant() -> None:
    assert {mutant.invariant for mutant in REJOINING.mutants} == set(DESCRIPTIONS)
