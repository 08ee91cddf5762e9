"""Every model of parts that borrow holds, with as many states as it ever had; every mutant is caught."""

from __future__ import annotations

import pytest

from replitree_verify.merging.models import MODELS
from replitree_verify.merging.search import search
from replitree_verify.patches.patch import read_patches
from tests.verify.small_models import SmallModels

MERGES = SmallModels(
    models=MODELS,
    mutants=read_patches("merging"),
    search=search,
    steps={
        "borrowed-unmarked": 6,
        "result-unmarked-in-part": 8,
        "source-discarded": 16,
    },
)


@pytest.mark.parametrize("name", MERGES.each_model())
def test_model_holds(name: str) -> None:
    MERGES.assert_model_holds(name)


@pytest.mark.parametrize("name", MERGES.each_mutant())
def test_mutant_is_caught(name: str) -> None:
    MERGES.assert_mutant_is_caught(name)
