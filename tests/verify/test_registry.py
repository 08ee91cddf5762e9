"""What `replitree verify` is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replitree.errors import BadInput
from replitree_verify import registry
from replitree_verify.models import MODELS
from replitree_verify.mutants.catalog import MUTANTS
from replitree_verify.world.faults import Fault

NEEDED = {
    "no-epoch-check", "pointer-and-queue-not-atomic", "acknowledge-before-commit", "blind-retry-after-unknown",
    "look-without-new-epoch", "node-before-file", "staging-swept-too-early", "deduplication-in-two-steps",
}  # fmt: skip


def test_every_model_tells_its_invariants_and_mutants() -> None:
    listed = {model["name"]: model for model in registry.list_models()}
    assert set(listed) == set(MODELS)
    assert {mutant for model in listed.values() for mutant in model["mutants"]} == set(MUTANTS) >= NEEDED
    assert all({"I1", "I2", "I3", "I7", "I9"} <= set(model["invariants"]) for model in listed.values())
    assert all(model["description"] for model in listed.values())


def test_a_plain_model_has_no_violation_and_no_trace() -> None:
    found = registry.explore("pull_gap")
    assert (found.violations, found.missing, found.trace) == ((), (), ())
    assert found.states > 1000
    assert found.transitions > found.states


def test_a_caught_mutant_has_a_violation_and_a_trace() -> None:
    found = registry.explore("restart_anywhere", "staging-swept-too-early")
    (violation,) = found.violations
    assert (violation["invariant"], violation["steps"]) == ("I2", 7)
    assert found.trace[-1].startswith("r1 process 1: starting")


def test_a_model_that_never_gets_to_its_rare_branches_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "pull_gap", replace(MODELS["pull_gap"], faults={Fault.STALE: 0}))
    found = registry.explore("pull_gap")
    assert [violation["what"] for violation in found.violations] == [
        "never seen: stale read",
        "never seen: torn read",
        "never seen: gap looked at again",
    ]


def test_names_that_are_not_there_are_refused() -> None:
    with pytest.raises(BadInput, match="no model"):
        registry.explore("nonsense")
    with pytest.raises(BadInput, match="no mutant"):
        registry.explore("pull_gap", "nonsense")


def test_seeds_are_simulated_up_to_and_without_the_last() -> None:
    found = registry.simulate(3, 5)
    assert found.violations == ()
    assert found.states > 0
    assert found.digest == registry.simulate(3, 5).digest != registry.simulate(3, 4).digest
    assert max(found.probes[probe] for probe in found.probes) == 2  # type: ignore[call-overload]


def test_what_is_simulated_does_not_depend_on_the_number_of_workers() -> None:
    one, two = (registry.simulate(0, 9, "acknowledge-before-commit", workers) for workers in (1, 2))
    assert one.digest == two.digest
    assert one.violations == two.violations != ()
    assert one.probes == two.probes
    with pytest.raises(BadInput, match="0 workers"):
        registry.simulate(0, 9, workers=0)
