"""Every model is explored to its end, finds nothing wrong, and sees every rare branch that it is there for."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from replitree.protocol.core.part_set import PartSet
from replitree_verify.engine.checker import Checker
from replitree_verify.engine.explore import explore
from replitree_verify.engine.small_search import patched
from replitree_verify.models import MODELS
from replitree_verify.mutants.mutant import stages_with
from replitree_verify.outcomes import local
from replitree_verify.patches.patch import find_patch
from replitree_verify.world.faults import Fault
from replitree_verify.world.model import Insert, Model
from tests.verify import pins_longlife, pins_lost, pins_quorum, pins_read, pins_upkeep

PINNED = {
    "insert_one_token": (257329, 581310, 38, 702),
    "insert_two_tokens": (72985, 155290, 35, 276),
    "insert_two_lanes": (9087, 16193, 108, 244),
    "insert_groups": (119925, 255981, 42, 296),
    "insert_split": (2662, 4985, 23, 69),
    "insert_session": (140016, 290642, 104, 76),
    "insert_in_doubt": (4178, 5447, 51, 33),
    "pull_and_execute": (317232, 1060899, 64, 24),
    "pull_gap": (4042, 8838, 29, 28),
    "pull_batch": (122580, 452032, 50, 12),
    "fetch_partitions": (5292, 12869, 32, 11),
    "disk_fails": (8769, 22139, 42, 20),
    "restart_anywhere": (12607, 30034, 56, 50),
    "session_ends": (160318, 433048, 122, 15),
    "reads_fail": (36099, 82061, 128, 75),
    "session_ends_two": (44163, 129705, 95, 7),
    "session_ends_pulling": (3618, 7079, 115, 8),
    "replaced_insert": (244384, 698065, 71, 37),
    "replaced_worker": (84338, 291204, 90, 13),
    "replaced_after_crash": (18148, 36816, 43, 34),
    "combined": (48476, 155240, 38, 12),
    "together": (15939, 48845, 24, 86),
    "together_lag": (5118, 14627, 18, 120),
    "together_merge_lag": (3199, 7169, 18, 111),
    "together_crash": (5041, 14175, 22, 55),
    "together_client_lag": (12821, 37251, 25, 108),
    "together_client_crash": (14426, 37987, 31, 191),
    "merge_merge": (45176, 152622, 35, 32),
    "merge_one": (2065, 4279, 34, 4),
    "merge_crash": (273497, 826028, 62, 14),
    "merge_differs": (5543, 11428, 36, 12),
    "merge_made_again": (64019, 179320, 49, 16),
    "merge_insert": (22408, 68087, 81, 9),
    "merge_behind": (11892, 32290, 69, 2),
    "mutate_insert": (96744, 332234, 61, 2),
    "mutate_twice": (24431, 52932, 30, 150),
    "mutate_merge": (24842, 76092, 53, 4),
    "mutate_merging": (513, 649, 36, 6),
    "mutate_kill": (402974, 1357099, 79, 18),
    "mutate_kill_together": (8652, 20088, 65, 12),
    "mutate_crash": (35893, 73900, 44, 18),
    "mutate_later": (139676, 498428, 38, 3),
    "mutate_then_merge": (1878, 3934, 32, 3),
    "scope_behind": (15636, 36143, 45, 13),
    "scope_merge": (107842, 293595, 60, 33),
    "scope_changed": (315, 499, 31, 4),
    "drop_insert": (364565, 1146375, 101, 8),
    "drop_merge": (1614, 2832, 33, 19),
    "drop_merge_pulled": (186553, 505960, 353, 58),
    "drop_behind": (590380, 1702922, 98, 12),
    "drop_covered": (122888, 390240, 88, 10),
    "drop_range": (8172, 25738, 35, 4),
    "detach_insert": (7304, 19944, 75, 3),
    "detach_failing": (154, 189, 25, 4),
    "drop_failing": (14618, 28951, 100, 153),
    "detach_overwrite": (9640, 22953, 62, 18),
    "detach_hole": (18126, 56290, 56, 9),
    "detach_join": (39306, 105937, 100, 4),
    "detach_drop": (8119, 18881, 58, 18),
    "insert_again": (1439, 2712, 31, 6),
    "overwrite": (145822, 562914, 47, 8),
    "election": (219191, 610044, 71, 64),
    "election_crash": (98615, 290048, 51, 92),
    "election_merges": (47668, 140680, 87, 17),
    "leader_replaced": (15658, 36590, 64, 28),
}
PINNED |= pins_longlife.PINNED | pins_lost.PINNED | pins_quorum.PINNED | pins_read.PINNED | pins_upkeep.PINNED
"""States, transitions, depth, quiet states.  A number that changes although nothing in the protocol did is a finding."""

NIGHTLY = {
    **pins_longlife.NIGHTLY,
    **pins_lost.NIGHTLY,
    **pins_quorum.NIGHTLY,
    **pins_upkeep.NIGHTLY,
    "insert_in_doubt_again": (283542, 589794, 59, 182),
    "combined_tokens": (483542, 1744908, 53, 42),
    "combined_doubt": (1934860, 7252660, 286, 42),
    "drop_merge_doubt": (896427, 2797073, 364, 371),
    "forget_running": (611585, 2048250, 108, 21),
    "drop_overtakes": (132245, 444165, 83, 14),
    "together_crash_lag": (37111, 107773, 32, 382),
    "together_faults": (165197, 530712, 94, 374),
    "together_merge_faults": (388742, 1428727, 110, 616),
    "together_fresh": (80532, 250827, 40, 188),
}

SLOW = (
    *pins_longlife.SLOW,
    *pins_lost.SLOW,
    *pins_quorum.SLOW,
    *pins_read.SLOW,
    *pins_upkeep.SLOW,
    *("insert_two_tokens", "session_ends", "pull_batch", "merge_crash", "mutate_kill", "mutate_later"),
    *("drop_insert", "drop_merge_pulled", "drop_behind", "drop_covered", "overwrite", "pull_and_execute"),
    *("insert_one_token", "insert_groups", "insert_session", "replaced_insert", "mutate_insert", "reads_fail"),
    *("mutate_crash", "mutate_merge", "election", "session_ends_two", "election_crash", "election_merges"),
    *("detach_hole", "detach_join", "restart_anywhere", "merge_merge", "merge_made_again", "replaced_worker"),
    "combined",
    *("together_lag", "together_merge_lag", "together_crash"),
    *("insert_two_lanes", "insert_in_doubt", "merge_insert", "merge_behind", "mutate_twice"),
    *("recover_merge", "recover_pointer", "quorum_all_alone"),
)
"""Seconds each: not in the fast gate.  Most of their mutants are, and so are smaller models with the same procedures."""

NIGHTLY_STATES = 36_000
"""What has more states is explored at night only, its mutants and smaller models with the same procedures more often."""

LARGEST_INSERT = "insert_groups"
"""Explored every time, however large."""

NIGHTLY_REDUCED = ("together", "together_client_crash", "together_client_lag")
"""Those that have few states only because most are left out, which takes as long."""

STATES_PER_SECOND_MIN = 50_000
"""On one core, by its CPU time."""

CALIBRATION_S = 0.15
"""What `calibrate` takes on such a core."""


def test_every_model_is_pinned() -> None:
    assert {name for name, model in MODELS.items() if not model.nightly} == set(PINNED)
    assert {name for name, model in MODELS.items() if model.nightly} == set(NIGHTLY)


def _by_size(name: str) -> object:
    at_night = (PINNED[name][0] > NIGHTLY_STATES and name != LARGEST_INSERT) or name in NIGHTLY_REDUCED
    return pytest.param(name, marks=pytest.mark.nightly if at_night else pytest.mark.slow if name in SLOW else ())


@pytest.mark.parametrize("name", [_by_size(name) for name in PINNED])
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


@pytest.mark.parametrize("name", ["restart_anywhere", "detach_insert", "restore_crash", "lost_result"])
def test_an_activation_may_take_back_what_is_covered_before_or_after_it_compares(name: str) -> None:
    explored = explore(MODELS[name], stages_with(find_patch("log_equivalent", "covered-forgotten-first")))
    assert explored.violation is None
    assert explored.missing_probes == ()


@pytest.mark.parametrize("begins_behind", [False, True])
def test_an_insert_is_lost_where_a_session_may_begin_with_an_older_state(*, begins_behind: bool) -> None:
    """Why the first request of a session is a sync: a new client may be connected to a server that lags."""
    model = Model(
        "insert_sessions",
        "the answer to an insert is lost, a server lags, and the sessions of the insert's replica end",
        (("r1", "r1"), ("r2", "r2")),
        (Insert("r1", ((1, "a"),)),),
        {Fault.UNKNOWN: 1, Fault.EXPIRY: 2, Fault.STALE: 1},
        started=("r1", "r2"),
        begins_behind=begins_behind,
        struck=((Fault.UNKNOWN, "r1"), (Fault.EXPIRY, "r1"), (Fault.STALE, "r2")),
    )
    violation = explore(model).violation
    assert violation == ("I2: no replica has the rows of all_0_0_0, which the log has" if begins_behind else None)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["insert_one_token", "quorum_all"])
def test_explorer_is_fast_enough(name: str) -> None:
    """A core that is shared, or slow, is asked for as much less as it takes longer for something of the same kind."""
    before = calibrate()
    explored = explore(MODELS[name])
    slower = max(1.0, (before + calibrate()) / 2 / CALIBRATION_S)
    assert explored.states / explored.cpu_seconds * slower > STATES_PER_SECOND_MIN


def calibrate() -> float:
    """Return the CPU seconds that a core takes for tuples, dicts and integers, which is what an exploration consists of."""
    begun, known = time.process_time(), dict[tuple[int, ...], int]()
    for number in range(300_000):
        world = (number, number + 1, number % 7, number % 5)
        known[world] = known.get((number - 1, number, 0, 0), 0) ^ hash(world)
    return time.process_time() - begun


def test_faults_strike_only_the_seats_that_are_named() -> None:
    model = replace(MODELS["quorum_alone"], struck=((Fault.CRASH, "r2"),))
    explored = explore(model)
    checker = Checker(explored.space)
    processes = [
        {name: memory.incarnation for name, memory in checker.look(world).memories.items()} for world in explored.quiet
    ]
    assert {each["r1"] for each in processes} == {0}
    assert {each["r2"] for each in processes} == {0, 1}
    assert explored.states < explore(MODELS["quorum_alone"]).states


@pytest.mark.slow
def test_what_a_detach_has_taken_out_is_not_waited_for_where_its_neighbours_were_merged_since() -> None:
    """Nobody has the part any more: its insert would be waited for by the detach, and that by the merged part."""
    with patched({(local, "to_be_detached"): lambda _: PartSet()}):
        explored = explore(MODELS["detach_join"])
    assert not explored.quiet, "no state comes to rest: what can't be had is tried again for ever"
