"""Materialised views: every order of every model holds, and every mutant is caught."""

from __future__ import annotations

import pytest

from replitree_verify.patches.patch import read_patches
from replitree_verify.views.histories import history_of
from replitree_verify.views.model import DESCRIPTIONS, MODELS
from replitree_verify.views.search import search
from tests.verify.small_models import SmallModels

VIEWS = SmallModels(
    models=MODELS,
    mutants=read_patches("views"),
    search=search,
    steps={
        "acknowledged-though-outdated": 35,
        "alter-beside-views": 12,
        "backfill-not-marked": 30,
        "backfill-of-the-present": 27,
        "backfill-unversioned": 30,
        "block-ids-not-taken": 18,
        "created-beside-open-quorum": 13,
        "drop-keeps-the-version": 23,
        "duplicate-fires": 19,
        "first-view-sets-no-mark": 11,
        "mark-forgotten-by-roll": 14,
        "quorum-with-views": 17,
        "target-below-closed-parent": 19,
        "target-epoch-not-checked": 12,
        "target-in-another-commit": 9,
        "uncomputed-view-left-out": 10,
        "view-of-other-columns": 12,
        "view-outside-the-commit": 11,
        "views-not-checked": 11,
    },
    slow_mutants=(
        *("acknowledged-though-outdated", "backfill-not-marked", "backfill-of-the-present", "backfill-unversioned"),
        *("block-ids-not-taken", "duplicate-fires", "mark-forgotten-by-roll", "target-below-closed-parent"),
    ),
)


@pytest.mark.parametrize("name", VIEWS.each_model())
def test_model_holds(name: str) -> None:
    VIEWS.assert_model_holds(name)


@pytest.mark.parametrize("name", VIEWS.each_mutant())
def test_mutant_is_caught(name: str) -> None:
    VIEWS.assert_mutant_is_caught(name)


def test_random_histories_of_larger_models_hold() -> None:
    probes = set[str]()
    for seed in range(300):
        history = history_of(seed)
        assert history.violation == "", (seed, history.steps)
        probes |= history.probes
    assert probes >= {each for model in MODELS for each in model.probes}
    assert history_of(7) == history_of(7)


@pytest.mark.parametrize("name", ["views-not-checked", "duplicate-fires", "target-in-another-commit"])
def test_random_histories_find_a_mutant(name: str) -> None:
    mutant = next(each for each in VIEWS.mutants if each.name == name)
    with mutant.mutated():
        assert any(history_of(seed).violation for seed in range(200))


def test_every_invariant_has_a_mutant() -> None:
    assert {mutant.invariant for mutant in VIEWS.mutants} == set(DESCRIPTIONS)
