"""Every model of merges in an object store holds, with as many states as it ever had; every mutant is caught."""

from __future__ import annotations

import pytest

from replitree.verify.merging.invariants import DESCRIPTIONS
from replitree.verify.merging.models import MODELS, find_model
from replitree.verify.merging.mutants import MUTANTS, find_mutant
from replitree.verify.merging.search import search
from replitree.verify.shared_tables.invariants import DESCRIPTIONS as OF_TABLES

PINS = {
    "shared_merge_once": (312, 680),
    "shared_merge_crash": (2_169, 4_840),
    "shared_merge_killed": (3_504, 9_176),
    "shared_merge_expiry": (3_328, 7_516),
    "shared_merge_doubt": (8_124, 21_357),
    "shared_merge_store": (12_168, 33_868),
    "shared_merge_paused": (674, 1_503),
    "shared_merge_paused_doubt": (12_370, 32_298),
    "shared_merge_differs": (3_328, 7_516),
    "shared_merge_gone": (216, 492),
    "shared_merge_three": (5_084, 15_028),
    "borrow_chain": (49_216, 126_455),
    "borrow_chain_crash": (11_006, 27_631),
    "borrow_files": (83_674, 217_578),
    "borrow_files_twice": (576, 1_019),
    "borrow_files_crash": (9_132, 22_843),
    "borrow_files_doubt": (2_868, 5_669),
    "borrow_files_store": (1_063, 2_169),
}
"""States and transitions."""

SLOW_STATES, NIGHTLY_STATES = 2_500, 40_000


def by_size(name: str) -> object:
    mark = pytest.mark.nightly if PINS[name][0] > NIGHTLY_STATES else pytest.mark.slow
    return pytest.param(name, marks=[mark] if PINS[name][0] > SLOW_STATES else [])


@pytest.mark.parametrize("name", [by_size(model.name) for model in MODELS])
def test_model_holds(name: str) -> None:
    found = search(find_model(name))
    assert (found.violation, found.trace) == ("", ())
    assert (found.states, found.transitions) == PINS[name]


FAST_MUTANTS = frozenset({"mark-kept", "waits-for-the-result", "no-mark", "everybody-makes"})
FAST_MUTANTS |= {"borrowed-unmarked", "result-unmarked-in-part", "source-discarded"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(mutant.name, marks=[] if mutant.name in FAST_MUTANTS else [pytest.mark.slow]) for mutant in MUTANTS],
)
def test_mutant_is_caught(name: str) -> None:
    mutant = find_mutant(name)
    found = search(find_model(mutant.model), mutant)
    assert found.violation.partition(":")[0] == mutant.breaks
    assert found.trace


def test_every_invariant_of_merges_has_a_mutant() -> None:
    assert {mutant.breaks for mutant in MUTANTS} >= set(DESCRIPTIONS) - set(OF_TABLES)
