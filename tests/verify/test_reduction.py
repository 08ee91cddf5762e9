"""Joining steps changes how many states there are, and nothing that a verdict depends on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replitree_verify.engine.checker import Checker
from replitree_verify.engine.explore import Explored, explore
from replitree_verify.engine.initial import first_world
from replitree_verify.engine.moves import Expansion, World
from replitree_verify.engine.space import Space
from replitree_verify.models import MODELS
from replitree_verify.mutants.catalog import MUTANTS
from replitree_verify.traces.trace import state_of
from replitree_verify.world.faults import Fault
from replitree_verify.world.model import Model

SMALL: dict[str, dict[Fault, int]] = {
    "insert_one_token": {Fault.UNKNOWN: 1, Fault.CRASH: 1},
    "insert_groups": {Fault.UNKNOWN: 1, Fault.CRASH: 1},
    "pull_gap": {Fault.STALE: 1},
    "fetch_partitions": {Fault.CRASH: 1},
    "restart_anywhere": {Fault.UNKNOWN: 1, Fault.CRASH: 1},
    "session_ends": {Fault.EXPIRY: 1},
    "replaced_insert": {Fault.EXPIRY: 1},
    "merge_differs": {Fault.DIFFERS: 1},
    "mutate_merging": {Fault.DISK: 1, Fault.CRASH: 1},
    "ids_clean_clean": {Fault.UNKNOWN: 1},
    "results_killed": {},
    "restore_join": {},
    "read_linearizable": {Fault.STALE: 1},
    "read_crash": {Fault.CRASH: 1},
    "stored_doubt": {Fault.UNKNOWN: 1},
    "stored_left_expiry": {Fault.EXPIRY: 1},
    "stored_taken": {Fault.FETCH: 1},
    "stored_drop_crash": {Fault.CRASH: 1},
    "stored_drop_attempt": {Fault.CRASH: 1},
    "stored_borrowed": {},
    "stored_lost_moved": {},
    "stored_three": {},
    "stored_twice": {Fault.CRASH: 1},
    "stored_fsck_write": {},
    "stored_fsck_leave": {},
    "stored_fsck_again": {},
    "stored_found_store": {Fault.STORE: 1},
    "stored_open": {Fault.UNKNOWN: 1},
    "stored_merge_paused": {},
    "stored_mutate": {},
    "upload_crash": {Fault.CRASH: 1},
    "upload_doubt": {Fault.UNKNOWN: 1},
    "upload_store": {Fault.STORE: 1},
    "moved_both": {},
    "moved_doubt": {Fault.UNKNOWN: 1},
    "taken_crash": {Fault.CRASH: 1},
    "home_mended": {},
    "home_borrowed": {},
}
"""Fewer faults than in the models, so that the full space stays small."""


def small(name: str) -> Model:
    return replace(MODELS[name], faults=SMALL[name])


def ends(explored: Explored) -> set[str]:
    """Return the quiet states, but for what clients were told: a crash before an answer is covered by the crash after it."""
    checker = Checker(explored.space)
    texts = ("\n".join(state_of(checker.look(world))) for world in explored.quiet)
    return {text.partition("\nclient")[0] for text in texts}


AT_NIGHT = (
    "insert_one_token", "insert_groups", "restart_anywhere", "pull_gap", "replaced_insert", "stored_twice", "stored_mutate",
    "moved_doubt", "home_mended", "upload_doubt", "stored_doubt", "stored_open",
)  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.nightly if name in AT_NIGHT else ()) for name in SMALL]
)
def test_verdict_probes_and_ends_are_the_same_without_reduction(name: str) -> None:
    reduced, full = explore(small(name)), explore(small(name), reduce=False)
    assert reduced.violation is full.violation is None
    assert reduced.states < full.states
    assert reduced.probes == full.probes
    assert ends(reduced) == ends(full)


@pytest.mark.parametrize(
    "name",
    [
        "no-epoch-check",
        "blind-retry-after-unknown",
        "staging-swept-too-early",
        "sweep-without-looking",
        "node-before-file",
        "read-without-sync",
    ],
)
def test_mutant_breaks_the_same_without_reduction(name: str) -> None:
    mutant = MUTANTS[name]
    full = explore(MODELS[mutant.model], mutant.stages, reduce=False)
    assert full.violation is not None
    assert full.violation.startswith(f"{mutant.invariant}:")


def test_fingerprints_overlook_nothing_that_whole_states_would_show() -> None:
    model = small("insert_one_token")
    space = Space(model)
    visited = {first_world(space)}
    level = list(visited)
    while level:
        after = dict.fromkeys(found[0] for world in level for found in space.successors(world)[0])
        level = [world for world in after if world not in visited]
        visited.update(level)
    assert len(visited) == explore(model).states


@pytest.mark.parametrize("name", ["pull_gap", "session_ends"])
def test_what_a_move_does_to_a_fingerprint_is_what_it_does_to_the_state(name: str) -> None:
    """Views that lag, requests in flight, sessions that end: all that is not plain is among these states."""
    space = Space(small(name))
    level, left = [first_world(space)], 2000
    while level and left > 0:
        found = [_expanded(space, world) for world in level]
        left -= len(level)
        level = list(dict.fromkeys(world for each in found for world in each))


def _expanded(space: Space, world: World) -> list[World]:
    step = Expansion(world, space.fingerprints.of(world), (), set())
    space.expand(step)
    worlds = [each[0] for each in step.found]
    assert step.count == len(worlds)
    assert step.fingerprints == [space.fingerprints.of(after) for after in worlds]
    return worlds
