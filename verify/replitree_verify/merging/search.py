"""The search of a model of merges in an object store."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from replitree_verify.engine.small_search import STATES_MAX, Rules, Searched, search_all
from replitree_verify.merging.invariants import in_the_end
from replitree_verify.merging.scene import MergeScene
from replitree_verify.merging.world import Model
from replitree_verify.patches.patch import Patch
from replitree_verify.shared_tables.invariants import violations

STUCK = "STUCK: a replica waits for what none will do"
AtRest = Callable[[Any, tuple[str, ...], Model], Iterable[str]]


def search(
    model: Model,
    mutant: Patch | None = None,
    states_max: int = STATES_MAX,
    *,
    scene_of: Callable[[Model], MergeScene] = MergeScene,
    at_rest: AtRest = in_the_end,
) -> Searched:
    """Search a model; all else as of `search_all`.

    Parameters
    ----------
    model, mutant, states_max
        See `search_all`.
    scene_of
        What may happen in the model.
    at_rest
        What must hold in a world where nothing is left to do, with the names of its seats and the model.
    """
    scene = scene_of(model)
    rules: Rules[Any] = Rules(
        lambda world: violations(world, scene.names),
        lambda world: at_rest(world, scene.names, model),
        lambda world: (STUCK,) if scene.is_stuck(world) else (),
    )
    return search_all(scene, rules, mutant, states_max)


__all__ = ["search"]
