"""The search of a model of tables on shared storage."""

from __future__ import annotations

from replitree_verify.engine.small_search import STATES_MAX, Rules, Searched, search_all
from replitree_verify.patches.patch import Patch
from replitree_verify.shared_tables.invariants import in_the_end, violations
from replitree_verify.shared_tables.scene import Scene
from replitree_verify.shared_tables.world import Model, World


def search(model: Model, mutant: Patch | None = None, states_max: int = STATES_MAX) -> Searched:
    """Search a model; all else as of `search_all`."""
    scene = Scene(model)
    rules: Rules[World] = Rules(
        lambda world: violations(world, scene.names), lambda world: in_the_end(world, scene.names)
    )
    return search_all(scene, rules, mutant, states_max)


__all__ = ["search"]
