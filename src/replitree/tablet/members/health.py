"""The state of a member, as far as the process that uses it can tell."""

from __future__ import annotations

import threading
import time
from itertools import count

from replitree.tablet.group.member import Failed, Reply, Request, Write


class Health:
    """The outcomes of the requests to a member.

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
        self._numbers = count()
        self._sent_s: dict[int, float] = {}

    @property
    def silent_s(self) -> float:
        """How long the oldest request that is waited for is on its way, in seconds; 0 if there is none."""
        with self._lock:
            oldest_s = next(iter(self._sent_s.values()), None)
        return 0.0 if oldest_s is None else time.monotonic() - oldest_s

    def sent(self) -> int:
        """Take that a request is on its way; return which."""
        with self._lock:
            number = next(self._numbers)
            self._sent_s[number] = time.monotonic()
        return number

    def heard(self, sent: int, request: Request, reply: Reply) -> None:
        """Take the reply to a request that was sent."""
        with self._lock:
            del self._sent_s[sent]
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
