"""Follow simulated runs: every change of coordination, from the first one to the last.

The whole run is followed on log cleaning, and each insert by itself on replication (`lives`) and on quorum inserts (`single`),
with what clients hear of it and what strict reads show.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping as Named
from dataclasses import dataclass, replace
from typing import Any

from replitree.coordination.trace import Told as ToldOfInsert
from replitree.coordination.tree import Tree
from replitree.protocol.core.effects import Duplicate, Inserted, NotInserted
from replitree_published.bridge.explored import wrong_step
from replitree_published.bridge.lives import Lives
from replitree_published.bridge.mapping import Follower, Mapping
from replitree_published.bridge.single import Inserts
from replitree_verify.process.read_requests import Shown, ShowRows, Told
from replitree_verify.simulation.observer import Observer, Violated
from replitree_verify.simulation.runs import Run
from replitree_verify.simulation.simulate import Simulation
from replitree_verify.world.kernel import Stage
from replitree_verify.world.model import TABLE


@dataclass(frozen=True, slots=True)
class FollowedRun:
    """A run that was followed.

    Attributes
    ----------
    run
        What became of it; its violation may be one of the bridge.
    followers
        Who has followed it.
    outlines
        How many different outlines it had.
    """

    run: Run
    followers: tuple[Follower, ...]
    outlines: int


def follow_seed(
    seed: int,
    mapping: Mapping,
    stages: Named[str, Stage] | None = None,
    hours: int = 0,
    watch: Callable[[tuple[str, ...]], Callable[[Any], None] | None] = lambda _: None,
) -> FollowedRun:
    """Run a seed and follow it.

    Parameters
    ----------
    stages, hours
        As of `simulate.Simulation`.
    watch
        Is given the names of the replicas; returns what is given every outline that differs from the one before it.

    Raises
    ------
    BadInput
        A life goes through more than there is room for.
    Undecided
        A search for a way has reached its limit.
    """
    simulation = Simulation(seed, stages, hours)
    simulation.options = replace(simulation.options, rolls=0)  # the published models know one parent of the log
    names = simulation.names_at_most
    follower, outlines, on_outline = Follower(mapping, len(names)), 0, watch(names)
    lives, inserts = Lives.of(TABLE, names), Inserts.of(TABLE, names)
    last: Any = None

    def changed(tree: Tree) -> None:
        nonlocal last, outlines
        inserts.read_log(tree)
        outline, wrong = mapping.outline_of(tree, TABLE, names), lives.look(tree) or inserts.look(tree)
        if outline != last:
            wrong = wrong if last is None else wrong_step(follower, last, outline) or wrong
            last, outlines = outline, outlines + 1
            if on_outline is not None:
                on_outline(outline)
        if wrong is not None:
            raise Violated(wrong)

    changed(simulation.observer.tree)
    simulation.observer.on_change = changed
    _let_hear(simulation.observer, inserts)
    return FollowedRun(simulation.run(), (follower, lives.follower, inserts.follower), outlines)


def _let_hear(observer: Observer, inserts: Inserts) -> None:
    """Let the inserts be followed with what their clients hear, and what strict reads show."""
    pass_on = observer.on_answer

    def shown(effect: ShowRows, told: Shown) -> None:
        wrong = inserts.show(effect, told) if effect.level != "eventual" else None
        if wrong is not None:
            raise Violated(wrong)

    def heard(request: int, told: Told) -> None:
        wrong, index = None, observer.index_of(request)
        if isinstance(told, Inserted | Duplicate) and told.index is not None and request in observer.tokens:
            wrong = inserts.hear(ToldOfInsert(TABLE.path, 0, told.index, told.settled))
        elif isinstance(told, NotInserted) and request in observer.tokens and index is not None:
            wrong = inserts.refuse(index)
        if wrong is not None:
            raise Violated(wrong)
        pass_on(request, told)

    observer.on_answer = heard
    observer.on_shown = shown
