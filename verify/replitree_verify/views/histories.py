"""Random histories of random models of views: every seed is one, and always the same one.

A history goes from step to step of a model that is too large to be explored, until nothing is left to do or something is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from replitree_verify.views.model import Model, Send
from replitree_verify.views.search import violations, wrong_at_rest
from replitree_verify.views.space import SEATS, Space
from replitree_verify.world.faults import Fault

STEPS_MAX = 5_000
"""Steps of a history; more means that something goes on for ever."""


@dataclass(frozen=True, slots=True)
class ViewHistory:
    """What came of a history: its steps, the last of them wrong if something is, and the rare branches that were seen."""

    steps: tuple[str, ...]
    violation: str
    probes: frozenset[str]


def draw_model(seed: int) -> Model:
    """Draw what is asked, and what goes wrong."""
    draw = Random(f"views {seed}")  # noqa: S311 - drawn to be drawn again

    def some(most: int) -> tuple[str, ...]:
        return tuple(draw.choice(SEATS) for _ in range(draw.randint(0, most)))

    has_view, is_open = draw.random() < 0.3, draw.random() < 0.2
    sends = tuple(
        Send(draw.choice(SEATS), draw.choice("abcd"), draw.choice((0, 0, 0, 2))) for _ in range(draw.randint(1, 6))
    )
    return Model(
        f"views {seed}",
        "drawn",
        sends=sends,
        creates=() if has_view else (draw.choice(SEATS), *some(1)),
        drops=some(1),
        fills=() if has_view else some(3),
        alters=some(1),
        rolls=tuple((draw.choice(SEATS), table) for table in "st" if draw.random() < 0.3),
        retakes=some(2),
        forgets=draw.random() < 0.3,
        # A view that is there from the beginning counts as filled: what came before it is not its business.
        before="" if has_view else "x",
        is_open=is_open and not has_view,
        has_view=has_view,
        faults={Fault.CRASH: draw.randint(0, 2), Fault.UNKNOWN: draw.randint(0, 3), Fault.DISK: draw.randint(0, 1)},
    )


def history_of(seed: int) -> ViewHistory:
    """Go through the history of a seed."""
    space, draw = Space(draw_model(seed)), Random(seed)  # noqa: S311 - drawn to be drawn again
    state, way = space.first(), list[str]()
    for _ in range(STEPS_MAX):
        problem = next(iter(violations(state)), "")
        if problem:
            return ViewHistory(tuple(way), problem, frozenset(space.probes))
        steps = tuple(space.steps(state))
        if not steps:
            break
        happened, state = draw.choice(steps)
        way.append(happened)
    else:
        return ViewHistory(tuple(way), "CONVERGES: it goes on for ever", frozenset(space.probes))
    problem = next(iter(wrong_at_rest(space, state)), "")
    return ViewHistory(tuple(way), problem, frozenset(space.probes))
