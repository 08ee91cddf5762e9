"""Every mutant of a packed model is caught, in the known number of steps, and every invariant catches one."""

from __future__ import annotations

import pytest

from replitree_published.packed.catalog import PACKED
from replitree_published.packed.report import explore_packed
from tests.verify.packed import pins


@pytest.mark.slow
@pytest.mark.parametrize(("name", "mutant"), pins.MUTANTS)
def test_mutant_is_caught(name: str, mutant: str) -> None:
    told = explore_packed(name, mutant)
    (violation,) = told.violations
    assert (violation["invariant"], violation.get("steps", 0)) == pins.MUTANTS[name, mutant]
    assert len(told.trace) == violation.get("steps", 0)
    assert told.generated == pins.UP_TO_THE_VIOLATION.get((name, mutant), told.generated)


def test_every_mutant_says_what_catches_it() -> None:
    said = {
        (model.name, each.name): (each.invariant, each.steps) for model in PACKED.values() for each in model.mutants
    }
    assert said == pins.MUTANTS


@pytest.mark.parametrize("name", PACKED)
def test_every_invariant_and_every_required_probe_has_a_mutant(name: str) -> None:
    families = [name, "mended/quorum", "mended/quorum-lagging"] if name.startswith("mended/quorum") else [name]
    caught = {catcher for (model, _), (catcher, _) in pins.MUTANTS.items() if model in families}
    assert caught >= {invariant.name for invariant in PACKED[name].invariants}
