"""The search of a model of openings."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from replitree.tablet.group import openings
from replitree_verify.engine.small_search import STATES_MAX, Rules, Searched, patched, search_all
from replitree_verify.openings.invariants import violations
from replitree_verify.openings.model import Model
from replitree_verify.openings.space import Space
from replitree_verify.patches.patch import Patch


def search(model: Model, mutant: Patch | None = None, states_max: int = STATES_MAX) -> Searched:
    """Search a model; all else as of `search_all`."""
    space = Space(model)
    # A process that is overtaken gives up: beginning again would be the same as another process that begins later.
    with patched({(openings, "ATTEMPTS"): 1}):
        found = search_all(space, Rules(partial(violations, model, space.members.held)), mutant, states_max)
    return replace(found, probes=frozenset(space.probes))
