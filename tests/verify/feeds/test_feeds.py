"""The change feed: every order of every model holds, and every mutant is caught."""

from __future__ import annotations

import pytest

from replitree_verify.feeds.model import DESCRIPTIONS, MODELS
from replitree_verify.feeds.search import search
from replitree_verify.patches.patch import read_patches
from tests.verify.small_models import SmallModels

FEEDS = SmallModels(
    models=MODELS,
    mutants=read_patches("feeds"),
    search=search,
    steps={
        "begins-at-what-is-lacking": 9,
        "consumer-of-unnoted-entries": 13,
        "consumers-need-nothing": 10,
        "copies-of-readers-removed": 10,
        "drop-of-open-parts": 5,
        "emitted-while-open": 3,
        "failed-like-settled": 5,
        "fetched-parts-not-marked": 11,
        "folders-go-before-their-pack": 8,
        "hole-not-noticed": 9,
        "journal-follows-one": 3,
        "later-loss-not-looked-at": 11,
        "lines-of-consumers-forgotten": 6,
        "loss-of-covers-not-looked-at": 12,
        "marks-without-folders": 9,
        "merge-gives-rows": 7,
        "new-rows-of-killed-mutation": 5,
        "off-despite-consumer": 3,
        "old-inserts-not-looked-up": 9,
        "open-parts-change": 5,
        "open-parts-not-read": 6,
        "pack-goes-with-its-first-part": 11,
        "pack-not-synced": 8,
        "part-before-not-needed": 10,
        "parts-not-looked-for": 9,
        "settled-as-inserted": 6,
        "silent-loss": 11,
        "time-not-carried": 9,
        "unnoted-taken-for-beyond": 0,
    },
    slow_mutants=(
        "begins-at-what-is-lacking",
        "consumer-of-unnoted-entries",
        "consumers-need-nothing",
        "drop-of-open-parts",
        "failed-like-settled",
        "fetched-parts-not-marked",
        "hole-not-noticed",
        "later-loss-not-looked-at",
        "lines-of-consumers-forgotten",
        "loss-of-covers-not-looked-at",
        "merge-gives-rows",
        "new-rows-of-killed-mutation",
        "off-despite-consumer",
        "old-inserts-not-looked-up",
        "open-parts-change",
        "open-parts-not-read",
        "pack-goes-with-its-first-part",
        "part-before-not-needed",
        "parts-not-looked-for",
        "settled-as-inserted",
        "silent-loss",
        "time-not-carried",
    ),
)


@pytest.mark.parametrize("name", FEEDS.each_model())
def test_model_holds(name: str) -> None:
    FEEDS.assert_model_holds(name)


@pytest.mark.parametrize("name", FEEDS.each_mutant())
def test_mutant_is_caught(name: str) -> None:
    FEEDS.assert_mutant_is_caught(name)


def test_every_invariant_has_a_mutant() -> None:
    assert {mutant.invariant for mutant in FEEDS.mutants} == set(DESCRIPTIONS)
