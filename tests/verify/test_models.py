"""Every model is explored to its end, finds nothing wrong, and sees every rare branch that it is there for."""

from __future__ import annotations

import time

import pytest

from replitree.verify.explore import explore
from replitree.verify.models import MODELS

PINNED = {
    "insert_one_token": (242885, 548678, 38, 702),
    "insert_two_tokens": (67394, 143408, 35, 276),
    "insert_two_lanes": (8857, 15683, 107, 244),
    "insert_groups": (108005, 230728, 42, 296),
    "insert_session": (121435, 250835, 92, 76),
    "insert_in_doubt": (2892, 3858, 34, 57),
    "pull_and_execute": (317209, 1060854, 64, 24),
    "pull_gap": (4042, 8838, 29, 28),
    "pull_batch": (122580, 452032, 50, 12),
    "fetch_partitions": (5292, 12869, 32, 11),
    "disk_fails": (8769, 22139, 42, 20),
    "restart_anywhere": (12603, 30028, 56, 50),
    "session_ends": (160048, 432525, 122, 15),
    "reads_fail": (31764, 72056, 116, 75),
    "session_ends_two": (44163, 129705, 95, 7),
    "session_ends_pulling": (3618, 7079, 115, 8),
    "replaced_insert": (235093, 671605, 71, 36),
    "replaced_worker": (84338, 291204, 90, 13),
    "replaced_after_crash": (18108, 36716, 43, 34),
    "combined": (48476, 155240, 38, 12),
    "merge_merge": (45176, 152622, 35, 32),
    "merge_crash": (307275, 938648, 62, 14),
    "merge_differs": (5247, 10912, 35, 12),
    "merge_insert": (22408, 68087, 81, 9),
    "merge_behind": (11892, 32290, 69, 2),
    "mutate_insert": (120591, 412836, 60, 2),
    "mutate_merge": (50367, 165357, 53, 3),
    "mutate_kill": (458658, 1547769, 86, 18),
    "mutate_crash": (87152, 187918, 44, 18),
    "mutate_later": (122000, 435618, 36, 3),
    "mutate_then_merge": (1794, 3780, 29, 3),
    "drop_insert": (364565, 1146375, 101, 8),
    "drop_merge_pulled": (171866, 457228, 364, 58),
    "drop_behind": (598781, 1730154, 100, 12),
    "drop_covered": (123012, 390546, 88, 10),
    "drop_range": (5232, 16176, 35, 3),
    "insert_again": (1439, 2712, 31, 6),
    "overwrite": (145822, 562914, 47, 8),
}
"""States, transitions, depth, quiet states.  A number that changes although nothing in the protocol did is a finding."""

NIGHTLY = {
    "insert_in_doubt_again": (168405, 355114, 41, 214),
    "combined_tokens": (483542, 1744908, 53, 42),
    "combined_doubt": (6483686, 24483996, 266, 274),
    "drop_merge": (0, 0, 0, 0),
    "drop_overtakes": (0, 0, 0, 0),
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
