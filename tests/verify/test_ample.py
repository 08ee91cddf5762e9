"""Taking ample steps at once leaves most states out, and nothing that a verdict depends on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import Any, TypeAlias

import pytest

from replitree.protocol.core.effects import Answer, Commit, LogIndex
from replitree.protocol.core.parts import inserted_part, parse_part
from replitree.protocol.execute.making import MAKING
from replitree_verify.effects.table import TOUCHES
from replitree_verify.engine.ample import Ample
from replitree_verify.engine.explore import explore
from replitree_verify.engine.futures import Futures
from replitree_verify.engine.initial import first_world
from replitree_verify.engine.moves import TREE, World
from replitree_verify.engine.resources import Resources
from replitree_verify.engine.space import Space
from replitree_verify.engine.surroundings import Surroundings
from replitree_verify.models import MODELS
from replitree_verify.mutants.catalog import MUTANTS
from replitree_verify.process.read_requests import ShowRows
from replitree_verify.registry import compared, counterexample
from replitree_verify.world.disk import Disk
from replitree_verify.world.faults import Fault
from replitree_verify.world.history import Log
from replitree_verify.world.model import Model
from tests.verify.test_reduction import ends

TIMES_FEWER_MIN = 10
"""How many times fewer states there are, at least, than in the plain search: in the models of quorums and reads."""

TIMES_FEWER = {"quorum_dropped": 3}
"""A model in which little goes on at once."""

QUICK = ("quorum_stale", "quorum_drop", "quorum_recover", "quorum_alone", "read_crash", "read_eventual", "read_deposed")
"""Those of which the plain search is through in less than a second."""

LARGE = (
    *("quorum_crash", "quorum_expiry", "quorum_retry", "quorum_clean", "quorum_lost"),
    *("quorum_all", "quorum_doubt", "quorum_merge", "quorum_three", "read_linearizable", "read_session"),
)
"""Those whose plain search takes longest: for the night."""

COMPARED = [
    *(name for name, mutant in MUTANTS.items() if mutant.model.startswith(("quorum", "read_"))),
    "staging-listed-after-activation",
]
COMPARED_QUICKLY = ("read-without-sync", "counted-unversioned", "read-shows-open", "fail-without-delete")
"""The other ones wait for the night, all of them together."""

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
    *("session_ends_pulling", "lost_merge", "lost_writer_away", "quorum_lost"),
)
ALIKE_AT_NIGHT = (
    *("lost_writer_away", "lost_merge", "quorum_two", "quorum_mutate", "read_drop"),
    *("fetch_partitions", "merge_differs", "session_ends_pulling", "pull_gap"),
    *("quorum_lost", "quorum_crash", "quorum_doubt", "quorum_expiry", "quorum_merge", "restart_anywhere"),
    *("read_sequential", "read_linearizable", "read_session", "read_quorum"),
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


def _by_day(names: Iterable[str], by_day: Collection[str]) -> list[object]:
    """Give the parameters of a test; those that are not named for the day wait for the night."""
    return [pytest.param(name, marks=() if name in by_day else pytest.mark.nightly) for name in names]


def assert_same(model: Model) -> float:
    """Compare the search with ample steps with the plain one; return how many times fewer states it has."""
    ample, plain = explore(model, ample=True), explore(model, reduce=False)
    assert ample.violation is plain.violation is None
    assert ample.probes == plain.probes
    assert ends(ample) == ends(plain)
    return plain.states / ample.states


@pytest.mark.parametrize("name", _by_day([name for name in compared() if name not in LARGE], QUICK))
def test_verdict_probes_and_ends_are_those_of_the_plain_search(name: str) -> None:
    assert assert_same(MODELS[name]) >= TIMES_FEWER.get(name, TIMES_FEWER_MIN)


@pytest.mark.nightly
@pytest.mark.parametrize("name", LARGE)
def test_the_same_of_large_models(name: str) -> None:
    assert assert_same(MODELS[name]) >= TIMES_FEWER_MIN


@pytest.mark.parametrize("name", _by_day(OTHERS, OTHERS_QUICK))
def test_models_of_other_themes_end_alike(name: str) -> None:
    assert assert_same(replace(MODELS[name], faults=OTHERS[name])) >= 1


@pytest.mark.parametrize("name", _by_day(COMPARED, COMPARED_QUICKLY))
def test_mutant_breaks_the_same_invariant(name: str) -> None:
    mutant = MUTANTS[name]
    ample = explore(MODELS[mutant.model], mutant.stages, ample=True)
    assert ample.violation is not None
    assert ample.violation.startswith(f"{mutant.invariant}:")
    assert counterexample(ample)[0].startswith("  1 ")


Visible: TypeAlias = tuple[Any, ...]
"""What invariants look at: coordination, disks and what memories show; and each part of each replica by itself."""


def visible(model: Model, *, ample: bool) -> set[Visible]:
    """Return what is to be seen in the states of a model, with ample steps taken at once or not."""
    space = Space(model)
    choice = Ample(space) if ample else None
    met = _states(space, choice)
    while choice is not None and choice.reckon():
        met = _states(space, choice)
    return {each for world in met for each in (_seen_of(space, world), *_known_of_parts(space, world))}


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
    tree, memories = space.trees[world[TREE]], [space.memories[world[position]] for position in space.memory_at]
    disks = [space.disks[world[position]] for position in space.disk_at]
    shown = [(m.incarnation, m.session, m.state, m.trouble, m.missed, m.held, m.lacking) for m in memories]
    return tree, tuple(_published(disk, Log(tree)) for disk in disks), tuple(shown)


def _published(disk: Disk, log: Log) -> Disk:
    """Return a disk as if inserts that are in the log were published, and those that are not had not been staged."""
    indexes = {entry.insert: LogIndex(index) for index, entry in log.inserts}
    parts, left = {*disk.parts}, []
    for folder in disk.folders:
        index = indexes.get(folder.staging)
        if folder.torn or folder.staging.startswith(MAKING):
            left.append(folder)
        elif index is not None:
            parts.update((inserted_part(partition, index).name, content) for partition, content in folder.parts)
    return Disk(tuple(left), tuple(sorted(parts)), disk.aside)


def _known_of_parts(space: Space, world: World) -> Iterator[tuple[str, str, bool, bool, str | None]]:
    """Return of each part of each replica whether it is registered, and shown, and what is on the disk."""
    log, model = Log(space.trees[world[TREE]]), space.model
    for seat, (_, name) in enumerate(model.seats):
        disk = space.disks[world[space.disk_at[space.replica_of[seat]]]]
        registered, held = log.registered(model.replica(name)), space.memories[world[space.memory_at[seat]]].held
        for part in sorted({*registered, *(each.name for each in held), *(each for each, _ in disk.parts)}):
            yield name, part, part in registered, parse_part(part) in held, disk.content(part)


@pytest.mark.parametrize("name", _by_day(ALIKE, [name for name in ALIKE if name not in ALIKE_AT_NIGHT]))
def test_the_same_is_to_be_seen_as_without_ample_steps(name: str) -> None:
    """Not only verdicts: every combination of coordination, disks and visible memory is met, and no other."""
    assert visible(MODELS[name], ample=True) == visible(MODELS[name], ample=False)


def overlook(column: str, effects: Iterable[type], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let reductions not know what effects read beside memory and coordination (`looks`), or write beside memory (`leaves`)."""
    nothing: dict[str, Any] = {column: lambda *_: 0}
    for each in effects:
        monkeypatch.setitem(TOUCHES, each, TOUCHES[each]._replace(**nothing))


@pytest.mark.parametrize("blind", ["commits", "nodes_read", "waits_for", "fields"])
def test_a_search_that_overlooks_what_others_do_is_found_out(blind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison above can fail: here nobody is believed to write to coordination, to read it, to wait, or to remember."""
    full = visible(MODELS["quorum_stale"], ample=False)
    if blind == "commits":
        overlook("leaves", [Commit], monkeypatch)
    else:
        monkeypatch.setattr(Resources, blind, lambda *_: 0)
    assert visible(MODELS["quorum_stale"], ample=True) < full


@pytest.mark.parametrize("column", ["leaves", "looks"])
def test_a_search_that_overlooks_disks_does_not_see_rare_branches(column: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Publishing is hidden from invariants, not from those who fetch: they may come before it, or after."""
    model = replace(MODELS["read_eventual"], faults={}, probes=())
    assert {"fetch failed", "executed later"} <= explore(model, ample=True).probes
    overlook(column, TOUCHES.keys() - {Commit, Answer, ShowRows}, monkeypatch)  # these write beside disks
    assert not {"fetch failed", "executed later"} & explore(model, ample=True).probes


@pytest.mark.parametrize(
    ("whose", "blind", "told"),
    [(Ample, "is_outdated", False), (Futures, "have_changed", False), (Surroundings, "forget", None)],
)
def test_a_search_that_does_not_reckon_with_what_it_has_met_overlooks_states(
    whose: type[object], blind: str, told: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search begins with no ways: who never begins again, finds nothing grown, or goes by old futures, is too bold."""
    whole = explore(MODELS["quorum_stale"], ample=True).states
    monkeypatch.setattr(whose, blind, lambda *_, **__: told)
    assert explore(MODELS["quorum_stale"], ample=True).states < whole
