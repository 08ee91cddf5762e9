"""The search of a model of replicas that join again."""

from __future__ import annotations

from replitree_verify.engine.small_search import STATES_MAX, Rules, Searched, search_all
from replitree_verify.patches.patch import Patch
from replitree_verify.rejoining.invariants import violations
from replitree_verify.rejoining.scene import Scene
from replitree_verify.rejoining.world import Model, World


def search(model: Model, mutant: Patch | None = None, states_max: int = STATES_MAX) -> Searched:
    """Search a model; all else as of `search_all`."""
    rules: Rules[World] = Rules(violations, lambda _: ())
    return search_all(Scene(model), rules, mutant, states_max)


__all__ = ["search"]
