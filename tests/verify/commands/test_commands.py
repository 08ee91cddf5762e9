"""Commands over shards: every order of every model holds, and every mutant is caught."""

from __future__ import annotations

import pytest

from replitree_verify.commands.model import DESCRIPTIONS, MODELS
from replitree_verify.commands.search import search
from replitree_verify.patches.patch import read_patches
from tests.verify.small_models import SmallModels

COMMANDS = SmallModels(
    models=MODELS,
    mutants=read_patches("commands"),
    search=search,
    steps={
        "closed-parent-written": 5,
        "columns-at-any-version": 8,
        "columns-of-one-shard": 4,
        "columns-of-the-table": 4,
        "detached-while-moving": 5,
        "dropped-not-looked-for": 4,
        "earlier-drop-frees": 14,
        "emptied-log-not-checked": 4,
        "epoch-not-checked": 6,
        "freed-at-any-version": 14,
        "in-two-commits": 4,
        "log-not-searched": 13,
        "map-not-checked": 5,
        "merges-judged-by-the-sources": 5,
        "mutated-by-old-columns": 8,
        "not-counted": 6,
        "not-fenced": 9,
        "overwrite-leaves-other-shards": 3,
        "overwrite-not-counted": 5,
        "overwritten-rows-keep-their-token": 11,
        "removed-entries-not-noticed": 7,
        "removed-entry-not-minded": 16,
        "rewrite-comes-next": 4,
        "rewrite-not-counted": 5,
        "rewrite-not-judged": 5,
        "rewritten-while-moving": 4,
        "settings-at-any-version": 10,
        "settings-of-the-shards": 5,
        "store-in-one-shard": 5,
        "token-not-taken": 8,
    },
)


@pytest.mark.parametrize("name", COMMANDS.each_model())
def test_model_holds(name: str) -> None:
    COMMANDS.assert_model_holds(name)


@pytest.mark.parametrize("name", COMMANDS.each_mutant())
def test_mutant_is_caught(name: str) -> None:
    COMMANDS.assert_mutant_is_caught(name)


def test_every_invariant_has_a_mutant() -> None:
    assert {mutant.invariant for mutant in COMMANDS.mutants} == set(DESCRIPTIONS)
