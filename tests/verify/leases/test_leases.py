"""The model of leases is explored to its end; every broken lease is caught, on a way of known length."""

from __future__ import annotations

import pytest

from replitree_verify.leases.model import Model, explore
from replitree_verify.leases.mutants import MUTANTS, mutated
from replitree_verify.small_models import explore_beside, list_beside

STEPS = {
    "not-waited-for": 8,
    "waited-for-once": 9,
    "not-in-the-log": 8,
    "not-given-up": 10,
    "lowered-for-later-entries-only": 12,
    "counted-from-the-answer": 10,
    "begins-when-sent": 6,
    "waited-from-before-the-fence": 10,
    "clock-that-stands-while-suspended": 10,
    "wall-clock": 10,
}
QUICK = ("not-waited-for", "not-in-the-log", "begins-when-sent")


@pytest.mark.slow
def test_model_is_explored_to_its_end() -> None:
    found = explore(Model())
    assert found.trace == ()
    assert (found.states, found.moves) == (529_896, 1_357_794)
    gone = {"the leader gives its lease up", "the leader lowers its lease"}
    assert {"read by lease", "it acknowledges something", *gone} <= found.probes


@pytest.mark.parametrize(
    "name", [each if each in QUICK else pytest.param(each, marks=pytest.mark.slow) for each in STEPS]
)
def test_mutant_is_caught(name: str) -> None:
    with mutated(MUTANTS[name]):
        found = explore(MUTANTS[name].model)
    assert len(found.trace) == STEPS[name]


def test_model_is_known_by_name() -> None:
    (listed,) = [each for each in list_beside() if each["name"] == "lease"]
    assert listed["mutants"] == list(MUTANTS)
    found = explore_beside("lease", "not-waited-for")
    assert [each["invariant"] for each in found.violations] == ["I14"]


def test_everything_is_pinned() -> None:
    assert set(STEPS) == set(MUTANTS)
