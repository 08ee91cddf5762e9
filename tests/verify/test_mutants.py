"""Every mutant is caught, by the invariant that it is there for, on a way of known length."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replitree_verify.engine.explore import explore
from replitree_verify.models import MODELS
from replitree_verify.mutants.catalog import MUTANTS
from replitree_verify.registry import counterexample
from replitree_verify.rules.invariants import NAMES
from replitree_verify.rules.shares import NAMES as OF_SHARES
from replitree_verify.world.model import Model
from tests.verify.mutant_steps import LONG, STEPS


def test_every_mutant_is_pinned() -> None:
    assert set(MUTANTS) == set(STEPS)


def test_every_invariant_has_a_mutant() -> None:
    assert {mutant.invariant for mutant in MUTANTS.values()} == {*NAMES, *OF_SHARES}


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name in LONG else ()) for name in STEPS])
def test_mutant_is_caught(name: str) -> None:
    mutant = MUTANTS[name]
    with mutant.performing():
        explored = explore(MODELS[mutant.model], mutant.stages)
    assert explored.violation is not None
    assert explored.violation.partition(":")[0] == mutant.invariant
    assert len(explored.trace) == STEPS[name]
    assert counterexample(explored)[0].startswith("  1 ")


@pytest.mark.parametrize("name", ["look-without-new-epoch", "staging-swept-too-early", "replaced-takes-back"])
def test_mutant_is_not_caught_in_a_world_without_faults(name: str) -> None:
    """So it is the fault that shows the mutant, not something else that is wrong in it."""
    calm: Model = replace(MODELS[MUTANTS[name].model], faults={})
    assert explore(calm, MUTANTS[name].stages).violation is None
