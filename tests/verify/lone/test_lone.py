"""A lone place on an object store: every way through every model holds, every mutant is caught, and the limit is known."""

from __future__ import annotations

import pytest

from replitree_verify.engine.small_search import Rules, search_all
from replitree_verify.lone.model import DESCRIPTIONS, LIMIT, MODELS
from replitree_verify.lone.search import search
from replitree_verify.lone.ways import Choices, Ways
from replitree_verify.patches.patch import read_patches
from tests.verify.small_models import SmallModels

LONE = SmallModels(
    models=MODELS,
    mutants=read_patches("lone"),
    search=search,
    steps={
        "answered-before-it-is-remembered": 17,
        "owed-as-it-is": 17,
        "own-admission-not-minded": 25,
        "fence-not-looked-at": 28,
    },
)


@pytest.mark.parametrize("name", LONE.each_model())
def test_model_holds(name: str) -> None:
    LONE.assert_model_holds(name)


@pytest.mark.parametrize("name", LONE.each_mutant())
def test_mutant_is_caught(name: str) -> None:
    LONE.assert_mutant_is_caught(name)


def test_what_a_lone_place_does_not_promise_is_known() -> None:
    assert search(LIMIT).violation.startswith("O2")


def test_every_invariant_has_a_mutant() -> None:
    assert {mutant.invariant for mutant in LONE.mutants} == set(DESCRIPTIONS)


def test_every_way_is_gone_once() -> None:
    gone = list[tuple[int, ...]]()

    def run(choices: Choices) -> None:
        first = choices.choose(2)
        gone.append((first, choices.choose(3)) if first else (first,))

    search_all(Ways(MODELS[0], run), Rules())
    assert gone == [(0,), (1, 0), (1, 1), (1, 2)]
