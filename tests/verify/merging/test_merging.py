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
        "shared_merge_crash": (2_003, 4_429),
        "shared_merge_killed": (3_024, 7_798),
        "shared_merge_expiry": (3_382, 7_315),
        "shared_merge_doubt": (85_074, 235_653),
        "shared_merge_store": (48_808, 136_628),
        "shared_merge_paused": (237, 389),
        "shared_merge_paused_doubt": (90_803, 250_163),
        "shared_merge_differs": (3_382, 7_315),
        "shared_merge_gone": (72, 124),
        "shared_merge_three": (1_742, 4_131),
        "shared_merge_switched": (65, 108),
        "shared_merge_switched_one": (610, 1_333),
        "shared_merge_switched_crash": (7_708, 24_029),
        "borrow_chain": (42_656, 110_815),
        "borrow_chain_crash": (11_006, 27_631),
        "borrow_files": (64_482, 164_600),
        "borrow_files_twice": (351, 597),
        "borrow_files_crash": (6_505, 15_671),
        "borrow_files_doubt": (1_948, 3_676),
        "borrow_files_store": (944, 1_900),
    },
    steps={
        "own-result-put": 16,
        "mark-kept": 10,
        "late-mark-kept": 15,
        "waits-for-the-result": 12,
        "mark-is-persistent": 11,
        "mark-outlives-result": 15,
        "no-mark": 20,
        "all-make": 16,
        "second-copy-kept": 21,
        "not-compared": 19,
        "other-discarded": 20,
        "twin-kept": 41,
        "faster-overlooked": 38,
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
    nightly_mutants=("faster-overlooked",),
)


@pytest.mark.parametrize("name", MERGES.each_model())
def test_model_holds(name: str) -> None:
    MERGES.assert_model_holds(name)


@pytest.mark.parametrize("name", MERGES.each_mutant())
def test_mutant_is_caught(name: str) -> None:
    MERGES.assert_mutant_is_caught(name)


def test_every_invariant_of_merges_has_a_mutant() -> None:
    assert {mutant.invariant for mutant in MERGES.mutants} >= set(DESCRIPTIONS) - set(OF_TABLES)
