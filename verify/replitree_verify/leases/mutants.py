"""Leases that are broken on purpose: a patch of the production code, a clock of another kind, another moment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from replitree_verify.leases.model import Clock, Model
from replitree_verify.patches.patch import Patch, read_patches


@dataclass(frozen=True, slots=True)
class Mutant:
    """A broken lease.

    Attributes
    ----------
    name
        What it is called.
    model
        Where it is looked for.
    patch
        How the production code is changed; None: it is as it is, and the model breaks the promise of a clock or of a caller.
    """

    name: str
    model: Model = Model()  # noqa: RUF009 - it is immutable
    patch: Patch | None = None


@contextmanager
def mutated(mutant: Mutant) -> Iterator[None]:
    """Break the lease meanwhile."""
    with nullcontext() if mutant.patch is None else mutant.patch.mutated():
        yield


_MUTANTS = (
    *(Mutant(patch.name, patch=patch) for patch in read_patches("leases")),
    Mutant("counted-from-the-answer", Model(counted_from=lambda _sent, heard: heard)),
    Mutant("begins-when-sent", Model(begins_when_sent=True)),
    Mutant("waited-from-before-the-fence", Model(waited_from=lambda begun, _fenced: begun)),
    Mutant("clock-that-stands-while-suspended", Model(Clock.MONOTONIC)),
    Mutant("wall-clock", Model(Clock.WALL)),
)

MUTANTS = {mutant.name: mutant for mutant in _MUTANTS}
