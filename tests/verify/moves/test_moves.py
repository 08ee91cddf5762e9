"""Moves of buckets: every order of every model holds, and every mutant is caught."""

from __future__ import annotations

import pytest

from replitree_verify.moves.model import DESCRIPTIONS, MODELS
from replitree_verify.moves.search import search
from replitree_verify.patches.patch import read_patches
from tests.verify.small_models import SmallModels

MOVES = SmallModels(
    models=MODELS,
    mutants=read_patches("moves"),
    search=search,
    steps={
        "batch-not-gone-on-with": 9,
        "batch-stays-open": 14,
        "commands-not-checked": 14,
        "commands-not-fed": 1,
        "commands-read-after-rows": 15,
        "contents-not-compared": 13,
        "emptied-shard-keeps-its-rows": 18,
        "earlier-cuts-believed": 25,
        "ended-below-closed-parent": 14,
        "insert-map-not-checked": 15,
        "laid-at-any-progress": 14,
        "laid-under-any-map": 30,
        "map-newer-than-cut": 26,
        "map-not-read-again": 4,
        "moved-rows-fed": 13,
        "moves-fed-at-both-ends": 13,
        "moves-read-after-rows": 26,
        "open-inserts-forgotten": 14,
        "open-inserts-not-listed-anew": 12,
        "overwritten-while-read": 16,
        "removals-fed": 13,
        "removed-everywhere": 13,
        "removed-under-any-map": 35,
        "settled-by-its-replicas": 8,
        "settled-inserts-not-fed": 2,
        "shown-in-two-commits": 13,
        "shown-without-its-copies": 13,
        "source-not-asked": 2,
        "turned-back-with-a-batch": 12,
        "turned-back-without-moves": 6,
    },
    slow_mutants=("moves-read-after-rows",),
)


@pytest.mark.parametrize("name", MOVES.each_model())
def test_model_holds(name: str) -> None:
    MOVES.assert_model_holds(name)


@pytest.mark.parametrize("name", MOVES.each_mutant())
def test_mutant_is_caught(name: str) -> None:
    MOVES.assert_mutant_is_caught(name)


def test_every_invariant_has_a_mutant() -> None:
    assert {mutant.invariant for mutant in MOVES.mutants} == set(DESCRIPTIONS)
