"""What a search has found, as numbers: filled by `plain` and by `search`, told in words by `report`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from replitree_published.packed.model import PackedModel

NOBODY = -1
"""Parent of the first state."""


@dataclass(slots=True)
class Raw:
    """The states in the order in which they were found, each with its parent's number, and what was counted on the way.

    Attributes
    ----------
    generated, depth
        The first state and every successor, found before or not; how many levels there are.
    fired, enabled
        Of each action: how many successors it made, in how many states.
    seen
        Of each probe: at which depth it was seen first.
    violating, bad
        Number of the first state that breaks an invariant that was asked for, and which ones.
    stuck
        Numbers of states without any successor: the first, and how many.
    cut_short
        More states were left when the search ended at its limit.
    """

    model: PackedModel
    states: Any
    parents: Any
    generated: int = 1
    depth: int = 0
    fired: list[int] = field(default_factory=list)
    enabled: list[int] = field(default_factory=list)
    seen: list[int] = field(default_factory=list)
    violating: int | None = None
    bad: int = 0
    stuck: list[int] = field(default_factory=lambda: [NOBODY, 0])
    cut_short: bool = False

    def __post_init__(self) -> None:
        self.fired = [0] * len(self.model.actions)
        self.enabled = [0] * len(self.model.actions)
        self.seen = [0] * len(self.model.probes)

    def count(self, number: int, labels: Sequence[int]) -> None:
        """Note who made the successors of one state."""
        actions = [each >> 8 for each in labels]
        for action in actions:
            self.fired[action] += 1
        for action in set(actions):
            self.enabled[action] += 1
        if not actions:
            self.stuck = [number if self.stuck[0] == NOBODY else self.stuck[0], self.stuck[1] + 1]

    def judge(self, number: int, bad: int, seen: int, depth: int) -> None:
        """Note what was seen in a new state."""
        for probe in range(len(self.seen)):
            if seen >> probe & 1 and not self.seen[probe]:
                self.seen[probe] = depth
        if bad and self.violating is None:
            self.violating, self.bad = number, bad
