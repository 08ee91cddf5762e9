"""Leases that are broken on purpose: a function of the production code replaced, a clock of another kind, another moment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from replitree.tablet.core import lease
from replitree_verify.leases.model import Clock, Model


@dataclass(frozen=True, slots=True)
class Mutant:
    """A broken lease.

    Attributes
    ----------
    name
        What it is called.
    model
        Where it is looked for.
    patches
        Names in `replitree.tablet.core.lease`, and what takes their place.
    """

    name: str
    model: Model = Model()  # noqa: RUF009 - a value that nobody changes
    patches: tuple[tuple[str, object], ...] = ()


@contextmanager
def mutated(mutant: Mutant) -> Iterator[None]:
    """Break the lease meanwhile."""
    before = [(name, getattr(lease, name)) for name, _ in mutant.patches]
    try:
        for name, replacement in mutant.patches:
            setattr(lease, name, replacement)
        yield
    finally:
        for name, original in before:
            setattr(lease, name, original)


def _lowered_for_later_entries(tenure: lease.Tenure, duration_ns: int) -> lease.Tenure:
    """Give the lease up when that is asked for, but leave as it is what is only lowered."""
    return lease.Tenure(duration_ns, tenure.until_ns if duration_ns else 0)


_MUTANTS = (
    Mutant("not-waited-for", patches=(("ready_at", lambda _accepted, fenced_ns: fenced_ns),)),
    Mutant("waited-for-once", patches=(("WAITED", 1),)),
    Mutant("not-in-the-log", patches=(("metadata", lambda _tenure: ()),)),
    Mutant("not-given-up", patches=(("released", lambda tenure: lease.Tenure(0, tenure.until_ns)),)),
    Mutant("lowered-for-later-entries-only", patches=(("lowered", _lowered_for_later_entries),)),
    Mutant("counted-from-the-answer", Model(counted_from=lambda _sent, heard: heard)),
    Mutant("begins-when-sent", Model(begins_when_sent=True)),
    Mutant("waited-from-before-the-fence", Model(waited_from=lambda begun, _fenced: begun)),
    Mutant("clock-that-stands-while-suspended", Model(Clock.MONOTONIC)),
    Mutant("wall-clock", Model(Clock.WALL)),
)

MUTANTS = {mutant.name: mutant for mutant in _MUTANTS}
