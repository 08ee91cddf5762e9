"""Broken rules of tables on an object store that simulated runs catch: some of the models', and some that only a run shows."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from replitree.protocol import owning
from replitree.verify.shared_tables import mutants as of_models
from replitree.verify.simulation import shared_process
from replitree.verify.small_search import Mutant

_OF_MODELS = (
    "put-before-noted",
    "attempts-not-given-up",
    "given-up-twice",
    "taken-over-unmarked",
    "marked-afterwards",
    "attempt-kept",
    "share-resurrected",
    "fetched-again-unmarked",
    "mark-deleted-alone",
    "objects-deleted-first",
    "dropped-with-marks",
)


def _looks_at_nothing(_sharer: Any, _parts: Any) -> Generator[Any, Any, dict[Any, Any]]:
    yield from ()
    return {}


def _gives_always(_source: Any, _part: str) -> bool:
    return True


_OWN = (
    Mutant(
        "looked-at-one-by-one",
        "of the parts of a commit one more is looked at for each try: a restarted replica never registers many of its own",
        "simulation",
        "CONVERGES",
        {(owning, "_look_at_all"): _looks_at_nothing},
    ),
    Mutant(
        "given-before-owned",
        "a replica gives parts away that it does not own yet: two that need each other's in one commit wait for ever",
        "simulation",
        "CONVERGES",
        {(shared_process, "gives_share"): _gives_always},
    ),
)

SHARED_MUTANTS = {mutant.name: mutant for mutant in (*map(of_models.find_mutant, _OF_MODELS), *_OWN)}
"""By name."""


__all__ = ["SHARED_MUTANTS"]
