"""Every model of merges whose results somebody else puts holds, with as many states as it ever had; every mutant is caught."""

from __future__ import annotations

import pytest

from replitree.verify.prepared.models import MODELS, find_model
from replitree.verify.prepared.mutants import MUTANTS, find_mutant
from replitree.verify.prepared.search import search

PINS = {
    "merge_prepared": (5_055, 14_080),
    "merge_prepared_crash": (166_538, 600_125),
    "merge_prepared_expiry": (144_420, 440_299),
    "merge_prepared_doubt": (4_384, 10_046),
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


FAST_MUTANTS = frozenset({"prepared-believed"})


@pytest.mark.parametrize(
    "name",
    [pytest.param(mutant.name, marks=[] if mutant.name in FAST_MUTANTS else [pytest.mark.slow]) for mutant in MUTANTS],
)
def test_mutant_is_caught(name: str) -> None:
    mutant = find_mutant(name)
    found = search(find_model(mutant.model), mutant)
    assert found.violation.partition(":")[0] == mutant.breaks
    assert found.trace
