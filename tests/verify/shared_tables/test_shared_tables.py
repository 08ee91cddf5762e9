"""Every model of tables on an object store holds, with as many states as it ever had; every mutant is caught."""

from __future__ import annotations

import pytest

from replitree.verify.shared_tables.invariants import DESCRIPTIONS
from replitree.verify.shared_tables.models import MODELS, find_model
from replitree.verify.shared_tables.mutants import MUTANTS, find_mutant
from replitree.verify.shared_tables.search import search

PINS = {
    "shared_table": (12_744, 30_820),
    "shared_table_lag": (3_031, 7_811),
    "shared_table_crash": (1_606, 3_156),
    "shared_table_taken_crash": (16_982, 48_692),
    "shared_table_doubt": (1_085, 1_998),
    "shared_table_taken_doubt": (16_488, 45_331),
    "shared_table_expiry": (841, 1_542),
    "shared_table_taken_expiry": (422, 781),
    "shared_table_store": (760, 1_482),
    "shared_table_again": (1_058, 1_915),
    "shared_table_lost": (1_789, 4_323),
    "shared_table_drop": (1_573, 3_717),
    "shared_table_restore": (3_380, 8_040),
    "shared_table_restore_crash": (27_037, 77_132),
    "shared_table_restore_doubt": (1_051, 1_986),
    "shared_borrowed": (5_764, 14_255),
    "shared_borrowed_crash": (87_719, 270_189),
    "shared_borrowed_doubt": (83_187, 246_939),
    "shared_borrowed_lost": (5_015, 12_979),
    "shared_borrowed_restore": (2_934, 7_057),
    "shared_table_recover": (3_952, 9_420),
    "shared_table_recover_had": (4_685, 11_127),
    "shared_table_recover_crash": (114_922, 335_121),
    "shared_table_recover_doubt": (139_235, 386_994),
}
"""States and transitions."""

SLOW_STATES, NIGHTLY_STATES = 5_000, 40_000


def by_size(name: str) -> object:
    mark = pytest.mark.nightly if PINS[name][0] > NIGHTLY_STATES else pytest.mark.slow
    return pytest.param(name, marks=[mark] if PINS[name][0] > SLOW_STATES else [])


@pytest.mark.parametrize("name", [by_size(model.name) for model in MODELS])
def test_model_holds(name: str) -> None:
    found = search(find_model(name))
    assert (found.violation, found.trace) == ("", ())
    assert (found.states, found.transitions) == PINS[name]


@pytest.mark.parametrize("name", [mutant.name for mutant in MUTANTS])
def test_mutant_is_caught(name: str) -> None:
    mutant = find_mutant(name)
    found = search(find_model(mutant.model), mutant)
    assert found.violation.partition(":")[0] == mutant.breaks
    assert found.trace


def test_every_invariant_has_a_mutant() -> None:
    assert {mutant.breaks for mutant in MUTANTS} == set(DESCRIPTIONS)


def test_a_model_that_is_too_large_is_told() -> None:
    with pytest.raises(RuntimeError, match="shared_table has more than 100 states"):
        search(find_model("shared_table"), states_max=100)
