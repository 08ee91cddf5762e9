"""Cuts over shards: every order of every model holds, and every mutant is caught."""

from __future__ import annotations

import pytest

from replitree_verify.cuts.model import DESCRIPTIONS, MODELS
from replitree_verify.cuts.search import search
from replitree_verify.patches.patch import read_patches
from tests.verify.small_models import SmallModels

CUTS = SmallModels(
    models=MODELS,
    mutants=read_patches("cuts"),
    search=search,
    steps={
        "below-the-last-cut": 19,
        "clock-after-the-end": 10,
        "clock-not-written": 11,
        "closed-parent-not-looked-at": 11,
        "cut-by-pointers": 10,
        "cut-itself-left-out": 11,
        "next-parent-not-looked-for": 11,
        "open-shown": 10,
        "own-end-not-reached": 12,
        "own-write-above-the-cut": 14,
        "removed-taken-for-older": 12,
        "seen-after-the-end": 12,
        "seen-of-its-own-answer": 10,
        "settled-by-a-later-entry": 11,
        "shards-clock-after-the-ends": 10,
        "shards-clock-not-written": 7,
        "shards-next-parent-not-looked-for": 8,
    },
    slow_mutants=(
        "below-the-last-cut",
        "closed-parent-not-looked-at",
        "next-parent-not-looked-for",
        "open-shown",
        "removed-taken-for-older",
        "settled-by-a-later-entry",
    ),
)


@pytest.mark.parametrize("name", CUTS.each_model())
def test_model_holds(name: str) -> None:
    CUTS.assert_model_holds(name)


@pytest.mark.parametrize("name", CUTS.each_mutant())
def test_mutant_is_caught(name: str) -> None:
    CUTS.assert_mutant_is_caught(name)


def test_every_invariant_has_a_mutant() -> None:
    assert {mutant.invariant for mutant in CUTS.mutants} == set(DESCRIPTIONS)
