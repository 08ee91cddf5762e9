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
from replitree_verify.pins import PINS
from replitree_verify.world.faults import Fault
from replitree_verify.world.model import Insert, Model
from tests.verify.pinned import each_of

STATES_PER_SECOND_MIN = 50_000
"""On one core, by its CPU time."""

CALIBRATION_S = 0.15
"""What `calibrate` takes on such a core."""


@pytest.mark.parametrize("name", each_of(MODELS))
def test_model_holds(name: str) -> None:
    explored, pin = explore(MODELS[name]), PINS[name]
    assert explored.violation is None
    assert explored.missing_probes == ()
    found = (explored.states, explored.transitions, explored.depth, len(explored.quiet))
    assert found == (pin.states, pin.transitions, pin.depth, pin.quiet)


@pytest.mark.parametrize(
    "name",
    [
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("restart_anywhere", "restore_crash")),
        "detach_insert",
        "lost_result",
    ],
)
def test_an_activation_may_take_back_what_is_covered_before_or_after_it_compares(name: str) -> None:
    explored = explore(MODELS[name], stages_with(find_patch("log_equivalent", "covered-forgotten-first")))
    assert explored.violation is None
    assert explored.missing_probes == ()


@pytest.mark.parametrize("begins_behind", [pytest.param(False, marks=pytest.mark.nightly), True])
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
