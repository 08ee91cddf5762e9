"""Every model of parts that move holds, with as many states as it ever had; every mutant is caught."""

from __future__ import annotations

import pytest

from replitree.verify.moving.invariants import DESCRIPTIONS
from replitree.verify.moving.models import MODELS, find_model
from replitree.verify.moving.mutants import MUTANTS, find_mutant
from replitree.verify.moving.search import search

PINS: dict[str, tuple[int, int]] = {
    "move_two": (396, 774),
    "move_leave": (28_897, 94_041),
    "move_crash": (1_884, 4_170),
    "move_leave_crash": (36_836, 115_003),
    "move_two_crash": (91_112, 283_846),
    "move_doubt": (9_501, 23_501),
    "move_leave_doubt": (187_357, 613_429),
    "take_crash": (248, 433),
    "take_doubt": (975, 2_195),
    "take_lag": (4_969, 14_778),
    "move_store": (904, 2_067),
    "move_expiry": (92_457, 269_393),
    "home_two": (225, 421),
    "home_leave": (2_156, 5_555),
    "home_crash": (4_918, 11_681),
    "home_doubt": (3_028, 7_137),
    "there_and_back": (2_040, 4_663),
    "home_mend": (162, 280),
    "borrowed_home": (2_176, 5_238),
    "borrowed_home_crash": (1_125, 2_198),
    "borrowed_home_doubt": (772, 1_568),
    "borrowed_there_and_back": (139_021, 389_883),
    "borrowed_home_mend": (681, 1_233),
}
"""States and transitions."""

SLOW_STATES, NIGHTLY_STATES = 3_000, 80_000


def by_size(name: str) -> object:
    states = PINS[name][0]
    mark = pytest.mark.nightly if states > NIGHTLY_STATES else pytest.mark.slow
    return pytest.param(name, marks=[mark] if states > SLOW_STATES else [])


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
