"""Simulated clusters lose nothing and agree in the end, and the same seed is the same run."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from replitree_verify import registry
from replitree_verify.mutants.catalog import MUTANTS
from replitree_verify.patches.patch import find_patch
from replitree_verify.simulation.options import FEEDS_FROM, STREAMS_FROM, draw_options, with_feed, with_upkeep
from replitree_verify.simulation.simulate import simulate, simulate_seed, trace_of_seed

SEEDS = (*range(19, 24), 25, 26, *range(28, 32), *range(36, 39), 40, 42, 44, 64, 104)
"""They see every rare branch, some of them several times; those in between take up to 1.5 s each and see no other one."""

MUTANT_SEEDS = range(200)
NIGHTLY_SEEDS = range(3_000)

RARE = (
    "acknowledged after a retry", "activated again", "client heard unknown", "committed staging kept", "crash",
    "dead owner replaced", "disk failed", "doubt settled: another had the token",
    "doubt settled: in the log", "duplicate", "state loaded again", "executor closed", "fetch failed",
    "fetched", "fetched elsewhere", "insert closed", "insert repeated by token", "life closed", "link cut both ways",
    "link cut one way", "own part published by execute", "part broken", "pause", "pointer moved", "puller closed",
    "queue moved", "session ended", "staging removed", "stale read", "token sent twice", "torn read",
    "unknown: applied, answer lost", "unknown: no answer", "counted", "eventual read", "failed for good", "linearizable read",
    "quorum moved meanwhile", "quorum settled", "quorum failed", "read as of a position", "retry waited", "sequential read",
    "mutation with a condition", "declaration refused", "declared lost", "made empty", "noted broken", "rows lost everywhere",
    "deposed", "id forgotten", "leads", "log has gone on", "rolled over", "table dropped",
)  # fmt: skip
"""What the seeds of the fast gate must have seen."""

RAREST = (
    "command known already", "covered parts forgotten", "execution fenced", "gap looked at again", "other content thrown away",
    "doubt settled: committed again", "parts kept aside", "noted whole", "pull fenced", "result forgotten", "result found",
    "activation refused", "duplicate within a group", "insert fenced",
)  # fmt: skip
"""What only some thousand seeds are sure to see."""


def test_seeds_find_nothing_and_see_the_rare_branches() -> None:
    simulated = simulate(SEEDS)
    assert simulated.violations == []
    assert [probe for probe in RARE if not simulated.probes[probe]] == []


@pytest.mark.nightly
def test_thousands_of_seeds_find_nothing_and_see_the_rarest_branches() -> None:
    simulated = registry.simulate(NIGHTLY_SEEDS.start, NIGHTLY_SEEDS.stop, workers=2)
    assert simulated.violations == ()
    assert [probe for probe in (*RARE, *RAREST) if probe not in simulated.probes] == []


@pytest.mark.parametrize(
    "later",
    [
        pytest.param((*range(8), 9), id="first"),
        # They see no other branch, and take twice as long as all the others.
        pytest.param((8, 10, 11), id="dear", marks=pytest.mark.slow),
    ],
)
def test_seeds_with_streams_find_nothing_and_insert_each_batch_once(later: tuple[int, ...]) -> None:
    simulated = simulate(STREAMS_FROM + each for each in later)
    assert simulated.violations == []
    assert [
        probe for probe in ("batch inserted", "batch repeated", "stream set back") if not simulated.probes[probe]
    ] == []


def test_half_of_the_later_seeds_have_streams() -> None:
    options = draw_options(Random(3), Random("more"), Random(0), Random(0))
    assert not any(with_upkeep(options, seed).streams for seed in range(400))
    drawn = [with_upkeep(options, seed) for seed in range(STREAMS_FROM, STREAMS_FROM + 400)]
    assert 160 < sum(each.streams > 0 for each in drawn) < 240
    assert all(each.streams <= each.clients for each in drawn)


def test_a_covered_registration_does_not_keep_parts_from_being_declared_lost() -> None:
    run = simulate_seed(1953)
    assert run.violation is None
    assert run.probes["covered parts forgotten"]
    assert run.probes["declared lost"]


def test_an_id_may_go_with_lost_rows_whose_insert_has_left_the_log() -> None:
    run = simulate_seed(2466)
    assert run.violation is None
    assert run.options.window == (3, 3)
    assert run.probes["log cleaned"]
    assert run.probes["declared lost"]


def test_a_part_that_broke_before_its_registration_took_place_is_declared_lost() -> None:
    assert simulate_seed(9313).violation is None


def test_a_command_whose_id_was_forgotten_meanwhile_is_in_the_log_where_either_try_put_it() -> None:
    assert simulate_seed(4942).violation is None


def test_a_run_ends_when_what_was_mended_is_noted() -> None:
    assert simulate_seed(9673).violation is None


def test_a_part_of_a_killed_mutation_may_lose_rows_twice() -> None:
    run = simulate_seed(3338)
    assert run.violation is None
    assert run.probes["mutation killed"]


def test_a_fifth_of_the_seeds_loses_rows_and_draws_the_rest_all_the_same() -> None:
    drawn = [draw_options(Random(3), Random("more"), Random(f"{seed}/lost parts"), Random(0)) for seed in range(400)]
    assert 50 < sum(options.losses > 0 for options in drawn) < 110
    assert len({replace(options, losses=0) for options in drawn}) == 1


def test_some_seeds_have_upkeep_and_half_drop_their_table() -> None:
    options = draw_options(Random(3), Random("more"), Random(0), Random(0))
    drawn = [with_upkeep(options, seed) for seed in range(400)]
    for has_it in ("elects", "rolls", "forgets", "window"):
        assert 60 < sum(bool(getattr(each, has_it)) for each in drawn) < 150
    assert 160 < sum(each.is_dropped for each in drawn) < 240
    assert sum(replace(each, is_dropped=False) == options for each in drawn) > 200


@pytest.mark.parametrize(
    ("name", "seed", "breaks"),
    [
        ("parent-left-open", 3, "I2"),
        ("insert-below-closed-parent", 10, "I2"),
        ("newest-ids-forgotten", 7, "WINDOW"),
        ("result-forgotten-without-asking", 8, "ROWS"),
        ("stands-again-in-doubt", 7, "CONVERGES"),
    ],
)
def test_a_seed_catches_a_mutant_of_upkeep(name: str, seed: int, breaks: str) -> None:
    violation = simulate_seed(seed, MUTANTS[name].stages).violation
    assert violation is not None
    assert violation.startswith(f"{breaks}:")


def test_a_part_whose_kill_came_too_late_may_lose_rows() -> None:
    run = simulate_seed(1435)
    assert run.violation is None
    assert run.probes["declared lost"]


def test_two_lost_sources_of_one_broken_part_do_not_keep_a_replica_from_going_on() -> None:
    run = simulate_seed(374)
    assert run.violation is None
    assert run.probes["declared lost"] > 1


def test_a_seed_is_a_run() -> None:
    one, other = simulate_seed(7), simulate_seed(7)
    assert one == other
    assert one.digest != simulate_seed(8).digest


def test_a_trace_is_the_same_run_told_line_by_line() -> None:
    run, lines = trace_of_seed(7)
    assert run.digest == simulate_seed(7).digest
    assert any("commit" in line and "-> applied as log-0" in line for line in lines)


@pytest.mark.parametrize(
    ("name", "breaks"),
    [
        pytest.param("no-epoch-check", "I9", marks=pytest.mark.slow),
        ("acknowledge-before-commit", "I2"),
        ("node-before-file", "FILES"),
        ("reveal-before-register", "SIGHT"),
        ("deduplication-in-two-steps", "I3"),
        ("failed-when-unknown", "FAILED"),
        pytest.param("staging-swept-too-early", "I2", marks=pytest.mark.slow),
        ("executed-unnoticed", "CONVERGES"),
    ],
)
def test_the_simulator_notices_mutants_too(name: str, breaks: str) -> None:
    runs = (simulate_seed(seed, MUTANTS[name].stages) for seed in MUTANT_SEEDS)
    assert any(run.violation is not None and run.violation.startswith(f"{breaks}:") for run in runs)


def test_a_batch_below_the_last_one_is_a_duplicate_of_what_follows_it() -> None:
    run = simulate_seed(10_279)
    assert run.violation is None
    assert run.probes["batch repeated"]


def test_half_of_the_seeds_from_a_later_one_on_have_readers_of_the_feed() -> None:
    options = draw_options(Random(3), Random("more"), Random(0), Random(0))
    assert not any(with_feed(options, seed).feeds for seed in range(FEEDS_FROM - 400, FEEDS_FROM))
    drawn = [with_feed(options, seed) for seed in range(FEEDS_FROM, FEEDS_FROM + 400)]
    assert 160 < sum(each.feeds > 0 for each in drawn) < 240
    assert all(each.tags and not (each.corrupt or each.losses or each.leaves) for each in drawn if each.feeds)


def test_readers_of_the_feed_of_a_cluster_get_the_difference_of_what_reads_show() -> None:
    simulated = simulate((30_010, 30_018))
    assert simulated.violations == []
    kinds = ("insert", "delete", "mutate")
    assert [kind for kind in kinds if not simulated.probes[f"feed: {kind}"]] == []


def test_readers_of_the_feed_of_a_cluster_notice_an_open_insert_that_is_given() -> None:
    with find_patch("feeds", "emitted-while-open").mutated():
        simulated = simulate((30_010, 30_012))
    assert {what.partition(":")[0] for _, what in simulated.violations} == {"F1"}
