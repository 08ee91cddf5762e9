"""Clocks that are wrong: a process is told another time of day, and timeouts of its own that pass sooner or later.

Only what Python code asks for by name is changed: `time.time`, `time.time_ns` and `time.monotonic`.  What a recorder uses,
`time.monotonic_ns`, stays the machine's: histories of several processes are judged by one clock.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import msgspec

DAY_S = 86_400.0
RATES = (0.5, 0.8, 1.0, 1.25, 2.0)
"""How many of its own seconds a process counts in one second."""


class Skew(msgspec.Struct, frozen=True):
    """How wrong a clock is.

    Attributes
    ----------
    offset_s
        Seconds by which it is ahead in the beginning.
    rate
        How many seconds it counts in one.
    """

    offset_s: float = 0.0
    rate: float = 1.0

    def install(self) -> None:
        """Tell this process the wrong time from now on."""
        day, day_ns, monotonic = time.time(), time.time_ns(), time.monotonic()
        time.time = _wrong(time.time, day, day + self.offset_s, self.rate)
        time.monotonic = _wrong(time.monotonic, monotonic, monotonic, self.rate)
        offset_ns, true_ns = round(self.offset_s * 1e9), time.time_ns
        time.time_ns = lambda: day_ns + offset_ns + round((true_ns() - day_ns) * self.rate)


def draw_skew(chance: random.Random) -> Skew:
    """Draw a clock that is wrong by up to a day, and too fast or too slow."""
    return Skew(round(chance.uniform(-DAY_S, DAY_S), 3), chance.choice(RATES))


def _wrong(true: Callable[[], float], begun: float, shown: float, rate: float) -> Callable[[], float]:
    """Return a clock that shows `shown` where the true one shows `begun`."""
    return lambda: shown + (true() - begun) * rate
