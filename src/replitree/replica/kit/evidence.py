"""Why a replica must activate again: what it has learned about its epoch.

An activation costs an epoch, a pull to the log's tail and a moment in which the replica takes nothing.  So it follows evidence
about the epoch or the session, and nothing else.  A request that can't be carried out is answered to its client; a disk that
is full and a coordination that does not answer are *hindrances* (`Availability.hinder`): the replica is read-only until they
are over, and goes on under the epoch that it has.

============  ======================================================  ==================================================
hindrance     what it is                                              when it is over
============  ======================================================  ==================================================
DISK          less room than is kept in reserve, or a probe fails     the life thread can write and sync a few bytes
COORDINATION  silence for as long as a session lives                  the server hears coordination again
LOG           an entry could not be pulled, for a reason of ours      the puller tries again, after a pause
============  ======================================================  ==================================================

========  =========================================================================  =======================================
evidence  what has happened                                                          where it is found
========  =========================================================================  =======================================
SESSION   the session ended, or a new one began: `is_active` is gone                 `server`, by coordination's events
FENCED    coordination refused ``Check(host, epoch)`` of any commit of a procedure,  `runner`, for all procedures; `workers`
          and the replica had no newer epoch when the procedure ended                by their outcomes
UNKNOWN   a commit under the epoch has no answer: it may take place at any time, and `inserts`, `commands`, `leader`, `mover`,
          only a newer epoch decides it                                              `sharing`
BEGUN     a procedure broke off between two commits; an activation settles what it   `mover`, `maintenance`
          has begun
GAP       an entry that was not pulled is gone: the replica may be lost              `workers`
========  =========================================================================  =======================================
"""

from __future__ import annotations

from enum import Enum

from replitree.protocol.core.effects import Epoch


class Evidence(Enum):
    """See the module's docstring.  `START`: the process has only begun."""

    START = "start"
    SESSION = "session"
    FENCED = "fenced"
    UNKNOWN = "unknown"
    BEGUN = "begun"
    GAP = "gap"


class Hindrance(Enum):
    """What keeps a replica from taking anything although its epoch is good."""

    DISK = "disk"
    COORDINATION = "coordination"
    LOG = "log"


class Trouble:
    """What has happened to a replica since its last activation began; the lock of the replica's state guards it."""

    def __init__(self) -> None:
        self.reason: str | None = None
        """Why the replica must activate again; None while nothing asks for that."""
        self.has_new_session = False
        """Whether a session began since the replica last began to activate."""
        self.answered = Evidence.START
        """The evidence that the last activation is an answer to."""
        self._evidence = Evidence.START
        self._fenced = Epoch(0)

    def add(self, evidence: Evidence, reason: str) -> None:
        """Note evidence; the newest one is reported."""
        self.reason, self._evidence = reason, evidence

    def is_fenced(self, epoch: Epoch, current: Epoch | None) -> bool:
        """Note that commits under an epoch are refused; False: that is no evidence, or the replica must activate anyway."""
        if current is not None and current > epoch:
            return False
        self._fenced = max(self._fenced, epoch)
        # Other evidence stays, because a newer epoch alone may not settle it.
        return self.reason is None

    def begin_activation(self) -> None:
        """Forget what has happened, because an activation begins."""
        self.reason, self.has_new_session, self.answered = None, False, self._evidence

    def end_activation(self, epoch: Epoch) -> None:
        """Drop the refusal of commits that were under way when this activation took its epoch."""
        # The activation itself is the cause of such a refusal.
        if self._evidence is Evidence.FENCED and self._fenced < epoch:
            self.reason = None


__all__ = ["Evidence", "Hindrance", "Trouble"]
