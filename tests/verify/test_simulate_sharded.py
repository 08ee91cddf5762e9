"""Simulated sharded tables tear, lose and double nothing, and the same seed is the same run."""

from __future__ import annotations

from collections import Counter

import pytest

from replitree.errors import BadInput
from replitree_verify.simulation.sharded.sharded_options import (
    COMMANDS_FROM,
    GROUPS_FROM,
    KINDS_FROM,
    MOVES_FROM,
    OWN_FROM,
    draw_sharded,
)
from replitree_verify.simulation.sharded.sharded_run import ShardedSimulation
from replitree_verify.small_models import simulate_sharded
from tests.cli.conftest import Run, run

__all__ = ["run"]

SEEDS = {2: (3, 4, 10, 11, 14, 20, 22, 31, 36, 41, 44, 45, 46), 3: (26, 29, 30, 39)}
"""By the number of shards: they see every rare branch below, some of them several times."""

NIGHTLY_SEEDS = 1_000

RARE = (
    "consistent cut", "crash", "creation: exists", "creation: half-made", "cut closed", "cut: NotShown",
    "insert in doubt", "joint closed", "joint duplicate", "joint insert tried again", "joint: Duplicate",
    "joint: Inserted", "joint: JointInserted", "joint: MapChanged", "joint: MaybeInserted", "joint: NotInserted",
    "joint: OwnGone", "joint: ParticipantGone", "linearizable cut", "prepare closed", "quorum failed",
    "quorum settled", "rolled over", "session ended", "stale read", "table created", "table dropped", "torn read",
    "unknown: applied, answer lost", "unknown: no answer",
)  # fmt: skip
"""What the seeds must have seen."""


def test_seeds_find_nothing_and_see_the_rare_branches() -> None:
    seen = Counter[str]()
    for shards, seeds in SEEDS.items():
        for seed in seeds:
            found = ShardedSimulation(seed, shards).run()
            assert found.violation is None, (shards, seed)
            seen.update(found.probes.keys())
    assert [probe for probe in RARE if not seen[probe]] == []


@pytest.mark.parametrize("first", [OWN_FROM, COMMANDS_FROM])
def test_clients_of_later_seeds_read_what_they_have_inserted_and_command_all_shards(first: int) -> None:
    found = simulate_sharded(first, first + 4, 2)
    assert found.violations == ()
    assert ("command: ProposedInShards" in found.probes) is (first == COMMANDS_FROM)


def test_commands_of_all_kinds_come_to_all_shards_in_later_seeds() -> None:
    found = simulate_sharded(KINDS_FROM + 9, KINDS_FROM + 16, 2)
    assert found.violations == ()
    assert all(f"{kind} in all shards" in found.probes for kind in ("mutation", "drop", "alter", "keep"))


def test_buckets_move_in_later_seeds() -> None:
    found = simulate_sharded(MOVES_FROM, MOVES_FROM + 8, 2)
    assert found.violations == ()
    assert all(probe in found.probes for probe in ("moves begun: done", "batch prepared", "moves turned back: done"))


def test_servers_commit_groups_of_inserts_for_all_shards_in_later_seeds() -> None:
    found = simulate_sharded(GROUPS_FROM, GROUPS_FROM + 12, 2)
    assert found.violations == ()
    seen = ("group of 1", "group of 2", "group of 3", "group: JointInserted", "group: MapChanged", "batch prepared")
    assert [probe for probe in seen if probe not in found.probes] == []


@pytest.mark.nightly
@pytest.mark.parametrize("shards", [2, 3])
@pytest.mark.parametrize("first", [0, OWN_FROM, COMMANDS_FROM, KINDS_FROM, MOVES_FROM, GROUPS_FROM])
def test_thousands_of_seeds_find_nothing(first: int, shards: int) -> None:
    assert simulate_sharded(first, first + NIGHTLY_SEEDS, shards, workers=2).violations == ()


@pytest.mark.parametrize(
    ("mutant", "seed", "breaks"),
    [
        ("blind-commit-after-unknown", 10, "J3"),
        ("ended-in-some-shards", 1, "J2"),
        ("map-not-checked", 3, "D6"),
        ("own-write-above-the-cut", OWN_FROM, "D10"),
        ("commands/in-two-commits", COMMANDS_FROM + 1, "D5"),
        ("moves/insert-map-not-checked", MOVES_FROM, "D6"),
    ],
)
def test_a_seed_catches_the_mutant(mutant: str, seed: int, breaks: str) -> None:
    found = simulate_sharded(seed, seed + 1, 2, mutant=mutant)
    assert [each["invariant"] for each in found.violations] == [breaks]


def test_the_same_seed_is_the_same_run_and_the_seeds_of_more_shards_are_others() -> None:
    one, same, other = (ShardedSimulation(1, shards).run() for shards in (2, 2, 3))
    assert one.digest == same.digest != other.digest
    assert draw_sharded(1, 2, 3)[1].replicas == 3
    assert {draw_sharded(seed, 2, 0)[1].replicas for seed in range(20)} == {2, 3}


def test_what_does_not_go_with_shards_is_refused(run: Run) -> None:
    for arguments, reason in (
        (("--shards", "2", "--hours", "1"), "--shards goes with neither"),
        (("--shards", "2", "--tablets"), "--shards goes with neither"),
        (("--replicas", "2"), "say --shards, too"),
        (("--shards", "2", "--mutant", "tail-believed"), "sharded tables have no mutant"),
    ):
        ended = run("verify", "simulate", "--seeds", "0:1", *arguments)
        assert ended.status != 0
        assert reason in ended.err.replace("\n", " ")
    assert "no violation" in run("verify", "simulate", "--seeds", "0:1", "--shards", "2", "--replicas", "2").out
    with pytest.raises(BadInput, match="0 workers"):
        simulate_sharded(0, 1, 2, workers=0)
