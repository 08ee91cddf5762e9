"""Every model of merges whose results somebody else puts holds, with as many states as it ever had; every mutant is caught."""

from __future__ import annotations

import pytest

from replitree_verify.patches.patch import read_patches
from replitree_verify.prepared.models import MODELS
from replitree_verify.prepared.search import search
from tests.verify.small_models import SmallModels

PREPARED = SmallModels(
    models=MODELS,
    mutants=read_patches("prepared"),
    search=search,
    steps={
        "prepared-believed": 12,
        "prepared-forgotten": 23,
        "prepared-twin-kept": 34,
    },
    slow_mutants=("prepared-twin-kept",),
)


@pytest.mark.parametrize("name", PREPARED.each_model())
def test_model_holds(name: str) -> None:
    PREPARED.assert_model_holds(name)


@pytest.mark.parametrize("name", PREPARED.each_mutant())
def test_mutant_is_caught(name: str) -> None:
    PREPARED.assert_mutant_is_caught(name)
