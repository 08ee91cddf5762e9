"""The search of a model of merges whose results somebody else puts."""

from __future__ import annotations

from typing import Any

from replitree.verify.merging.invariants import in_the_end, violations
from replitree.verify.merging.world import Model
from replitree.verify.prepared.scene import PreparedScene
from replitree.verify.small_search import STATES_MAX, Mutant, Searched, search_all


class _Checked(PreparedScene):
    """A scene, and what does not hold in it."""

    @property
    def name(self) -> str:
        return self.model.name

    def problem(self, world: Any) -> str:
        return next(violations(world, self.names, self.model), "")

    def problem_at_rest(self, world: Any) -> str:
        if self.is_at_rest(world):
            if world.uploads:
                return f"SETTLES: an upload has {world.uploads[0][1]} still"
            return next(in_the_end(world, self.names, self.model), "")
        return "STUCK: somebody waits for what nobody will do" if self.is_stuck(world) else ""


def search(model: Model, mutant: Mutant | None = None, states_max: int = STATES_MAX) -> Searched:
    """Search a model; all else as of `search_all`."""
    return search_all(_Checked(model), mutant, states_max)


__all__ = ["search"]
