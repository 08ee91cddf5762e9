"""Every model of shared storage holds, with as many states as it ever had; every mutant breaks what it is said to break."""

from __future__ import annotations

import pytest

from replitree.verify.sharing.invariants import DESCRIPTIONS
from replitree.verify.sharing.models import MODELS, find_model
from replitree.verify.sharing.mutants import MUTANTS, find_mutant
from replitree.verify.sharing.search import search

PINS = {
    "share_two": (1_859, 4_802),
    "share_crash": (10_433, 29_041),
    "share_doubt": (34_443, 104_572),
    "share_store": (21_369, 63_051),
    "share_three": (80_407, 264_811),
    "share_borrow": (6_014, 13_693),
    "share_borrow_crash": (13_880, 39_030),
    "share_borrow_refused": (4_166, 11_956),
    "share_twice": (7_539, 20_307),
    "share_drop": (9_700, 28_964),
    "share_drop_crash": (16_466, 54_348),
    "fsck_write": (2_024, 4_124),
    "fsck_leave": (2_336, 5_480),
    "fsck_borrowed": (4_294, 10_041),
    "fsck_crash": (5_025, 10_922),
    "fsck_doubt": (2_298, 5_150),
    "fsck_store": (3_686, 7_683),
    "fsck_stale": (8_422, 18_779),
    "fsck_staged": (119, 232),
    "fsck_silent": (9_098, 22_611),
    "fsck_marks": (12_460, 30_212),
    "fsck_orphan": (3_831, 10_100),
    "fsck_unowned": (18_161, 46_784),
    "fsck_two": (16_628, 45_864),
    "upload": (151_361, 458_734),
    "upload_crash": (31_167, 78_496),
    "upload_doubt": (18_389, 43_525),
    "upload_store": (8_714, 19_988),
    "upload_old": (88_048, 253_683),
}
"""States and transitions."""

SLOW_STATES, NIGHTLY_STATES = 7_000, 30_000
SLOW_MODELS = ("share_doubt", "fsck_silent", "fsck_marks", "upload_old")
"""Models in which it takes more than a moment until a mutant is caught."""


def by_size(name: str) -> object:
    states = PINS[name][0]
    mark = pytest.mark.nightly if states > NIGHTLY_STATES else pytest.mark.slow if states > SLOW_STATES else ()
    return pytest.param(name, marks=mark)


@pytest.mark.parametrize("name", [by_size(model.name) for model in MODELS])
def test_model_holds(name: str) -> None:
    found = search(find_model(name))
    assert (found.violation, found.trace) == ("", ())
    assert (found.states, found.transitions) == PINS[name]


@pytest.mark.parametrize(
    "name", [pytest.param(m.name, marks=[pytest.mark.slow] if m.model in SLOW_MODELS else []) for m in MUTANTS]
)
def test_mutant_is_caught(name: str) -> None:
    mutant = find_mutant(name)
    found = search(find_model(mutant.model), mutant)
    assert found.violation.partition(":")[0] == mutant.breaks
    assert found.trace


def test_every_invariant_has_a_mutant() -> None:
    assert {mutant.breaks for mutant in MUTANTS} == set(DESCRIPTIONS)


def test_a_mutant_leaves_nothing_behind() -> None:
    search(find_model("share_two"), find_mutant("owners-counted"))
    assert search(find_model("share_two")).violation == ""


def test_the_shortest_way_to_a_violation_is_told() -> None:
    found = search(find_model("share_two"), find_mutant("registered-before-stored"))
    assert found.trace == (
        "r1: sync r1/host → ",
        "r1: get r1/host → read",
        "r1: commit set r1/host → applied",
        "r1: get r1/parts/a → read",
        "r1: commit check r1/host, create shared/a-r100, create shared/a-r100/r1~i1~a, create r1/parts/a → applied",
    )


def test_a_model_that_is_too_large_is_told() -> None:
    with pytest.raises(RuntimeError, match="share_two has more than 100 states"):
        search(find_model("share_two"), states_max=100)
