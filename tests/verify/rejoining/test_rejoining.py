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
