"""Every model of a tablet is explored to its end and sees what it is there for; every mutant is caught."""

from __future__ import annotations

import pytest

from replitree_verify.patches.patch import Patch, read_patches
from replitree_verify.tablets.model import Model
from replitree_verify.tablets.models.catalog import MODELS
from replitree_verify.tablets.search import search
from tests.verify.tablets.pins import FAST, PINNED, QUICK, STEPS

MUTANTS = {mutant.name: mutant for mutant in read_patches("tablets")}

AT_NIGHT = ("mask-left-out", "mask-from-the-other-end", "lost-state-not-in-the-record")
"""Mutants that take 12 seconds to a minute."""


def marked(name: str, *, is_fast: bool, is_nightly: bool) -> object:
    """Leave what takes longer than the fast gate may to where there is time."""
    if is_nightly:
        return pytest.param(name, marks=[pytest.mark.nightly, pytest.mark.timeout(7200)])
    return name if is_fast else pytest.param(name, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    "name", [marked(each, is_fast=each in FAST, is_nightly=MODELS[each].nightly) for each in PINNED]
)
def test_model_is_explored_to_its_end(name: str) -> None:
    model: Model = MODELS[name]
    found = search(model)
    assert found.violation == "", "\n".join(found.trace)
    assert set(model.probes) <= found.probes
    assert (found.states, found.transitions, found.depth) == PINNED[name]


@pytest.mark.parametrize("name", [marked(each, is_fast=each in QUICK, is_nightly=each in AT_NIGHT) for each in MUTANTS])
def test_mutant_is_caught_by_the_invariant_that_it_breaks(name: str) -> None:
    mutant = MUTANTS[name]
    found = search(MODELS[mutant.model], mutant)
    assert found.violation.partition(":")[0] == mutant.invariant, "\n".join(found.trace)
    assert len(found.trace) == STEPS[name]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutant", "model"),
    [
        pytest.param(each, model, id=f"{each.name}-{model}")
        for each in read_patches("tablets_equivalent")
        for model in each.model.split(", ")
    ],
)
def test_mutant_that_changes_nothing_violates_nothing(mutant: Patch, model: str) -> None:
    found = search(MODELS[model], mutant)
    assert found.violation == "", "\n".join(found.trace)
    assert set(MODELS[model].probes) <= found.probes


def test_everything_is_pinned() -> None:
    assert set(PINNED) == set(MODELS)
    assert set(STEPS) == set(MUTANTS)
