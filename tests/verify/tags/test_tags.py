"""The tags and consumers of a sharded table: every order of every model holds, and every mutant is caught."""

from __future__ import annotations

import pytest

from replitree_verify.patches.patch import read_patches
from replitree_verify.tags.model import DESCRIPTIONS, MODELS
from replitree_verify.tags.search import search
from tests.verify.small_models import SmallModels

TAGS = SmallModels(
    models=MODELS,
    mutants=read_patches("tags"),
    search=search,
    steps={
        "another-clients-node": 15,
        "consumer-by-any-map": 15,
        "consumer-moved-back-over-shards": 23,
        "consumer-moved-in-one-shard": 17,
        "consumers-not-looked-at": 22,
        "doubt-taken-for-refusal": 9,
        "dropped-in-known-shards": 23,
        "made-at-any-version": 20,
        "mark-of-a-shard-overwritten": 18,
        "new-shard-at-any-version": 15,
        "new-shard-holds-nothing": 17,
        "removal-not-counted": 20,
        "shards-left": 14,
        "tag-comes-unnoticed": 18,
        "tag-of-a-removed-shard": 18,
        "tags-not-looked-at": 20,
    },
)


@pytest.mark.parametrize("name", TAGS.each_model())
def test_model_holds(name: str) -> None:
    TAGS.assert_model_holds(name)


@pytest.mark.parametrize("name", TAGS.each_mutant())
def test_mutant_is_caught(name: str) -> None:
    TAGS.assert_mutant_is_caught(name)


def test_every_invariant_has_a_mutant() -> None:
    assert {mutant.invariant for mutant in TAGS.mutants} == set(DESCRIPTIONS)
