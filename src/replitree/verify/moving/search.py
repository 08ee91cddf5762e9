"""The search of a model of parts that move."""

from __future__ import annotations

from replitree.verify.moving.invariants import in_the_end, violations
from replitree.verify.moving.scene import Scene
from replitree.verify.moving.world import Model, World
from replitree.verify.small_search import STATES_MAX, Mutant, Searched, search_all


class _Checked(Scene):
    """A scene, and what does not hold in it."""

    @property
    def name(self) -> str:
        return self.model.name

    def problem(self, world: World) -> str:
        return next(violations(world, self.model), "")

    def problem_at_rest(self, world: World) -> str:
        return next(in_the_end(world, self.model), "") if self.is_at_rest(world) else ""


def search(model: Model, mutant: Mutant | None = None, states_max: int = STATES_MAX) -> Searched:
    """Search a model; all else as of `search_all`."""
    return search_all(_Checked(model), mutant, states_max)
