"""The search of a model of a tablet."""

from __future__ import annotations

from dataclasses import replace

from replitree.tablet.core import commit
from replitree_verify.engine.small_search import Rules, Searched, patched, search_all
from replitree_verify.patches.patch import Patch
from replitree_verify.tablets.invariants.catalog import TabletChecker
from replitree_verify.tablets.model import Model
from replitree_verify.tablets.space import Space

STATES_MAX = 20_000_000


def search(model: Model, mutant: Patch | None = None, states_max: int = STATES_MAX) -> Searched:
    """Search a model; all else as of `search_all`.  States that differ in the numbers of the members of a group are one."""
    space = Space(model)
    # A smaller window than a running tablet has: few entries reach its end (I20).
    with patched({(commit, "STEPS_MAX"): model.steps_max}):
        found = search_all(space, Rules(step=TabletChecker(space).broken_step), mutant, states_max, space.canonical)
    return replace(found, probes=frozenset(space.probes))
