"""What tests of simulated tables on object stores share: their seeds, that these find nothing, and that mutants are caught."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

from replitree_verify import registry
from replitree_verify.simulation.simulate import simulate
from replitree_verify.simulation.store.store_options import draw_store


def on_a_store(seed_from: int, seed_to: int) -> list[int]:
    """Return the seeds from one to another that have a table on an object store."""
    return [seed for seed in range(seed_from, seed_to) if draw_store(Random(f"{seed}/object store")) is not None]


def assert_seeds_find_nothing(seeds: Sequence[int], see: Sequence[str] = ()) -> None:
    """Seeds break no invariant, and have seen all of these branches."""
    simulated = simulate(seeds)
    assert simulated.violations == []
    assert [probe for probe in see if not simulated.probes[probe]] == []


def assert_seed_catches(name: str, seed: int, breaks: str) -> None:
    """A seed finds a mutant, by one invariant."""
    found = registry.simulate(seed, seed + 1, name)
    assert [each["invariant"] for each in found.violations] == [breaks]


def names_of(cases: Iterable[Any]) -> set[str]:
    """Return the names of the mutants of some cases; those with marks are parameters of pytest."""
    return {getattr(case, "values", case)[0] for case in cases}
