"""The model of leases is explored to its end; every broken lease is caught, on a way of known length."""

from __future__ import annotations

import pytest

from replitree_verify.leases.model import MODEL, search
from replitree_verify.patches.patch import read_patches
from replitree_verify.small_models import explore_beside, list_beside
from tests.verify.small_models import SmallModels

QUICK = ("not-waited-for", "not-in-the-log", "begins-when-sent")
STEPS = {
    "not-waited-for": 7,
    "waited-for-once": 8,
    "not-in-the-log": 7,
    "not-given-up": 9,
    "lowered-for-later-entries-only": 11,
    "counted-from-the-answer": 9,
    "begins-when-sent": 5,
    "waited-from-before-the-fence": 9,
    "clock-that-stands-while-suspended": 9,
    "wall-clock": 9,
}
LEASES = SmallModels(
    models=(MODEL,),
    mutants=read_patches("leases"),
    search=search,
    steps=STEPS,
    slow_mutants=tuple(name for name in STEPS if name not in QUICK),
)


@pytest.mark.parametrize("name", LEASES.each_model())
def test_model_holds(name: str) -> None:
    LEASES.assert_model_holds(name)


@pytest.mark.parametrize("name", LEASES.each_mutant())
def test_mutant_is_caught(name: str) -> None:
    LEASES.assert_mutant_is_caught(name)


def test_model_is_known_by_name() -> None:
    (listed,) = [each for each in list_beside() if each["name"] == "lease"]
    assert set(listed["mutants"]) == set(STEPS)
    found = explore_beside("lease", "not-waited-for")
    assert [each["invariant"] for each in found.violations] == ["I14"]
