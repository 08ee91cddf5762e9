"""Joint inserts: every order of every model holds, and every mutant is caught."""

from __future__ import annotations

import pytest

from replitree_verify.joint.model import DESCRIPTIONS, MODELS
from replitree_verify.joint.search import search
from replitree_verify.patches.patch import read_patches
from tests.verify.small_models import SmallModels

JOINT = SmallModels(
    models=MODELS,
    mutants=read_patches("joint"),
    search=search,
    steps={
        "attempt-of-folder-given-up": 17,
        "batch-equal-only": 16,
        "batch-gone-without-a-look": 12,
        "batch-of-any-query": 18,
        "beside-epoch-not-checked": 9,
        "beside-removed-after-insert": 5,
        "blind-commit-after-unknown": 7,
        "committed-removed": 10,
        "coordinator-epoch-not-checked": 12,
        "doubt-settled-by-token-alone": 14,
        "doubt-without-new-epoch": 12,
        "duplicate-not-known-for-its-own": 16,
        "ended-below-closed-parent": 13,
        "ended-in-some-shards": 11,
        "ended-without-delete": 15,
        "failed-batch-kept": 22,
        "gone-node-taken-for-own": 15,
        "later-batch-beside-open": 27,
        "looked-at-before-counting": 17,
        "map-at-any-version": 8,
        "map-not-checked": 8,
        "moved-stream-not-read-again": 17,
        "objects-before-attempt": 4,
        "open-batch-not-awaited": 19,
        "open-batch-set-back": 19,
        "own-gone-without-a-look": 10,
        "own-not-held": 13,
        "own-removed-after-insert": 8,
        "participant-epoch-not-checked": 11,
        "participant-session-not-checked": 8,
        "prepared-again-in-doubt": 12,
        "prepared-not-deleted": 10,
        "prepared-not-looked-at": 10,
        "prepared-without-objects": 14,
        "put-in-doubt-of-attempt": 5,
        "remembered-token-not-looked-at": 13,
        "removed-before-abandoned": 9,
        "removed-in-doubt": 10,
        "removed-token-not-counted": 25,
        "second-token-not-taken": 14,
        "set-back-at-any-version": 30,
        "settled-alone": 10,
        "shard-below-closed-parent": 9,
        "stream-forgotten-unversioned": 26,
        "stream-not-moved": 8,
        "taken-token-left-out": 16,
        "token-kept-after-fail": 11,
        "token-not-taken": 14,
        "token-of-open-batch-forgotten": 37,
        "two-commits": 7,
    },
    slow_mutants=("own-not-held", "removed-token-not-counted", "duplicate-not-known-for-its-own"),
)


@pytest.mark.parametrize("name", JOINT.each_model())
def test_model_holds(name: str) -> None:
    JOINT.assert_model_holds(name)


@pytest.mark.parametrize("name", JOINT.each_mutant())
def test_mutant_is_caught(name: str) -> None:
    JOINT.assert_mutant_is_caught(name)


def test_every_invariant_has_a_mutant() -> None:
    assert {mutant.invariant for mutant in JOINT.mutants} == set(DESCRIPTIONS)
