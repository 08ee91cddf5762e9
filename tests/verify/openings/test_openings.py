"""Every model of openings holds, with as many states as ever; every mutant is caught; and where the promise ends is known."""

from __future__ import annotations

import pytest

from replitree_verify.openings import members
from replitree_verify.openings.models import LIMITS, MODELS
from replitree_verify.openings.search import search
from replitree_verify.patches.patch import find_patch, read_patches
from tests.verify.small_models import SmallModels

OPENINGS = SmallModels(
    models=MODELS,
    mutants=read_patches("openings"),
    search=search,
    steps={
        "exchange-not-noticed": 10,
        "older-session-admitted": 10,
        "incarnation-not-compared": 10,
        "admitted-as-it-is": 10,
        "admitted-having-learnt-more": 39,
        "sessions-mixed-up": 39,
        "not-remembered": 8,
        "let-in-unmended": 15,
        "reopening-not-said": 18,
        "doubt-not-minded": 20,
        "doubt-of-later-sessions-only": 24,
        "told-once": 18,
        "others-not-told": 10,
        "fences-not-copied": 17,
        "blobs-not-copied": 13,
        "one-other-is-enough": 11,
    },
    slow_mutants=("let-in-unmended",),
    nightly_mutants=("admitted-having-learnt-more", "sessions-mixed-up"),
)

BEYOND = {
    "limit_witness_away": ("O2", 12),
    "limit_long_opening": ("O2", 20),
    "limit_copied_away": ("O1", 15),
}
"""More than the group promises to survive: the invariant that does not hold then, and the length of the shortest way."""


@pytest.mark.parametrize("name", OPENINGS.each_model())
def test_model_holds(name: str) -> None:
    OPENINGS.assert_model_holds(name)


@pytest.mark.parametrize("name", OPENINGS.each_mutant())
def test_mutant_is_caught(name: str) -> None:
    OPENINGS.assert_mutant_is_caught(name)


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[] if each == "limit_witness_away" else [pytest.mark.nightly]) for each in BEYOND]
)
def test_what_the_group_does_not_promise_is_known(name: str) -> None:
    found = search(next(each for each in LIMITS if each.name == name))
    assert (found.violation.partition(":")[0], len(found.trace)) == BEYOND[name]


def test_every_limit_is_known() -> None:
    assert {each.name for each in LIMITS} == set(BEYOND)


@pytest.mark.parametrize("name", ["exchange-not-noticed", pytest.param("not-remembered", marks=pytest.mark.slow)])
def test_what_was_acknowledged_is_lost_where_a_member_without_memory_is_counted(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members, "VOTES", ())  # whoever looks for O2 sees nothing
    mutant = find_patch("openings", name)
    found = search(next(each for each in MODELS if each.name == mutant.model), mutant)
    assert found.violation.partition(":")[0] == "O1"


def test_a_model_that_is_too_large_is_told() -> None:
    with pytest.raises(RuntimeError, match="opening has more than 100 states"):
        search(next(model for model in MODELS if model.name == "opening"), states_max=100)
