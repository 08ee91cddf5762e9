"""The search of a model of parts that move."""

from __future__ import annotations

from replitree_verify.engine.small_search import STATES_MAX, Rules, Searched, search_all
from replitree_verify.moving.invariants import in_the_end, violations
from replitree_verify.moving.scene import Scene
from replitree_verify.moving.world import Model, World
from replitree_verify.patches.patch import Patch


def search(model: Model, mutant: Patch | None = None, states_max: int = STATES_MAX) -> Searched:
    """Search a model; all else as of `search_all`."""
    rules: Rules[World] = Rules(lambda world: violations(world, model), lambda world: in_the_end(world, model))
    return search_all(Scene(model), rules, mutant, states_max)


__all__ = ["search"]
