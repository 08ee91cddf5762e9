"""How a leader runs: its limits, its lease, when it makes snapshots.  And the clock that it has."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from replitree.tablet.core.pace import Limits

Clock: TypeAlias = Callable[[], int]
"""Nanoseconds since some begin; never set, and goes on while the machine sleeps."""


boot_ns: Clock = partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)
"""Returns the nanoseconds since the machine was started, those included in which it was suspended."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one leader.

    Attributes
    ----------
    limits
        Of its entries.
    lease_s
        How long it may answer reads by itself after an entry was sent, in seconds; 0: every read asks a quorum.
    look_s
        How often it looks whether it still leads, whether a snapshot is due and whether members are back, in seconds.
    snapshot_entries, snapshot_bytes
        A snapshot is due when so many entries, or bytes, were sent since the last one.
    clock
        What time it is.
    """

    limits: Limits = field(default_factory=Limits)
    lease_s: float = 0.0
    look_s: float = 1.0
    snapshot_entries: int = 4096
    snapshot_bytes: int = 16 << 20
    clock: Clock = boot_ns

    @property
    def lease_ns(self) -> int:
        """The lease in nanoseconds."""
        return round(self.lease_s * 1e9)
