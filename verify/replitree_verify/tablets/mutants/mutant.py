"""What a mutant of a tablet is: some functions of the production code replaced, while a context lasts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Mutant:
    """A broken tablet.

    Attributes
    ----------
    name, model
        What it is called, and the model that catches it.
    invariant
        The number of the invariant that it breaks.
    patches
        (module or class, name of what is replaced there, by what).
    """

    name: str
    model: str
    invariant: str
    patches: tuple[tuple[Any, str, Any], ...]


@contextmanager
def mutated(mutant: Mutant) -> Iterator[None]:
    """Replace the functions while the context lasts."""
    whole = [(place, name, place.__dict__[name]) for place, name, _ in mutant.patches]
    for place, name, broken in mutant.patches:
        setattr(place, name, broken)
    try:
        yield
    finally:
        for place, name, function in whole:
            setattr(place, name, function)
