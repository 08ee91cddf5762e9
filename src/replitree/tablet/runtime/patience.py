"""Waiting by the clock of leases."""

from __future__ import annotations

import threading

from replitree.tablet.runtime.settings import Clock

LOOK_S = 0.1
"""How often somebody who waits for a lease looks at the clock: the pause is measured by another one."""


def wait_until(clock: Clock, until_ns: int) -> None:
    """Wait until a clock says so, in nanoseconds."""
    pause = threading.Event()
    while (left := until_ns - clock()) > 0:
        pause.wait(min(left / 1e9, LOOK_S))
