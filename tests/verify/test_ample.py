"""Taking ample steps at once leaves most states out, and nothing that a verdict depends on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeAlias

import pytest

from replitree.verify.ample import Ample
from replitree.verify.explore import explore
from replitree.verify.initial import first_world
from replitree.verify.model import Fault, Model
from replitree.verify.models import MODELS
from replitree.verify.mutants import MUTANTS
from replitree.verify.registry import counterexample
from replitree.verify.resources import Resources
from replitree.verify.space import TREE, Space, World
from tests.verify.test_reduction import ends

FEWER = {
    "quorum_two": 16,
    "quorum_three": 40,
    "quorum_all": 40,
    "quorum_crash": 10,
    "quorum_doubt": 10,
    "quorum_expiry": 11,
    "quorum_stale": 11,
    "quorum_retry": 13,
    "quorum_merge": 11,
    "quorum_drop": 8,
    "quorum_mutate": 9,
    "quorum_recover": 8,
    "read_sequential": 8,
    "read_crash": 5,
}
"""How many times fewer states there are, at least, than in the plain search."""

QUICK = ("quorum_stale", "quorum_drop", "quorum_recover", "read_crash")
"""Those of which the plain search is through in less than a second."""

COMPARED = [name for name, mutant in MUTANTS.items() if mutant.model.startswith(("quorum", "read_"))]
COMPARED_QUICKLY = ("read-without-sync", "counted-unversioned", "read-shows-open", "fail-without-delete")
"""The other ones are slow, all of them together."""

ALIKE = (
    *("quorum_stale", "quorum_drop", "quorum_alone", "quorum_recover", "quorum_mutate", "quorum_commit_doubt"),
    *("quorum_two", "quorum_crash", "quorum_doubt", "quorum_expiry", "quorum_merge"),
    *(
        "read_eventual",
        "read_crash",
        "read_drop",
        "read_sequential",
        "read_linearizable",
        "read_session",
        "read_quorum",
    ),
    *("pull_gap", "fetch_partitions", "restart_anywhere", "merge_differs", "mutate_merging", "clean_duplicate"),
    "session_ends_pulling",
)
ALIKE_SLOW = (
    *("quorum_two", "quorum_crash", "quorum_doubt", "quorum_expiry", "quorum_merge", "quorum_mutate"),
    *("read_drop", "read_sequential", "read_linearizable", "read_session", "read_quorum", "restart_anywhere"),
    *("fetch_partitions", "merge_differs", "session_ends_pulling", "pull_gap"),
)

OTHERS: dict[str, dict[Fault, int]] = {
    "insert_one_token": {Fault.UNKNOWN: 1, Fault.CRASH: 1},
    "pull_gap": {Fault.STALE: 1},
    "fetch_partitions": {Fault.CRASH: 1},
    "restart_anywhere": {Fault.UNKNOWN: 1, Fault.CRASH: 1},
    "session_ends": {Fault.EXPIRY: 1},
    "replaced_insert": {Fault.EXPIRY: 1},
    "reads_fail": {Fault.CLOSED: 1},
    "merge_differs": {Fault.DIFFERS: 1},
    "mutate_merging": {Fault.DISK: 1, Fault.CRASH: 1},
    "results_killed": {},
    "clean_duplicate": {Fault.STALE: 1},
}
"""Models of other themes, with few faults, so that the plain search stays small."""

OTHERS_QUICK = ("merge_differs", "mutate_merging", "clean_duplicate")


def _marked(names: list[str], slow: tuple[str, ...], *, but: bool = False) -> list[object]:
    return [pytest.param(name, marks=pytest.mark.slow if (name in slow) is not but else ()) for name in names]


def assert_same(model: Model) -> float:
    """Compare the search with ample steps with the plain one; return how many times fewer states it has."""
    ample, plain = explore(model, ample=True), explore(model, reduce=False)
    assert ample.violation is plain.violation is None
    assert ample.probes == plain.probes
    assert ends(ample) == ends(plain)
    return plain.states / ample.states


@pytest.mark.parametrize("name", _marked(list(FEWER), QUICK, but=True))
def test_verdict_probes_and_ends_are_those_of_the_plain_search(name: str) -> None:
    assert assert_same(MODELS[name]) >= FEWER[name]


@pytest.mark.parametrize("name", _marked(list(OTHERS), OTHERS_QUICK, but=True))
def test_models_of_other_themes_end_alike(name: str) -> None:
    assert assert_same(replace(MODELS[name], faults=OTHERS[name])) >= 1


@pytest.mark.parametrize("name", _marked(COMPARED, COMPARED_QUICKLY, but=True))
def test_mutant_breaks_the_same_invariant(name: str) -> None:
    mutant = MUTANTS[name]
    ample = explore(MODELS[mutant.model], mutant.stages, ample=True)
    assert ample.violation is not None
    assert ample.violation.startswith(f"{mutant.breaks}:")
    assert counterexample(ample)[0].startswith("  1 ")


Visible: TypeAlias = tuple[Any, ...]
"""What invariants look at: coordination, disks, and what memories show."""


def visible(model: Model, *, ample: bool) -> set[Visible]:
    """Return what is to be seen in the states of a model, with ample steps taken at once or not."""
    space = Space(model)
    choice = Ample(space) if ample else None
    met = _states(space, choice)
    while choice is not None and choice.reckon():
        met = _states(space, choice)
    return {_seen_of(space, world) for world in met}


def _states(space: Space, choice: Ample | None) -> set[World]:
    def after(world: World) -> World:
        return world if choice is None else choice.settle(world)[0]

    met = {after(first_world(space))}
    level = list(met)
    while level:
        found = {after(each[0]): None for world in level for each in space.successors(world)[0]}
        level = [world for world in found if world not in met]
        met.update(level)
    return met


def _seen_of(space: Space, world: World) -> Visible:
    memories = [space.memories[world[position]] for position in space.memory_at]
    shown = [(m.incarnation, m.session, m.state, m.trouble, m.missed, m.held, m.lacking) for m in memories]
    return space.trees[world[TREE]], tuple(space.disks[world[position]] for position in space.disk_at), tuple(shown)


@pytest.mark.parametrize("name", _marked(list(ALIKE), ALIKE_SLOW))
def test_the_same_is_to_be_seen_as_without_ample_steps(name: str) -> None:
    """Not only verdicts: every combination of coordination, disks and visible memory is met, and no other."""
    assert visible(MODELS[name], ample=True) == visible(MODELS[name], ample=False)


@pytest.mark.parametrize("blind", ["_coordination_written", "fields"])
def test_a_search_that_overlooks_what_others_write_is_found_out(blind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison above can fail: here nobody is believed to write to coordination, or to memory."""
    full = visible(MODELS["quorum_stale"], ample=False)
    monkeypatch.setattr(Resources, blind, lambda *_: 0)
    assert visible(MODELS["quorum_stale"], ample=True) < full
