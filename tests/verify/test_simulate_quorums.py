"""Simulated clusters draw quorum inserts and reads of every level, and single seeds catch the mutants of both."""

from __future__ import annotations

import dataclasses
from random import Random

import pytest

from replitree_verify.mutants.catalog import MUTANTS
from replitree_verify.simulation.options import draw_options
from replitree_verify.simulation.simulate import simulate_seed

_MORE = ("quorums", "quorum", "patience", "give_ups", "reads")


def test_half_of_the_seeds_have_quorums_and_most_have_reads() -> None:
    drawn = [draw_options(Random(seed), Random(f"{seed}/more"), Random(0), Random(0)) for seed in range(200)]
    assert 90 < sum(options.quorums > 0 for options in drawn) < 150
    assert 110 < sum(options.reads > 0 for options in drawn) < 170
    assert all(2 <= options.quorum <= options.replicas for options in drawn)


def test_a_seed_draws_the_rest_whatever_it_draws_of_quorums_and_reads() -> None:
    def without(more: str) -> dict[str, object]:
        options = dataclasses.asdict(draw_options(Random(3), Random(more), Random(0), Random(0)))
        return {name: value for name, value in options.items() if name not in _MORE}

    assert without("a") == without("b")


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("acknowledged-from-absent-node", 12),
        ("settle-without-delete", 3),
        ("fail-without-delete", 12),
        ("counted-at-pull", 6),
        ("impatient-means-failed", 12),
        ("block-id-kept-after-fail", 12),
        ("retry-answers-before-quorum", 14),
        ("merge-of-open-parts", 7),
        ("read-without-sync", 81),
        ("end-of-log-before-commit", 264),
        ("read-at-own-pointer", 8),
        ("read-once-pulled", 1),
        ("read-shows-open", 14),
        ("sequential-shows-visible", 0),
    ],
)
def test_a_seed_catches_the_mutant(name: str, seed: int) -> None:
    run = simulate_seed(seed, MUTANTS[name].stages)
    assert run.violation is not None
    assert run.violation.startswith(f"{MUTANTS[name].invariant}:")


@pytest.mark.slow
def test_clients_of_a_long_run_do_not_fill_the_log_with_what_failed() -> None:
    run = simulate_seed(
        95, hours=24
    )  # for hours only one of five replicas lives, and its clients want a quorum of three

    assert run.violation is None
    assert run.probes["failed for good"] > 0
    assert run.entries < 1_000


@pytest.mark.slow
def test_rows_that_were_dropped_under_a_merge_need_no_quorum() -> None:
    run = simulate_seed(563, hours=24)  # blocks are dropped, and a later merge reaches over them

    assert run.violation is None
    assert run.probes["quorum settled"] > 0
