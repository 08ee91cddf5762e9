"""Every model of merges in an object store holds, with as many states as it ever had; every mutant is caught."""

from __future__ import annotations

import pytest

from replitree_verify.merging.invariants import DESCRIPTIONS
from replitree_verify.merging.models import MODELS
from replitree_verify.merging.search import search
from replitree_verify.patches.patch import read_patches
from replitree_verify.shared_tables.invariants import DESCRIPTIONS as OF_TABLES
from tests.verify.small_models import SmallModels

MERGES = SmallModels(
    models=MODELS,
    mutants=read_patches("merging"),
    search=search,
    pins={
        "shared_merge_once": (112, 178),
        "shared_merge_crash": (2_441, 5_446),
        "shared_merge_killed": (3_506, 9_315),
        "shared_merge_expiry": (5_350, 12_620),
        "shared_merge_doubt": (49_053, 132_799),
        "shared_merge_store": (46_312, 130_148),
        "shared_merge_paused": (237, 389),
        "shared_merge_paused_doubt": (54_440, 146_526),
        "shared_merge_differs": (5_350, 12_620),
        "shared_merge_gone": (72, 124),
        "shared_merge_three": (1_742, 4_131),
        "shared_merge_switched": (65, 108),
        "shared_merge_switched_one": (414, 871),
        "shared_merge_switched_crash": (9_376, 28_996),
        "borrow_chain": (23_052, 60_459),
        "borrow_chain_crash": (9_561, 23_816),
        "borrow_files": (16_108, 40_724),
        "borrow_files_twice": (282, 484),
        "borrow_files_crash": (7_530, 18_849),
        "borrow_files_doubt": (1_006, 2_002),
        "borrow_files_store": (648, 1_301),
    },
    steps={
        "own-result-put": 16,
        "mark-kept": 10,
        "late-mark-kept": 15,
        "waits-for-the-result": 12,
        "mark-is-persistent": 9,
        "mark-outlives-result": 12,
        "no-mark": 20,
        "all-make": 16,
        "second-copy-kept": 24,
        "not-compared": 19,
        "other-discarded": 20,
        "twin-kept": 33,
        "faster-overlooked": 34,
        "borrowed-unmarked": 6,
        "result-unmarked-in-part": 8,
        "source-discarded": 16,
    },
    slow_states=2_500,
    nightly_states=40_000,
    slow_mutants=("twin-kept", "faster-overlooked"),
)


@pytest.mark.parametrize("name", MERGES.each_model())
def test_model_holds(name: str) -> None:
    MERGES.assert_model_holds(name)


@pytest.mark.parametrize("name", MERGES.each_mutant())
def test_mutant_is_caught(name: str) -> None:
    MERGES.assert_mutant_is_caught(name)


def test_every_invariant_of_merges_has_a_mutant() -> None:
    assert {mutant.invariant for mutant in MERGES.mutants} >= set(DESCRIPTIONS) - set(OF_TABLES)
