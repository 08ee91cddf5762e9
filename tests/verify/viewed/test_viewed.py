"""The views of a sharded table: every order of every model holds, and every mutant is caught."""

from __future__ import annotations

import pytest

from replitree_verify.patches.patch import read_patches
from replitree_verify.viewed.model import DESCRIPTIONS, MODELS
from replitree_verify.viewed.search import search
from tests.verify.small_models import SmallModels

VIEWED = SmallModels(
    models=MODELS,
    mutants=read_patches("viewed"),
    search=search,
    steps={
        "altered-beside-a-view": 24,
        "backfill-beside-the-beginning": 29,
        "columns-not-checked": 24,
        "doubt-taken-for-done": 12,
        "dropped-at-any-map": 20,
        "fill-not-marked": 19,
        "filled-at-any-version": 26,
        "map-changed-unversioned": 18,
        "map-not-changed": 18,
        "node-of-dropped-view-kept": 22,
        "target-map-at-any-version": 28,
        "target-map-not-checked": 28,
        "token-not-taken-through-a-view": 20,
        "views-read-before-map": 18,
    },
    slow_mutants=(
        "doubt-taken-for-done",
        "map-changed-unversioned",
        "node-of-dropped-view-kept",
        "target-map-at-any-version",
        "target-map-not-checked",
        "token-not-taken-through-a-view",
    ),
)


@pytest.mark.parametrize("name", VIEWED.each_model())
def test_model_holds(name: str) -> None:
    VIEWED.assert_model_holds(name)


@pytest.mark.parametrize("name", VIEWED.each_mutant())
def test_mutant_is_caught(name: str) -> None:
    VIEWED.assert_mutant_is_caught(name)


def test_every_invariant_has_a_mutant() -> None:
    assert {mutant.invariant for mutant in VIEWED.mutants} == set(DESCRIPTIONS)
