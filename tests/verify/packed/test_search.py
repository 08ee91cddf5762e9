"""The compiled search finds what the plain one finds; both say what proves less than it seems to."""

from __future__ import annotations

from itertools import permutations

import pytest

from replitree.errors import BadInput
from replitree_published.packed import report
from replitree_published.packed.bits import WORD, get, put, sorted_blocks
from replitree_published.packed.catalog import PACKED
from replitree_published.packed.compiling import can_compile
from replitree_published.packed.fair import unfair_end
from replitree_published.packed.model import PackedModel
from replitree_published.packed.models import quorum
from replitree_published.packed.plain import search_plainly
from replitree_published.packed.report import Told, explore_packed
from tests.verify.packed import pins

SMALL = {
    pins.TL: {"records": 3},
    pins.RP: {"records": 3},
    pins.QB: {"replicas": 2, "quorum": 1, "history": 2, "reads": 2},
    pins.QV: {"replicas": 2, "quorum": 1},
    "mended/truncate-log": {"replicas": 2, "records": 2},
    "mended/replication": {"replicas": 2, "records": 3},
    "mended/quorum": {"replicas": 2, "reads": 1},
    "mended/quorum-lagging": {"replicas": 2, "reads": 1, "quorum": 1},
    pins.QP: {"replicas": 2, "records": 2},
    pins.RQ: {"records": 2},
    pins.QQ: {"replicas": 2, "records": 2},
}
"""Sizes that plain Python goes through in a second."""


def test_what_is_compared_is_compiled() -> None:
    assert can_compile(), "these tests need numba: pip install -e .[dev,verify]"


def apart_from_time(told: Told) -> tuple[object, ...]:
    fields = [name for name in Told.__slots__ if name != "seconds"]
    return tuple(getattr(told, name) for name in fields)


@pytest.mark.slow
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("name", PACKED)
def test_compiled_and_plain_search_find_the_same(name: str, symmetric: bool) -> None:
    plain, compiled = (
        explore_packed(name, settings=SMALL[name], symmetric=symmetric, plain=plain) for plain in (True, False)
    )
    assert apart_from_time(plain) == apart_from_time(compiled)
    assert plain.states > 100


@pytest.mark.slow
@pytest.mark.parametrize(("name", "mutant"), [(pins.QB, "weak-read"), (pins.RP, "merged-rows-are-counted")])
@pytest.mark.parametrize("symmetric", [False, True])
def test_compiled_and_plain_search_find_the_same_violation(name: str, mutant: str, symmetric: bool) -> None:
    plain, compiled = (explore_packed(name, mutant, symmetric=symmetric, plain=plain) for plain in (True, False))
    assert apart_from_time(plain) == apart_from_time(compiled)
    assert len(plain.trace) == pins.MUTANTS[name, mutant][1]


@pytest.mark.parametrize("name", PACKED)
def test_states_that_stand_for_others_stand_for_all_of_them(name: str) -> None:
    model = PACKED[name]
    limits = model.set_to(SMALL[name])
    all_states = search_plainly(model, limits, 0, symmetric=False, states_max=10**6).states
    few = search_plainly(model, limits, 0, symmetric=True, states_max=10**6).states
    assert {model.canonical(state, limits) for state in all_states} == set(few)
    assert sum(orbit(model, state, limits.replicas) for state in few) == len(all_states)


def orbit(model: PackedModel, state: int, replicas: int) -> int:
    """Count the states that are this one but for the names of replicas."""
    blocks = blocks_of(model, state, replicas)
    return len(set(permutations(blocks)))


def blocks_of(model: PackedModel, state: int, replicas: int) -> list[int]:
    low, width = model.blocks
    return [get(state, low + replica * width, width) for replica in range(replicas)]


@pytest.mark.parametrize("name", PACKED)
def test_the_largest_limits_fit_into_the_word(name: str) -> None:
    model = PACKED[name]
    low, width = model.blocks
    assert low + width * model.most["replicas"] <= WORD


@pytest.mark.parametrize("name", PACKED)
def test_no_state_has_more_successors_than_there_is_room_for(name: str) -> None:
    model = PACKED[name]
    limits = model.set_to(SMALL[name])
    raw = search_plainly(model, limits, 0, symmetric=False, states_max=10**6)
    out, by = [0] * 256, [0] * 256
    most = max(model.successors(state, limits, out, by, 0) for state in raw.states)
    assert 2 * most <= model.fan_out


def test_without_numba_plain_python_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "can_compile", lambda: False)
    told = explore_packed(pins.TL)
    assert (told.generated, told.states, told.depth) == (25_581, 4_354, 20)


@pytest.mark.slow
def test_properties_that_say_nothing_are_told() -> None:
    assert explore_packed(pins.RP, settings={"records": 3}).warnings == (
        "EquivalentReplicas says nothing: the first state has it already",
    )
    assert explore_packed(pins.QB).warnings == (
        "MonotonicRead says nothing here: never two reads",
        "EndOrFailedAfterStartWrite says nothing: the first state has it already",
    )
    assert explore_packed(pins.TL, settings={"replicas": 1, "records": 1}).warnings == (
        "action CloneReplica is never enabled",
    )


def test_what_is_eventually_so_needs_its_fairness() -> None:
    model = PACKED[pins.TL]
    states = search_plainly(model, model.limits, 0, symmetric=False, states_max=10**6).states
    (claim,) = model.eventually
    assert unfair_end(model, model.limits, claim, states) is None
    for action in claim.fair:
        fewer = type(claim)(claim.name, claim.holds, tuple(name for name in claim.fair if name != action))
        assert unfair_end(model, model.limits, fewer, states) is not None, action


def test_who_stands_at_a_failed_record_stands_for_ever_in_the_published_model() -> None:
    """And passes it in the mended one: see the probe `everybody past a failed record`."""
    model = PACKED[pins.QB]
    out, by = [0] * model.fan_out, [0] * model.fan_out
    stood = 0
    for state in search_plainly(model, model.limits, 0, symmetric=False, states_max=10**6).states:
        count = model.successors(state, model.limits, out, by, 0)
        for replica in range(3):
            pointer = quorum.block_of(state, replica) >> quorum.POINTER & 7
            if state >> (quorum.FAILED + pointer) & 1 and pointer < state & 7:
                after = {quorum.block_of(each, replica) >> quorum.POINTER & 7 for each in out[:count]}
                assert after == {pointer}
                stood += 1
    assert stood > 1_000


@pytest.mark.slow
def test_a_search_that_ends_at_its_limit_is_undecided() -> None:
    for plain in (True, False):
        told = explore_packed(pins.TL, states_max=1_000, plain=plain)
        assert [violation["invariant"] for violation in told.violations] == ["LIMIT"]


@pytest.mark.slow
def test_a_trace_says_who_did_what() -> None:
    trace = explore_packed(pins.QB, "weak-read").trace
    assert [line[4:22].strip() for line in trace] == [
        "", "QuorumInsert r1", "UpdateQuorum r2", "EndQuorum r1", "QuorumInsert r3", "UpdateQuorum r2", "EndQuorum r2",
        "QuorumRead r1",
    ]  # fmt: skip
    assert trace[-1].endswith("r1 at 0 has {0}; r2 at 2 has {0,1}; r3 at 0 has {1}; read 0")


def test_limits_that_do_not_fit_are_refused() -> None:
    with pytest.raises(BadInput, match="replicas=8 does not fit; use 1 to 7"):
        explore_packed(pins.TL, settings={"replicas": 8})
    with pytest.raises(BadInput, match="no limit 'size'"):
        explore_packed(pins.TL, settings={"size": 8})
    with pytest.raises(BadInput, match="no mutant 'nonsense'"):
        explore_packed(pins.TL, "nonsense")
    with pytest.raises(BadInput, match="no packed model"):
        explore_packed("nonsense")


def test_blocks_are_sorted_and_the_rest_stays() -> None:
    state = 5
    for number, block in enumerate((3, 1, 2, 1)):
        state = put(state, 10 + number * 7, 7, block)
    ordered = sorted_blocks(state, 10, 7, 4)
    assert [get(ordered, 10 + number * 7, 7) for number in range(4)] == [1, 1, 2, 3]
    assert get(ordered, 0, 10) == 5
