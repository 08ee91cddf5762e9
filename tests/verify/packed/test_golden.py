"""The published models, counted as by others: to the unit."""

from __future__ import annotations

import pytest

from replitree_published.packed.catalog import PACKED
from replitree_published.packed.report import Told, explore_packed
from tests.verify.packed import pins

AT_NIGHT_GENERATED = 15_000_000


def counted(told: Told) -> tuple[int, int, int]:
    return told.generated, told.states, told.depth


def _sized(name: str, limits: dict[str, int], generated: int, states: int, depth: int) -> object:
    """Return the parameters of a test, named by the model where it has its own limits, as ``verify explore`` explores it."""
    own = PACKED[name].limits._asdict()
    size = "" if own == own | limits else " " + " ".join(f"{key}={value}" for key, value in limits.items())
    mark = pytest.mark.nightly if generated > AT_NIGHT_GENERATED else pytest.mark.slow
    return pytest.param(name, limits, generated, states, depth, marks=mark, id=name + size)


@pytest.mark.parametrize(
    ("name", "limits", "generated", "states", "depth"), [_sized(*each) for each in (*pins.SMALL, *pins.LARGE)]
)
def test_model_holds(name: str, limits: dict[str, int], generated: int, states: int, depth: int) -> None:
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
def test_reads_through_views_that_do_not_sync_have_the_known_number_of_states() -> None:
    told = explore_packed(pins.QV, settings={"sync": 0}, asked=("MonotonicReplica", "QuorumSelect"))
    assert told.states == pins.VIEWS_WITHOUT_SYNC
    assert told.violations == ()
