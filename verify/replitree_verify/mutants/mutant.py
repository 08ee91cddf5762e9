"""What a mutant is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from replitree_verify.world.kernel import Stage


@dataclass(frozen=True, slots=True)
class Mutant:
    """A broken rule.

    Attributes
    ----------
    name, description
        For people.
    model
        Name of the model that catches it.
    invariant
        The invariant that notices: what the violation begins with.
    stages
        The broken stages, by the name of the stage that each replaces.
    """

    name: str
    description: str
    model: str
    invariant: str
    stages: Mapping[str, Stage]
