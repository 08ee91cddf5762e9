"""The life of a sharded table: every order of every model holds, and every mutant is caught."""

from __future__ import annotations

import pytest

from replitree_verify.patches.patch import read_patches
from replitree_verify.sharded.model import DESCRIPTIONS, MODELS
from replitree_verify.sharded.search import search
from tests.verify.small_models import SmallModels

SHARDED = SmallModels(
    models=MODELS,
    mutants=read_patches("sharded"),
    search=search,
    steps={
        "doubt-taken-for-refusal": 4,
        "drop-at-any-version": 12,
        "dropped-taken-for-made": 7,
        "ended-in-doubt": 15,
        "ended-with-shards": 24,
        "later-shards-dropped": 35,
        "life-of-any-incarnation": 18,
        "name-kept": 26,
        "name-not-taken": 2,
        "not-sent-again": 7,
        "restored-at-any-cut": 35,
        "restored-while-dropped": 26,
        "restored-without-a-shard": 20,
        "shard-created-after-drop": 17,
        "shard-restored-after-drop": 21,
        "shown-after-drop": 12,
        "shown-before-its-shards": 2,
        "shown-while-dropped": 8,
    },
    slow_mutants=("later-shards-dropped",),
)


@pytest.mark.parametrize("name", SHARDED.each_model())
def test_model_holds(name: str) -> None:
    SHARDED.assert_model_holds(name)


@pytest.mark.parametrize("name", SHARDED.each_mutant())
def test_mutant_is_caught(name: str) -> None:
    SHARDED.assert_mutant_is_caught(name)


def test_every_invariant_has_a_mutant() -> None:
    assert {mutant.invariant for mutant in SHARDED.mutants} == set(DESCRIPTIONS)
