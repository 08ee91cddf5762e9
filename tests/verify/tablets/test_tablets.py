"""Every model of a tablet is explored to its end and sees what it is there for; every mutant is caught."""

from __future__ import annotations

import pytest

from replitree_verify.patches.patch import Patch, read_patches
from replitree_verify.pins import PINS
from replitree_verify.tablets.models.catalog import MODELS
from replitree_verify.tablets.search import search
from tests.verify.pinned import each_of
from tests.verify.tablets.pins import NIGHTLY, QUICK, STEPS

MUTANTS = {mutant.name: mutant for mutant in read_patches("tablets")}


@pytest.mark.parametrize("name", each_of(MODELS))
def test_model_holds(name: str) -> None:
    model, pin = MODELS[name], PINS[name]
    found = search(model)
    assert found.violation == "", "\n".join(found.trace)
    assert set(model.probes) <= found.probes
    assert (found.states, found.transitions, found.depth) == (pin.states, pin.transitions, pin.depth)


def _by_time(name: str) -> object:
    mark = pytest.mark.nightly if name in NIGHTLY else () if name in QUICK else pytest.mark.slow
    return pytest.param(name, marks=mark)


@pytest.mark.parametrize("name", [_by_time(name) for name in MUTANTS])
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


def test_every_mutant_is_pinned() -> None:
    assert set(STEPS) == set(MUTANTS)
