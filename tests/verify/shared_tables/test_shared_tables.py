"""Every model of tables on an object store holds, with as many states as it ever had; every mutant is caught."""

from __future__ import annotations

import pytest

from replitree_verify.shared_tables.invariants import DESCRIPTIONS
from replitree_verify.shared_tables.models import MODELS, find_model
from replitree_verify.shared_tables.mutants import MUTANTS
from replitree_verify.shared_tables.search import search
from tests.verify.small_models import SmallModels

TABLES = SmallModels(
    models=MODELS,
    mutants=MUTANTS,
    search=search,
    pins={
        "shared_table": (12_628, 30_566),
        "shared_table_lag": (3_031, 7_811),
        "shared_table_crash": (1_597, 3_140),
        "shared_table_taken_crash": (16_982, 48_692),
        "shared_table_doubt": (1_083, 1_995),
        "shared_table_taken_doubt": (16_488, 45_331),
        "shared_table_expiry": (839, 1_539),
        "shared_table_taken_expiry": (422, 781),
        "shared_table_store": (752, 1_468),
        "shared_table_again": (1_058, 1_915),
        "shared_table_lost": (2_151, 5_214),
        "shared_table_drop": (1_009, 2_294),
        "shared_table_leave": (11_766, 31_201),
        "shared_table_open": (14_494, 40_563),
        "shared_table_restore": (3_428, 8_168),
        "shared_table_restore_crash": (27_468, 78_389),
        "shared_table_restore_doubt": (1_113, 2_091),
        "shared_borrowed": (1_890, 4_477),
        "shared_borrowed_crash": (25_962, 75_215),
        "shared_borrowed_doubt": (27_711, 77_450),
        "shared_borrowed_expiry": (452, 830),
        "shared_borrowed_lost": (2_512, 6_158),
        "shared_borrowed_restore": (1_290, 2_921),
        "shared_table_recover": (3_952, 9_420),
        "shared_table_recover_had": (4_621, 10_991),
        "shared_table_recover_crash": (114_634, 334_337),
        "shared_table_recover_doubt": (138_715, 385_614),
        "shared_table_recover_expiry": (131_070, 360_448),
    },
    steps={
        "put-before-noted": 8,
        "attempt-not-noted": 8,
        "attempts-not-given-up": 41,
        "published-given-up": 24,
        "given-up-twice": 10,
        "taken-over-unmarked": 18,
        "marked-afterwards": 11,
        "attempt-kept": 11,
        "share-resurrected": 21,
        "registered-unfenced": 35,
        "fetched-again-unmarked": 24,
        "let-go-unproved": 22,
        "forgotten-before-let-go": 25,
        "mark-deleted-alone": 25,
        "objects-deleted-first": 26,
        "dropped-with-marks": 22,
        "dropped-with-attempts": 23,
        "restored-without-marks": 15,
        "shared-restore-unfenced": 46,
        "taken-over-in-part": 8,
        "owned-in-part": 29,
        "let-go-in-part": 15,
        "owned-again-in-part": 25,
        "restored-in-part": 15,
        "recovered-unmarked": 27,
        "recovered-and-kept": 58,
    },
    slow_states=5_000,
    nightly_states=40_000,
    slow_mutants=(
        "shared-restore-unfenced",
        "recovered-and-kept",
    ),
)


@pytest.mark.parametrize("name", TABLES.each_model())
def test_model_holds(name: str) -> None:
    TABLES.assert_model_holds(name)


@pytest.mark.parametrize("name", TABLES.each_mutant())
def test_mutant_is_caught(name: str) -> None:
    TABLES.assert_mutant_is_caught(name)


def test_every_invariant_has_a_mutant() -> None:
    assert {mutant.invariant for mutant in MUTANTS} == set(DESCRIPTIONS)


def test_a_model_that_is_too_large_is_told() -> None:
    with pytest.raises(RuntimeError, match="shared_table has more than 100 states"):
        search(find_model("shared_table"), states_max=100)
