"""How a member does, as far as whoever asks it can tell."""

from __future__ import annotations

import threading
import time

from replitree.tablet.member import Failed, Reply, Request, Write


class Health:
    """What became of the requests to a member.

    Attributes
    ----------
    trouble
        Why the last request failed; None if it did not.
    missed
        How many times blobs were to be written that the member may not have.
    """

    def __init__(self) -> None:
        self.trouble: str | None = None
        self.missed = 0
        self._lock = threading.Lock()
        self._since_s: float | None = None

    @property
    def silent_s(self) -> float:
        """How long the request that is waited for is on its way, in seconds; 0 if there is none."""
        since_s = self._since_s
        return 0.0 if since_s is None else time.monotonic() - since_s

    def sent(self) -> None:
        """Take that a request is on its way, and no other one."""
        self._since_s = time.monotonic()

    def heard(self, request: Request, reply: Reply) -> None:
        """Take a reply."""
        self._since_s = None
        if not isinstance(reply, Failed):
            self.trouble = None
            return
        self.trouble = reply.reason
        if isinstance(request, Write):
            self.missed_one()

    def missed_one(self) -> None:
        """Take that blobs were not written, or not sent."""
        with self._lock:
            self.missed += 1
