"""Waiting by the clock of leases."""

from __future__ import annotations

import threading

from replitree.tablet.runtime.settings import Clock

LOOK_S = 0.1
"""The period, in seconds, in which a thread that waits for a lease reads the clock: the pause runs by another clock."""


def wait_until(clock: Clock, until_ns: int) -> None:
    """Wait until a clock says so, in nanoseconds."""
    pause = threading.Event()
    while (left := until_ns - clock()) > 0:
        # The pause runs by another clock, which stops while the machine sleeps.
        pause.wait(min(left / 1e9, LOOK_S))
