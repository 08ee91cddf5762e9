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
    steps={"restored-without-marks": 7, "shared-restore-unfenced": 46, "restored-in-part": 7},
)


@pytest.mark.parametrize("name", TABLES.each_model())
def test_model_holds(name: str) -> None:
    TABLES.assert_model_holds(name)


@pytest.mark.parametrize("name", TABLES.each_mutant())
def test_mutant_is_caught(name: str) -> None:
    TABLES.assert_mutant_is_caught(name)


def test_every_invariant_has_a_mutant() -> None:
    mutants = (*TABLES.mutants, *read_patches("stored"))
    assert {mutant.invariant for mutant in mutants} >= set(DESCRIPTIONS)


def test_a_model_that_is_too_large_is_told() -> None:
    with pytest.raises(RuntimeError, match="shared_table_restore has more than 100 states"):
        search(find_model("shared_table_restore"), states_max=100)
