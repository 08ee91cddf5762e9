"""The search of a model of merges whose results a client puts."""

from __future__ import annotations

from replitree_verify.engine.small_search import STATES_MAX, Searched
from replitree_verify.merging import search as merging
from replitree_verify.merging.world import Model
from replitree_verify.patches.patch import Patch
from replitree_verify.prepared.invariants import in_the_end
from replitree_verify.prepared.scene import PreparedScene


def search(model: Model, mutant: Patch | None = None, states_max: int = STATES_MAX) -> Searched:
    """Search a model; all else as of `search_all`."""
    return merging.search(model, mutant, states_max, scene_of=PreparedScene, at_rest=in_the_end)


__all__ = ["search"]
