"""The published models, counted as by others: to the unit."""

from __future__ import annotations

import pytest

from replitree_published.packed.report import Told, explore_packed
from tests.verify.packed import pins

AT_NIGHT_GENERATED = 60_000_000


def counted(told: Told) -> tuple[int, int, int]:
    return told.generated, told.states, told.depth


@pytest.mark.slow
@pytest.mark.parametrize(("name", "limits", "generated", "states", "depth"), pins.SMALL)
def test_small_models_have_the_known_numbers_of_states(
    name: str, limits: dict[str, int], generated: int, states: int, depth: int
) -> None:
    told = explore_packed(name, settings=limits)
    assert counted(told) == (generated, states, depth)
    assert told.violations == ()


@pytest.mark.parametrize(
    ("name", "limits", "generated", "states", "depth"),
    [
        pytest.param(*each, marks=pytest.mark.nightly if each[2] > AT_NIGHT_GENERATED else pytest.mark.slow)
        for each in pins.LARGE
    ],
)
def test_large_models_have_the_known_numbers_of_states(
    name: str, limits: dict[str, int], generated: int, states: int, depth: int
) -> None:
    told = explore_packed(name, settings=limits)
    assert counted(told) == (generated, states, depth)
    assert told.violations == ()


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "limits", "generated", "states", "depth"), pins.ONCE_FOR_ALL)
def test_the_largest_models_have_the_known_numbers_of_states(
    name: str, limits: dict[str, int], generated: int, states: int, depth: int
) -> None:
    told = explore_packed(name, settings=limits)
    once = told.generated - told.fired["Insert"] + told.enabled["Insert"]
    assert (once, told.states, told.depth) == (generated, states, depth)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "limits", "states"), pins.SYMMETRIC)
def test_replicas_that_are_alike_are_counted_once(name: str, limits: dict[str, int], states: int) -> None:
    told = explore_packed(name, settings=limits, symmetric=True)
    assert told.states == states
    assert told.violations == ()


@pytest.mark.slow
def test_a_read_without_check_has_the_known_number_of_states() -> None:
    told = explore_packed(pins.QB, settings={**pins.BOUNDED, "weak": 1}, asked=pins.WEAK_KEEPS)
    assert counted(told) == (107_205, 20_952, 18)
    assert told.violations == ()


@pytest.mark.slow
def test_rare_states_are_first_seen_where_they_are_known_to_be() -> None:
    told = explore_packed(pins.QB, settings={"records": 3})
    rare = [told.probes[probe] for probe in ("failed", "committed after a failure", "two committed after a failure")]
    assert rare == [4, 9, 12]


@pytest.mark.slow
@pytest.mark.parametrize(("weak", "within", "generated"), [(0, 18_744, 94_205), (1, 20_952, 107_205)])
def test_states_just_outside_the_bound_are_the_known_ones(weak: int, within: int, generated: int) -> None:
    told = explore_packed(
        pins.QB, settings={"history": 2, "reads": 3, "frontier": 1, "weak": weak}, asked=pins.WEAK_KEEPS
    )
    outside = told.states - within
    assert told.states == pins.WITH_FRONTIER[weak]
    assert told.generated - outside == generated, "each state outside has one successor: itself"
    assert told.violations == ()


@pytest.mark.slow
@pytest.mark.parametrize(("sync", "states"), pins.VIEWS)
def test_reads_through_views_have_the_known_numbers_of_states(sync: int, states: int) -> None:
    asked = () if sync else ("MonotonicReplica", "QuorumSelect")
    told = explore_packed(pins.QV, settings={"sync": sync}, asked=asked)
    assert told.states == states
    assert told.violations == ()
