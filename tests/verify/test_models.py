"""Every model is explored to its end, finds nothing wrong, and sees every rare branch that it is there for."""

from __future__ import annotations

import time

import pytest

from replitree.verify.explore import explore
from replitree.verify.models import MODELS

PINNED = {
    "insert_one_token": (194593, 443654, 37, 702),
    "insert_two_tokens": (54326, 117422, 37, 276),
    "insert_two_lanes": (7852, 13986, 106, 244),
    "insert_groups": (87659, 189250, 43, 296),
    "insert_session": (76569, 158937, 85, 76),
    "insert_in_doubt": (2892, 3858, 34, 57),
    "pull_and_execute": (146739, 482026, 57, 34),
    "pull_gap": (3556, 7878, 27, 28),
    "pull_batch": (90664, 329620, 46, 12),
    "fetch_partitions": (3190, 7451, 29, 11),
    "disk_fails": (6761, 17090, 39, 20),
    "restart_anywhere": (7435, 16933, 47, 62),
    "session_ends": (124325, 331140, 110, 20),
    "reads_fail": (22862, 51490, 104, 81),
    "session_ends_two": (36976, 107370, 85, 9),
    "replaced_insert": (203847, 579245, 65, 36),
    "replaced_worker": (76141, 257847, 81, 14),
    "replaced_after_crash": (14885, 30299, 41, 34),
    "combined": (33284, 105154, 34, 12),
}
"""States, transitions, depth, quiet states.  A number that changes although nothing in the protocol did is a finding."""

NIGHTLY = {
    "insert_in_doubt_again": (151549, 321588, 40, 214),
    "combined_tokens": (359218, 1281178, 48, 42),
    "combined_doubt": (6483686, 24483996, 266, 274),
}

STATES_PER_SECOND_MIN = 30_000
"""On one core, in the largest insert model (CPU time, so that a busy machine does not matter)."""


def test_every_model_is_pinned() -> None:
    assert {name for name, model in MODELS.items() if not model.nightly} == set(PINNED)
    assert {name for name, model in MODELS.items() if model.nightly} == set(NIGHTLY)


@pytest.mark.parametrize("name", PINNED)
def test_model_holds(name: str) -> None:
    _assert_holds(name, PINNED[name])


@pytest.mark.nightly
@pytest.mark.parametrize("name", NIGHTLY)
def test_large_model_holds(name: str) -> None:
    _assert_holds(name, NIGHTLY[name])


def _assert_holds(name: str, pinned: tuple[int, int, int, int]) -> None:
    explored = explore(MODELS[name])
    assert explored.violation is None
    assert explored.missing_probes == ()
    assert (explored.states, explored.transitions, explored.depth, len(explored.quiet)) == pinned


@pytest.mark.nightly
def test_explorer_is_fast_enough() -> None:
    begun = time.process_time()
    explored = explore(MODELS["insert_one_token"])
    assert explored.states / (time.process_time() - begun) > STATES_PER_SECOND_MIN
