"""The published models, counted as by others: to the unit."""

from __future__ import annotations

import pytest

from replitree.verify.packed.compiling import can_compile
from replitree.verify.packed.report import Told, explore_packed
from tests.verify.packed import pins

needs_numba = pytest.mark.skipif(not can_compile(), reason="large models are for compiled functions: pip install numba")


def counted(told: Told) -> tuple[int, int, int]:
    return told.generated, told.states, told.depth


@pytest.mark.slow
@pytest.mark.parametrize(("name", "limits", "generated", "states", "depth"), pins.SMALL)
@needs_numba
def test_small_models_have_the_known_numbers_of_states(
    name: str, limits: dict[str, int], generated: int, states: int, depth: int
) -> None:
    told = explore_packed(name, settings=limits)
    assert counted(told) == (generated, states, depth)
    assert told.violations == ()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "limits", "generated", "states", "depth"), pins.LARGE)
@needs_numba
def test_large_models_have_the_known_numbers_of_states(
    name: str, limits: dict[str, int], generated: int, states: int, depth: int
) -> None:
    told = explore_packed(name, settings=limits)
    assert counted(told) == (generated, states, depth)
    assert told.violations == ()


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "limits", "generated", "states", "depth"), pins.ONCE_FOR_ALL)
@needs_numba
def test_the_largest_models_have_the_known_numbers_of_states(
    name: str, limits: dict[str, int], generated: int, states: int, depth: int
) -> None:
    told = explore_packed(name, settings=limits)
    once = told.generated - told.fired["Insert"] + told.enabled["Insert"]
    assert (once, told.states, told.depth) == (generated, states, depth)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "limits", "states"), pins.SYMMETRIC)
@needs_numba
def test_replicas_that_are_alike_are_counted_once(name: str, limits: dict[str, int], states: int) -> None:
    told = explore_packed(name, settings=limits, symmetric=True)
    assert told.states == states
    assert told.violations == ()


@needs_numba
def test_a_read_without_check_has_the_known_number_of_states() -> None:
    told = explore_packed(pins.QB, settings={**pins.BOUNDED, "weak": 1}, asked=("QuorumSelect", "ReadAfterWrite"))
    assert counted(told) == (107_205, 20_952, 18)
    assert told.violations == ()


@needs_numba
def test_rare_states_are_first_seen_where_they_are_known_to_be() -> None:
    told = explore_packed(pins.QB, settings={"records": 3})
    rare = [told.probes[probe] for probe in ("failed", "committed after a failure", "two committed after a failure")]
    assert rare == [4, 9, 12]
