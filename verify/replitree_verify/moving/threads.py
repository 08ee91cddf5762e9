"""What befalls a replica of a model beside the program that ships: a part of it is found broken."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Wait until the replica is active and a part's manifest names no share; then take its folder away, and show it no more.

    Outcome: None.  What the part owned is to be let go of, and the mender makes it whole again.
    """

    part: str


@dataclass(frozen=True, slots=True)
class LoseRows:
    """Remove a part's files, all but its manifest.  Outcome: None.  No effect of the product does that: a mutant does."""

    part: str


def find_broken(part: str) -> Generator[Any, Any, None]:
    """Find a part broken."""
    yield Quarantine(part)


__all__ = ["LoseRows", "Quarantine", "find_broken"]
