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
        "rejoin_register": (1_751, 3_640),
        "rejoin_leave": (10_405, 27_822),
        "rejoin_append": (7_785, 19_389),
        "rejoin_count": (3_437, 6_832),
        "rejoin_count_later": (7_150, 16_463),
        "rejoin_first": (132_375, 386_282),
        "rejoin_again": (132_375, 386_282),
        "rejoin_doubt": (15_574, 41_959),
        "remade_register": (2_798, 6_165),
        "remade_leave": (13_482, 36_130),
        "remade_append": (4_988, 12_534),
        "remade_activate": (64_297, 168_831),
        "remade_helped": (4_400, 7_149),
        "remade_doubt": (900, 1_176),
        "remade_restored": (516, 1_292),
    },
    steps={
        "epochs-begin-anew": 26,
        "epochs-not-noted": 27,
        "epochs-reached": 23,
        "note-unproved": 39,
        "absence-unproved": 39,
        "marks-outlive-drop": 14,
        "incarnation-left-out": 53,
        "incarnation-left-out-restored": 13,
        "any-table-marked": 34,
        "removed-unmarked": 40,
    },
    slow_states=4_000,
    nightly_states=60_000,
    slow_mutants=("note-unproved", "absence-unproved", "incarnation-left-out"),
)


@pytest.mark.parametrize("name", REJOINING.each_model())
def test_model_holds(name: str) -> None:
    REJOINING.assert_model_holds(name)


@pytest.mark.parametrize("name", REJOINING.each_mutant())
def test_mutant_is_caught(name: str) -> None:
    REJOINING.assert_mutant_is_caught(name)


def test_every_invariant_has_a_mutant() -> None:
    assert {mutant.invariant for mutant in REJOINING.mutants} == set(DESCRIPTIONS)
