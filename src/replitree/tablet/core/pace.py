"""Group commit: when what waits is sent as the next entry.

* Nothing is on its way: at once.
* Something is: when an entry is full, or when a share of the usual time of an entry is over, so that several are on their way,
  evenly spread; never more than the limit.

So one client has the shortest wait there is, and many clients fill entries while others are on their way.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

SMOOTHING = 8
"""A new time counts as much as one of so many."""

FLIGHTS = 4
STORE_FLIGHTS = 16
"""Entries on their way: a store answers late, and many at once."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one leader.

    Attributes
    ----------
    flights
        How many entries may be on their way.
    batch_bytes, batch_commands
        From which on an entry is full.
    waiting_bytes, waiting_commands
        What may wait; more is refused.
    """

    flights: int = FLIGHTS
    batch_bytes: int = 1 << 20
    batch_commands: int = 4096
    waiting_bytes: int = 64 << 20
    waiting_commands: int = 100_000


class Pace(msgspec.Struct, frozen=True):
    """Measurements of the entries that were sent.

    Attributes
    ----------
    flying
        How many are on their way.
    sent_ns
        When the last one was sent.
    usual_ns
        How long one usually takes.
    """

    flying: int = 0
    sent_ns: int = 0
    usual_ns: int = 0


def patience_ns(pace: Pace, limits: Limits, commands: int, size: int, now_ns: int) -> int | None:
    """Return in how many nanoseconds what waits is to be sent: 0 now; None when an entry has landed, or more has come.

    Parameters
    ----------
    pace, limits
        What is on its way, and what may be.
    commands, size
        What waits: how many commands, and their bytes.
    now_ns
        The time.
    """
    if not commands or pace.flying >= limits.flights:
        return None
    if not pace.flying or size >= limits.batch_bytes or commands >= limits.batch_commands:
        return 0
    # Evenly spread: entries that leave together also land together, and the disk rests in between.
    return max(0, pace.sent_ns + pace.usual_ns // limits.flights - now_ns)


def sent(pace: Pace, now_ns: int) -> Pace:
    """Take that an entry was sent."""
    return Pace(pace.flying + 1, now_ns, pace.usual_ns)


def landed(pace: Pace, took_ns: int) -> Pace:
    """Take that one is stored, or is known not to be, after so many nanoseconds."""
    usual = took_ns if not pace.usual_ns else (pace.usual_ns * (SMOOTHING - 1) + took_ns) // SMOOTHING
    return Pace(pace.flying - 1, pace.sent_ns, usual)
