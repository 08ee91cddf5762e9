"""Every model of merges in an object store holds, with as many states as it ever had; every mutant is caught."""

from __future__ import annotations

import pytest

from replitree_verify.merging.invariants import DESCRIPTIONS
from replitree_verify.merging.models import MODELS
from replitree_verify.merging.mutants import MUTANTS
from replitree_verify.merging.search import search
from replitree_verify.shared_tables.invariants import DESCRIPTIONS as OF_TABLES
from tests.verify.small_models import SmallModels

MERGES = SmallModels(
    models=MODELS,
    mutants=MUTANTS,
    search=search,
    pins={
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
        "shared_merge_switched": (194, 433),
        "shared_merge_switched_one": (542, 1_189),
        "shared_merge_switched_crash": (8_648, 27_111),
        "borrow_chain": (42_656, 110_815),
        "borrow_chain_crash": (11_006, 27_631),
        "borrow_files": (64_482, 164_600),
        "borrow_files_twice": (351, 597),
        "borrow_files_crash": (6_505, 15_671),
        "borrow_files_doubt": (1_948, 3_676),
        "borrow_files_store": (944, 1_900),
    },
    steps={
        "own-result-put": 21,
        "mark-kept": 17,
        "late-mark-kept": 24,
        "waits-for-the-result": 19,
        "mark-is-persistent": 25,
        "no-mark": 25,
        "everybody-makes": 21,
        "second-copy-kept": 26,
        "not-compared": 25,
        "other-discarded": 24,
        "twin-kept": 46,
        "borrowed-unmarked": 11,
        "result-unmarked-in-part": 13,
        "source-discarded": 30,
    },
    slow_states=2_500,
    nightly_states=40_000,
    slow_mutants=(
        "late-mark-kept",
        "mark-is-persistent",
        "second-copy-kept",
        "not-compared",
        "other-discarded",
        "twin-kept",
    ),
)


@pytest.mark.parametrize("name", MERGES.each_model())
def test_model_holds(name: str) -> None:
    MERGES.assert_model_holds(name)


@pytest.mark.parametrize("name", MERGES.each_mutant())
def test_mutant_is_caught(name: str) -> None:
    MERGES.assert_mutant_is_caught(name)


def test_every_invariant_of_merges_has_a_mutant() -> None:
    assert {mutant.invariant for mutant in MUTANTS} >= set(DESCRIPTIONS) - set(OF_TABLES)
