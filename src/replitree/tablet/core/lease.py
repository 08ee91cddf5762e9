"""Leases: when a leader may answer reads by itself, and how long its successor waits.

* Every entry that a leader forms says how long its lease is.  A lease begins with the first such entry that is confirmed, so
  that whoever comes next knows of it.
* An entry makes the lease last until its duration after the entry was *sent*.  Not after it was heard to be stored: the
  successor's fence may lie between.
* Who was elected waits twice the duration that the last entry which counts says, from a moment at which its fence held.  No
  entry that was sent after the fence is stored, so with perfect clocks one duration is enough; the second one is for clocks
  of which one runs at half the speed of the other.
* A leader that lowers the duration gives up at once what is longer, for its successor may read the entry that says so and wait
  for that long only.  One that releases its lease lowers it to 0.  A duration is never raised.

Times are nanoseconds of a clock that is never set and goes on while the machine sleeps (``CLOCK_BOOTTIME``): one that can be
set back, or stands still meanwhile, would make a lease last longer than it does for others.

(The lease is that of YDB's flat tablet executor.)
"""

from __future__ import annotations

import msgspec

from replitree.tablet.core.entries import LogEntry
from replitree.tablet.core.recovery import Accepted

LEASE = 1
"""Key of the duration in an entry's metadata."""

WAITED = 2
"""How many durations a successor waits."""

_BYTES = 8


class Tenure(msgspec.Struct, frozen=True):
    """A leader's own lease.

    Attributes
    ----------
    duration_ns
        How long each entry makes it last, in nanoseconds; 0: there is none.
    until_ns
        When it ends.
    """

    duration_ns: int = 0
    until_ns: int = 0


def metadata(tenure: Tenure) -> tuple[tuple[int, bytes], ...]:
    """Return what an entry says of the lease."""
    return ((LEASE, tenure.duration_ns.to_bytes(_BYTES, "big")),) if tenure.duration_ns else ()


def extended(tenure: Tenure, sent_ns: int) -> Tenure:
    """Take that an entry, sent at this time, is confirmed."""
    return Tenure(tenure.duration_ns, max(tenure.until_ns, sent_ns + tenure.duration_ns))


def may_answer(tenure: Tenure, now_ns: int) -> bool:
    """Whether a leader may answer a read now without asking anybody."""
    return now_ns < tenure.until_ns


def lowered(tenure: Tenure, duration_ns: int) -> Tenure:
    """Let entries make the lease last no longer than this, those included that were sent; the next entry says so.

    Parameters
    ----------
    tenure
        The lease.
    duration_ns
        The new duration, in nanoseconds, at most the old one.
    """
    assert duration_ns <= tenure.duration_ns
    return Tenure(duration_ns, max(0, tenure.until_ns - (tenure.duration_ns - duration_ns)))


def released(tenure: Tenure) -> Tenure:
    """Give the lease up; the next entry says so."""
    return lowered(tenure, 0)


def duration_of(entry: LogEntry) -> int:
    """Return how long the lease is that an entry speaks of, in nanoseconds; 0: there is none."""
    return int.from_bytes(dict(entry.metadata).get(LEASE, b""), "big")


def ready_at(accepted: Accepted, fenced_ns: int) -> int:
    """Return when somebody who was elected may begin to serve.

    Parameters
    ----------
    accepted
        What counts of the log; the last entry says what lease there may be.
    fenced_ns
        A time at which its fence held.
    """
    return fenced_ns + WAITED * duration_of(accepted[-1][1]) if accepted else fenced_ns
