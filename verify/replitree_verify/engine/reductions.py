"""How many states the reductions leave out, model by model: the table of docs/verification-states.md."""

from __future__ import annotations

from dataclasses import dataclass

from replitree_verify.engine.explore import Explored, explore
from replitree_verify.world.model import Model

THEMES = ("quorum", "read_")
"""How the names of the models begin that are compared by default."""


@dataclass(frozen=True, slots=True)
class Compared:
    """The states of one model, by how many are left out.

    Attributes
    ----------
    name
        The model.
    plain, joined, ample
        States of the search that leaves out none, joins steps, and takes ample steps at once.
    least
        With ample steps, states that differ by names only counted once.
    permutations
        Under how many permutations of names the model is the same.
    cpu_seconds
        Of one core, for all four.
    agree
        Whether all four found the same: no violation, and the same rare branches.
    """

    name: str
    plain: int
    joined: int
    ample: int
    least: int
    permutations: int
    cpu_seconds: float
    agree: bool

    @property
    def times_fewer(self) -> float:
        """How many times fewer states there are in the end than in the plain search."""
        return self.plain / self.least


def compare(model: Model) -> Compared:
    """Explore a model in all four ways."""
    plain, joined = explore(model, reduce=False, ample=False), explore(model, ample=False)
    ample, least = explore(model, ample=True), explore(model, ample=True, symmetric=True)
    found = (plain, joined, ample, least)
    return Compared(
        model.name,
        plain.states,
        joined.states,
        ample.states,
        least.states,
        least.permutations,
        cpu_seconds=round(sum(each.cpu_seconds for each in found), 1),
        agree=all(_verdict(each) == _verdict(plain) for each in found),
    )


def _verdict(explored: Explored) -> tuple[bool, frozenset[str]]:
    return explored.violation is None, frozenset(explored.probes)
