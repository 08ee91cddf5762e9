"""What became of one seed, and of many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from replitree_verify.simulation.options import Options
from replitree_verify.simulation.store.store_options import StoreOptions


@dataclass(frozen=True, slots=True)
class Run:
    """What became of one seed.

    Attributes
    ----------
    seed, options
        The seed and what it drew.
    digest
        Hash of everything that happened.
    events, virtual_s, entries
        Events, virtual seconds, entries in the log at the end.
    violation
        What went wrong, or None.
    probes
        How often each rare branch was taken.
    store
        The object store of its table; None for a table on local disks.
    """

    seed: int
    options: Options
    digest: str
    events: int
    virtual_s: float
    entries: int
    violation: str | None
    probes: Mapping[str, int]
    store: StoreOptions | None = None


@dataclass(slots=True)
class Simulated:
    """What became of many seeds.

    Attributes
    ----------
    runs, events, seconds
        Seeds, events, and how long it took.
    violations
        The seeds that went wrong, with what did.
    probes
        In how many seeds each rare branch was taken.
    digest
        Hash of the digests of all runs.
    """

    runs: int = 0
    events: int = 0
    seconds: float = 0.0
    violations: list[tuple[int, str]] = field(default_factory=list)
    probes: Counter[str] = field(default_factory=Counter)
    digest: str = ""
