"""Every model of tables on an object store holds, with as many states as it ever had; every mutant is caught."""

from __future__ import annotations

import pytest

from replitree_verify.patches.patch import read_patches
from replitree_verify.shared_tables.invariants import DESCRIPTIONS
from replitree_verify.shared_tables.models import MODELS, find_model
from replitree_verify.shared_tables.search import search
from tests.verify.small_models import SmallModels

TABLES = SmallModels(
    models=MODELS,
    mutants=read_patches("shared_tables"),
    search=search,
    pins={
        "shared_table": (1_650, 3_845),
        "shared_table_lag": (7_292, 20_365),
        "shared_table_crash": (999, 1_966),
        "shared_table_taken_crash": (10_131, 29_107),
        "shared_table_doubt": (667, 1_256),
        "shared_table_taken_doubt": (8_642, 24_285),
        "shared_table_expiry": (663, 1_218),
        "shared_table_taken_expiry": (342, 653),
        "shared_table_store": (402, 767),
        "shared_table_again": (894, 1_711),
        "shared_table_lost": (448, 1_030),
        "shared_table_drop": (1_249, 2_820),
        "shared_table_leave": (6_915, 18_213),
        "shared_table_open": (1_782, 4_855),
        "shared_table_restore": (8_872, 21_186),
        "shared_table_restore_crash": (1_146, 2_348),
        "shared_table_restore_crash_joined": (10_382, 27_585),
        "shared_table_restore_doubt": (1_048, 2_076),
        "shared_borrowed": (732, 1_684),
        "shared_borrowed_crash": (15_542, 45_372),
        "shared_borrowed_doubt": (15_394, 43_807),
        "shared_borrowed_expiry": (370, 699),
        "shared_borrowed_lost": (572, 1_324),
        "shared_borrowed_restore": (9_852, 23_506),
        "shared_table_recover": (2_296, 5_420),
        "shared_table_recover_had": (2_116, 4_934),
        "shared_table_recover_crash": (67_863, 202_316),
        "shared_table_recover_doubt": (64_023, 184_575),
        "shared_table_recover_expiry": (73_763, 214_613),
    },
    steps={
        "put-before-noted": 4,
        "attempt-not-noted": 4,
        "attempts-not-given-up": 21,
        "published-given-up": 14,
        "given-up-twice": 6,
        "taken-over-unmarked": 10,
        "marked-afterwards": 7,
        "attempt-kept": 7,
        "share-resurrected": 12,
        "registered-unfenced": 38,
        "fetched-again-unmarked": 11,
        "let-go-unproved": 14,
        "forgotten-before-let-go": 10,
        "mark-deleted-alone": 10,
        "objects-deleted-first": 11,
        "dropped-with-marks": 28,
        "dropped-with-attempts": 28,
        "restored-without-marks": 7,
        "shared-restore-unfenced": 46,
        "taken-over-in-part": 4,
        "owned-in-part": 16,
        "let-go-in-part": 8,
        "owned-again-in-part": 12,
        "restored-in-part": 7,
        "recovered-unmarked": 18,
        "recovered-and-kept": 32,
    },
    slow_states=5_000,
    nightly_states=40_000,
)


@pytest.mark.parametrize("name", TABLES.each_model())
def test_model_holds(name: str) -> None:
    TABLES.assert_model_holds(name)


@pytest.mark.parametrize("name", TABLES.each_mutant())
def test_mutant_is_caught(name: str) -> None:
    TABLES.assert_mutant_is_caught(name)


def test_every_invariant_has_a_mutant() -> None:
    assert {mutant.invariant for mutant in TABLES.mutants} == set(DESCRIPTIONS)


def test_a_model_that_is_too_large_is_told() -> None:
    with pytest.raises(RuntimeError, match="shared_table has more than 100 states"):
        search(find_model("shared_table"), states_max=100)
