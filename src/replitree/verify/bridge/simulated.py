"""Follow simulated runs: every change of coordination, from the first one to the last."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping as Named
from typing import Any

from replitree.coordination.tree import Tree
from replitree.verify.bridge.explored import wrong_step
from replitree.verify.bridge.mapping import Follower, Mapping
from replitree.verify.kernel import Stage
from replitree.verify.model import TABLE
from replitree.verify.simulate import Run, Simulation
from replitree.verify.simulation.observer import Violated


def follow_seed(
    seed: int,
    mapping: Mapping,
    stages: Named[str, Stage] | None = None,
    hours: int = 0,
    watch: Callable[[tuple[str, ...]], Callable[[Any], None] | None] = lambda _: None,
) -> tuple[Run, Follower, int]:
    """Run a seed and follow it; return the run, whose violation may be one of the bridge, and how many outlines it had.

    Parameters
    ----------
    stages, hours
        As of `simulate.Simulation`.
    watch
        Is given the names of the replicas; returns what is given every outline that differs from the one before it.

    Raises
    ------
    Undecided
        A search for a way has reached its limit.
    """
    simulation = Simulation(seed, stages, hours)
    names = simulation.names_at_most
    follower, outlines, on_outline = Follower(mapping, len(names)), 0, watch(names)
    last: Any = None

    def changed(tree: Tree) -> None:
        nonlocal last, outlines
        outline = mapping.outline_of(tree, TABLE, names)
        if outline == last:
            return
        wrong = None if last is None else wrong_step(follower, last, outline)
        last, outlines = outline, outlines + 1
        if on_outline is not None:
            on_outline(outline)
        if wrong is not None:
            raise Violated(wrong)

    changed(simulation.observer.tree)
    simulation.observer.on_change = changed
    return simulation.run(), follower, outlines
