"""Leases: when a leader may answer reads by itself, and how long its successor waits.

* Every entry that a leader forms carries the duration of its lease.  A lease begins with the first such entry that is
  confirmed, so that the successor knows of it.
* An entry extends the lease to its duration after the entry was *sent*, not after the leader heard that it was stored: the
  successor's fence may lie between.
* An elected leader waits twice the duration that the last counting entry carries, from a moment at which its fence held.  No
  entry that was sent after the fence is stored, so with perfect clocks one duration is enough; the second one allows for clocks
  of which one runs at half the speed of the other.
* A leader that lowers the duration gives up the longer lease at once, because its successor may read the entry with the lower
  duration and wait for that long only.  A leader that releases its lease lowers it to 0.  A duration is never raised.

Times are nanoseconds of a clock that is never set and runs while the machine sleeps (``CLOCK_BOOTTIME``): a clock that can be
set back, or stops during sleep, would make a lease last longer for its leader than for its successor.

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
    # From the sending, not from the answer: the successor's fence may lie between the two.
    return Tenure(tenure.duration_ns, max(tenure.until_ns, sent_ns + tenure.duration_ns))


def may_answer(tenure: Tenure, now_ns: int) -> bool:
    """Whether a leader may answer a read now without asking a member."""
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
    # A successor waits by the last entry that counts: a longer lease than that entry says would outlive its wait.
    assert duration_ns <= tenure.duration_ns
    return Tenure(duration_ns, max(0, tenure.until_ns - (tenure.duration_ns - duration_ns)))


def released(tenure: Tenure) -> Tenure:
    """Give the lease up; the next entry says so."""
    return lowered(tenure, 0)


def duration_of(entry: LogEntry) -> int:
    """Return how long the lease is that an entry speaks of, in nanoseconds; 0: there is none."""
    return int.from_bytes(dict(entry.metadata).get(LEASE, b""), "big")


def ready_at(accepted: Accepted, fenced_ns: int) -> int:
    """Return when an elected leader may begin to serve.

    Parameters
    ----------
    accepted
        What counts of the log; the last entry says what lease there may be.
    fenced_ns
        A time at which its fence held.
    """
    return fenced_ns + WAITED * duration_of(accepted[-1][1]) if accepted else fenced_ns
