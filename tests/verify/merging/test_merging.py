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
