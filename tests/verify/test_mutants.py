"""Every mutant is caught, by the invariant that it is there for, on a way of known length."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replitree_verify.engine.explore import explore
from replitree_verify.models import MODELS
from replitree_verify.mutants.catalog import MUTANTS
from replitree_verify.registry import counterexample
from replitree_verify.rules.invariants import NAMES
from replitree_verify.world.model import Model
from tests.verify import pins_longlife, pins_lost, pins_quorum, pins_read, pins_upkeep

STEPS = {
    "no-epoch-check": 6,
    "pointer-and-queue-not-atomic": 5,
    "acknowledge-before-commit": 1,
    "blind-retry-after-unknown": 5,
    "look-without-new-epoch": 7,
    "node-before-file": 8,
    "staging-swept-too-early": 7,
    "deduplication-in-two-steps": 6,
    "reveal-before-register": 9,
    "failed-when-unknown": 3,
    "gap-believed-at-once": 7,
    "group-staged-whole-again": 11,
    "split-group-staged-whole": 4,
    "replaced-takes-back": 12,
    "activation-at-any-version": 12,
    "staging-listed-after-activation": 30,
    "sweep-without-looking": 10,
    "unpulled-parts-set-aside": 25,
    "new-session-with-old-epoch": 35,
    "older-reload-wins": 24,
    "executed-unnoticed": 27,
    "merge-of-what-is-left": 24,
    "merge-keeps-lowest-mutation": 9,
    "covers-without-level": 8,
    "mutation-misses-merging": 7,
    "change-of-later-blocks": 19,
    "drop-before-earlier-insert": 16,
    "drop-during-merge": 17,
    "drop-before-covered-insert": 45,
    "drop-of-later-blocks": 30,
    "drop-of-named-parts": 28,
    "drop-leaves-covered-parts": 33,
    "detach-without-inserts": 14,
    "failure-means-missing": 14,
    "staging-removed-after-failure": 10,
    "merge-over-detached": 12,
    "drop-before-detach": 9,
    "result-fetched-into-nothing": 19,
    "covering-part-not-pulled": 9,
    "result-not-compared": 18,
    "result-made-again": 12,
    "sources-deregistered-first": 9,
    "mutation-lets-be": 9,
    "kill-of-published": 17,
    "command-without-id": 4,
    "token-taken-over-unversioned": 18,
    "stands-again-in-doubt": 16,
    "node-not-looked-for": 18,
    "deposed-leader-unchecked": 9,
    "forgets-too-early": 27,
    "older-pull-wins": 32,
    "results-not-compared-together": 18,
    "scope-since-after-look": 14,
    "scope-without-queue": 13,
    "scope-of-listed-only": 5,
    "scope-of-inserted-only": 12,
}
STEPS |= pins_longlife.STEPS | pins_lost.STEPS | pins_quorum.STEPS | pins_read.STEPS | pins_upkeep.STEPS
"""Steps of the shortest counterexample."""


def test_every_mutant_is_pinned() -> None:
    assert set(MUTANTS) == set(STEPS)


def test_every_invariant_that_a_bug_could_break_has_a_mutant() -> None:
    broken = {mutant.invariant for mutant in MUTANTS.values()}
    assert set(NAMES) - broken == {"I7", "STOP"}  # I7: I1 notices first; STOP: nothing but a take-over sets it


LONG = (
    *pins_longlife.LONG,
    *pins_lost.LONG,
    *pins_quorum.LONG,
    *pins_upkeep.LONG,
    *("drop-before-covered-insert", "drop-of-named-parts", "drop-leaves-covered-parts", "change-of-later-blocks"),
    *("executed-unnoticed", "forgets-too-early", "staging-listed-after-activation", "new-session-with-old-epoch"),
    *("older-reload-wins", "unpulled-parts-set-aside", "result-fetched-into-nothing", "node-not-looked-for"),
    *("stands-again-in-doubt", "lost-while-made", "token-of-another-freed", "recovering-pointers-read-once"),
)
"""Caught only after half a second of exploring, or more."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name in LONG else ()) for name in STEPS])
def test_mutant_is_caught(name: str) -> None:
    mutant = MUTANTS[name]
    with mutant.performing():
        explored = explore(MODELS[mutant.model], mutant.stages)
    assert explored.violation is not None
    assert explored.violation.partition(":")[0] == mutant.invariant
    assert len(explored.trace) == STEPS[name]
    assert counterexample(explored)[0].startswith("  1 ")


@pytest.mark.parametrize("name", ["look-without-new-epoch", "staging-swept-too-early", "replaced-takes-back"])
def test_mutant_is_not_caught_in_a_world_without_faults(name: str) -> None:
    """So it is the fault that shows the mutant, not something else that is wrong in it."""
    calm: Model = replace(MODELS[MUTANTS[name].model], faults={})
    assert explore(calm, MUTANTS[name].stages).violation is None
