"""The search of a model of openings."""

from __future__ import annotations

from functools import partial

from replitree.tablet.group import openings
from replitree_verify.engine.small_search import STATES_MAX, Rules, Searched, patched, search_all
from replitree_verify.openings.invariants import violations
from replitree_verify.openings.model import Model
from replitree_verify.openings.scene import Scene
from replitree_verify.openings.world import World
from replitree_verify.patches.patch import Patch


def search(model: Model, mutant: Patch | None = None, states_max: int = STATES_MAX) -> Searched:
    """Search a model; all else as of `search_all`.

    A process that is overtaken gives up: beginning again would be the same as another process that begins later.
    """
    scene = Scene(model)
    with patched({(openings, "ATTEMPTS"): 1}):
        return search_all(scene, rules_of(scene), mutant, states_max)


def rules_of(scene: Scene) -> Rules[World]:
    """Return what must hold in a scene."""
    return Rules(always=partial(violations, scene.model, scene.members.held), at_rest=lambda _: ())
