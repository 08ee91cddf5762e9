"""States that differ by names only are one, where that is proved; nothing that a verdict depends on is lost by it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from replitree_verify.engine.explore import explore
from replitree_verify.engine.initial import first_world
from replitree_verify.engine.moves import World
from replitree_verify.engine.renaming import Renaming
from replitree_verify.engine.space import Space
from replitree_verify.engine.symmetry import Permutation, Symmetry
from replitree_verify.models import MODELS
from replitree_verify.mutants.catalog import MUTANTS
from replitree_verify.world.faults import Fault
from replitree_verify.world.model import Insert, Model
from tests.verify.test_reduction import ends

NONE: dict[Fault, int] = {}
SMALL: dict[str, dict[Fault, int]] = {
    "insert_one_token": {Fault.CRASH: 1},
    "insert_two_tokens": NONE,
    "combined": NONE,
    "quorum_all_alone": NONE,
    "quorum_three": NONE,
    "quorum_clean": NONE,
}
"""Models whose replicas, or requests, or both, are interchangeable; with few faults, so that the plain search stays small."""

AT_NIGHT = ("insert_one_token", "combined", "quorum_clean", "quorum_three")

TWICE = Model(
    "twice",
    "one replica takes the same insert twice, from two clients",
    (("r1", "r1"),),
    (Insert("r1", ((1, "a"),)), Insert("r1", ((2, "b"),))),
    {},
    started=("r1",),
)
"""Two inserts whose requests and tokens are interchangeable."""


def small(name: str) -> Model:
    return replace(MODELS[name], faults=SMALL[name], probes=())


def _named(names: list[str]) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.nightly if name in AT_NIGHT else ()) for name in names]


def states(space: Space, fingerprint: Callable[[World], int]) -> dict[int, World]:
    """Return the states of a space by their fingerprints, one for each that was visited."""
    level = {fingerprint(first_world(space)): first_world(space)}
    met = dict(level)
    while level:
        found = {fingerprint(each[0]): each[0] for world in level.values() for each in space.successors(world)[0]}
        level = {number: world for number, world in found.items() if number not in met}
        met.update(level)
    return met


def assert_one_for_all(model: Model) -> None:
    """Compare the canonical forms of the states of the plain search with the states of the reduced one."""
    space = Space(model, reduce=False)
    names = Symmetry(space)
    assert names.permutations
    plain = states(space, space.fingerprints.of)
    reduced = states(space, names.fingerprint)
    assert {names.fingerprint(world) for world in plain.values()} == {*reduced}
    assert explore(model, reduce=False, symmetric=True).states == len(reduced) < len(plain)


@pytest.mark.parametrize("name", _named(list(SMALL)))
def test_one_state_is_visited_of_those_that_differ_by_names_only(name: str) -> None:
    assert_one_for_all(small(name))


def test_requests_with_their_tokens_are_interchangeable_at_one_replica() -> None:
    assert_one_for_all(TWICE)


@pytest.mark.parametrize("name", _named(list(SMALL)))
@pytest.mark.parametrize("ample", [False, True])
def test_verdict_and_probes_are_those_of_the_plain_search(name: str, *, ample: bool) -> None:
    reduced, plain = explore(small(name), ample=ample, symmetric=True), explore(small(name), reduce=False)
    assert reduced.violation is plain.violation is None
    assert reduced.permutations == 2
    assert reduced.probes == plain.probes
    assert {_anonymous(end) for end in ends(reduced)} == {_anonymous(end) for end in ends(plain)}


def _anonymous(end: str) -> str:
    """Return the text of a quiet state without names, its lines in order."""
    for name in ("r1", "r2", "r3"):
        end = end.replace(name, "r")
    return "".join(sorted("".join(each for each in end if not each.isdigit())))


OF_SYMMETRIC = [name for name, mutant in MUTANTS.items() if mutant.model in SMALL]
QUICK = (
    "reactivation-does-not-count",
    "slower-one-does-not-count",
    "blind-retry-after-unknown",
    "acknowledge-before-commit",
)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.nightly) for name in OF_SYMMETRIC]
)
def test_mutant_breaks_the_same_invariant(name: str) -> None:
    mutant = MUTANTS[name]
    reduced = explore(MODELS[mutant.model], mutant.stages, symmetric=True)
    assert reduced.violation is not None
    assert reduced.violation.startswith(f"{mutant.invariant}:")
    assert len(reduced.trace) == len(explore(MODELS[mutant.model], mutant.stages).trace)


# --- what is not symmetric ----------------------------------------------------------------------------------------------------


def test_where_the_order_of_names_decides_nothing_is_left_out() -> None:
    """A sweep removes what is staged in the order of names: so requests at one replica are not interchangeable here."""
    model = replace(TWICE, faults={Fault.CRASH: 1})
    reduced, joined = explore(model, symmetric=True), explore(model)
    assert "RemoveStaging" in reduced.asymmetry
    assert reduced.permutations == 1
    assert reduced.states == joined.states


def test_replicas_with_other_work_are_not_interchangeable() -> None:
    assert Symmetry(Space(MODELS["quorum_two"])).permutations == ()


# --- the reduction broken -----------------------------------------------------------------------------------------------------


def _forgets_sessions(_: Renaming, session: int) -> int:
    return session


def test_names_that_were_overlooked_are_found_by_the_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions keep their numbers here: the first state is not one that stays as it is, so nothing is symmetric."""
    monkeypatch.setattr(Renaming, "session", _forgets_sessions)
    assert Symmetry(Space(small("quorum_all_alone"))).permutations == ()


def test_a_permutation_that_is_none_is_refuted() -> None:
    """One of two replicas never makes results by itself: in the first state nothing of that is to be seen."""
    model = replace(small("quorum_all_alone"), fetchers=("r2",))
    reduced = explore(model, symmetric=True)
    assert "do not do the same" in reduced.asymmetry or "with other names" in reduced.asymmetry
    assert reduced.states == explore(model).states


def test_a_search_that_does_not_ask_for_the_proof_overlooks_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison with the plain search can fail: here requests are interchangeable although names decide."""
    monkeypatch.setattr(Permutation, "compare", lambda *_: None)
    with pytest.raises(AssertionError):
        assert_one_for_all(replace(TWICE, faults={Fault.CRASH: 1}))
